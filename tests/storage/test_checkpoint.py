"""Checkpoints: a fit that is killed goes on, and ends with the numbers it would have had."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from tests import simulated
from tests.conftest import relative_error


def images(n_images=11, seed=0):
    *_, stack = simulated.random_problem("gaussian", n_images=n_images, seed=seed, missing=0.1)
    return stack[:, 0]


def model(**changes):
    options = {"n_components": 2, "n_iter": 6, "random_state": 0, "n_threads": 1}
    options |= {"shape_penalty": (0.01, 0.1, 1.0, 0.1, 0.1)}
    return ShapeAppearanceModel(**{**options, **changes})


def assert_same_end(result, expected):
    assert relative_error(np.array(result.objective_), np.array(expected.objective_)) < 1e-5
    assert relative_error(result.mean_, expected.mean_) < 1e-5
    layout = expected.settings_.layout
    for name, columns in (("appearance_basis_", layout.appearance), ("shape_basis_", layout.shape)):
        if len(getattr(expected, name)):
            products = [
                np.tensordot(m.latents_[:, columns], getattr(m, name), axes=1)
                for m in (result, expected)
            ]
            assert relative_error(*products) < 1e-5


@pytest.mark.parametrize(
    "n_done", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("layout", ["joint", "separate", "shape", "appearance"])
def test_a_fit_goes_on_from_its_checkpoint(tmp_path, layout, n_done):
    n_components = (1, 1) if layout == "separate" else 2
    options = {"latents": layout, "n_components": n_components}
    expected = model(**options).fit(images())
    path = tmp_path / "checkpoint"
    model(**options, n_iter=n_done).fit(images(), checkpoint=path)
    result = model(**options).fit(images(), checkpoint=path)
    assert result.n_iter_ == 6
    assert result.objective_[:n_done] == expected.objective_[:n_done]
    assert_same_end(result, expected)


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_every_likelihood_goes_on(tmp_path, likelihood):
    *_, stack = simulated.random_problem(likelihood, n_images=11, missing=0.1)
    stack = stack[:, 0] if likelihood == "bernoulli" else stack
    options = {"likelihood": likelihood, "channel_axis": None if likelihood == "bernoulli" else 1}
    expected = model(**options).fit(stack)
    path = tmp_path / "checkpoint"
    model(**options, n_iter=3).fit(stack, checkpoint=path)
    assert_same_end(model(**options).fit(stack, checkpoint=path), expected)


def test_a_checkpoint_changes_nothing(tmp_path):
    expected = model().fit(images())
    result = model().fit(images(), checkpoint=tmp_path / "checkpoint")
    assert result.objective_ == expected.objective_
    assert np.array_equal(result.latents_, expected.latents_)
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_a_finished_fit_is_read_from_its_checkpoint(tmp_path):
    path = tmp_path / "checkpoint"
    expected = model().fit(images(), checkpoint=path)
    written = path.stat().st_mtime_ns
    result = model().fit(images(), checkpoint=path)
    assert path.stat().st_mtime_ns == written
    assert result.objective_ == expected.objective_
    assert np.array_equal(result.latents_, expected.latents_)


@pytest.mark.parametrize(
    ("changes", "stack"),
    [
        ({"n_components": 3}, images()),
        ({"random_state": 1}, images()),
        ({"mean_penalty": (1, 1, 1)}, images()),
        ({}, images(seed=1)),
        ({}, images()[:10]),
    ],
    ids=["components", "seed", "penalty", "images", "fewer images"],
)
def test_the_checkpoint_of_another_fit_is_refused_and_left_alone(tmp_path, changes, stack):
    path = tmp_path / "checkpoint"
    model(n_iter=1).fit(images(), checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="other images or settings; remove it") as error:
        model(**changes).fit(stack, checkpoint=path)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_images_in_another_order_are_other_images(tmp_path):
    """Latents in a checkpoint belong to images by their position."""
    path = tmp_path / "checkpoint"
    model(n_iter=1).fit(images(), checkpoint=path)
    with pytest.raises(ValueError, match="other images or settings"):
        model().fit(images()[::-1].copy(), checkpoint=path)


def test_other_starting_latents_are_another_fit(tmp_path):
    path = tmp_path / "checkpoint"
    starts = np.random.default_rng(0).standard_normal((2, 11, 2))
    model(n_iter=1).fit(images(), start=starts[0], checkpoint=path)
    with pytest.raises(ValueError, match="other images or settings"):
        model().fit(images(), start=starts[1], checkpoint=path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_damaged_checkpoint_is_explained_and_left_alone(tmp_path, share):
    path = tmp_path / "checkpoint"
    model(n_iter=1).fit(images(), checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="truncated") as error:
        model().fit(images(), checkpoint=path)
    assert "\n" not in str(error.value)
    assert path.stat().st_size == int(share * len(content))


def test_a_model_file_is_no_checkpoint(tmp_path):
    path = tmp_path / "model"
    model(n_iter=1).fit(images()).save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not a checkpoint file"):
        model().fit(images(), checkpoint=path)
    assert path.read_bytes() == before


def test_a_missing_folder_is_explained_before_the_work_is_done(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        model(n_iter=1).fit(images(), checkpoint=tmp_path / "no" / "checkpoint")
    assert os.listdir(tmp_path) == []


SCRIPT = """
import sys
import numpy as np
from anamorph import ShapeAppearanceModel

folder = sys.argv[1]
model = ShapeAppearanceModel(
    3, n_iter=30, random_state=0, n_threads=1, shape_penalty=(0.01, 0.1, 1.0, 0.1, 0.1)
)
model.fit(np.load(folder + "/images.npy"), checkpoint=folder + "/checkpoint")
np.savez(
    folder + "/end.npz",
    objective=model.objective_,
    mean=model.mean_,
    warps=np.tensordot(model.latents_, model.shape_basis_, axes=1),
)
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_a_fit_that_is_killed_again_and_again_ends_the_same(tmp_path, seed):
    generator = np.random.default_rng(seed)
    *_, stack = simulated.random_problem("gaussian", n_images=40, space=(32, 32), missing=0.1)
    ends = {}
    for name in ("whole", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        np.save(folder / "images.npy", stack[:, 0])
        n_kills = 0
        while True:
            process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)])
            if name == "killed" and n_kills < 5:
                progress = wait_for_progress(process, folder / "checkpoint")
                if progress:
                    time.sleep(generator.uniform(0, 0.3))
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    n_kills += 1
            if process.wait() == 0:
                break
            assert process.returncode == -signal.SIGKILL
        ends[name] = np.load(folder / "end.npz")
        if name == "killed":
            assert n_kills >= 2
    for field in ("objective", "mean", "warps"):
        assert relative_error(ends["killed"][field], ends["whole"][field]) < 1e-5


def wait_for_progress(process, path):
    """Wait until a process has written a checkpoint, or ended; tell whether it has written."""
    before = path.stat().st_mtime_ns if path.exists() else None
    while process.poll() is None:
        if path.exists() and path.stat().st_mtime_ns != before:
            return True
        time.sleep(0.005)
    return False
