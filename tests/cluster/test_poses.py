"""Images that are turned and shifted: partitions find the poses that one machine finds."""

import numpy as np
import pytest
from scipy.ndimage import affine_transform

from anamorph import ShapeAppearanceModel
from anamorph.cluster import fit_on_cluster
from anamorph.fitting.sums import POSING
from tests.cli.conftest import blobs
from tests.cluster.conftest import N_IMAGES, OPTIONS
from tests.cluster.test_partition import fitted

SPACE = (16, 14)
SHIFTED = {"align": "translation", "n_iter": 2}
MATCHED = {"align": "rigid", "intensity": "per image", "n_iter": 2}


@pytest.fixture
def files(tmp_path):
    """Return the files of blobs that are turned by up to 25 degrees and shifted by 2 voxels."""
    generator, centre = np.random.default_rng(3), (np.array(SPACE) - 1) / 2
    paths = [tmp_path / f"image-{n:02d}.npy" for n in range(N_IMAGES)]
    for path, image in zip(paths, blobs(N_IMAGES, SPACE), strict=True):
        angle, shift = generator.uniform(-0.45, 0.45), generator.uniform(-2, 2, 2)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        moved = affine_transform(image, turn, centre + shift - turn @ centre, order=1)
        np.save(path, (generator.uniform(0.5, 2) * moved).astype(np.float32))
    return paths


def never(question):
    return False


@pytest.mark.parametrize(
    ("options", "tolerance"),
    # Gains are found by few steps of Newton's method, which shows more of the rounding.
    [(SHIFTED, 1e-6), pytest.param(MATCHED, 1e-5, marks=pytest.mark.slow)],
)
def test_partitions_find_the_poses_of_one_machine(files, tmp_path, options, tolerance):
    pooled = ShapeAppearanceModel(**OPTIONS | options).fit(files)
    model, sites = fitted(files, tmp_path / "shared", never, **options)
    assert set(POSING) <= set(sites.questions)
    assert np.abs(pooled.poses_).max() > 1  # voxels: not what it starts from
    assert np.allclose(model.objective_, pooled.objective_, rtol=tolerance, atol=0)
    assert np.allclose(model.poses_, pooled.poses_, atol=1e-3)
    assert np.allclose(model.latents_, pooled.latents_, atol=1e-3)


def test_poses_are_the_same_after_workers_lose_all(files, tmp_path):
    whole, _ = fitted(files, tmp_path / "whole", never, **SHIFTED)
    model, _ = fitted(files, tmp_path / "lost", lambda question: True, **SHIFTED)
    assert model.objective_ == whole.objective_
    assert np.array_equal(model.poses_, whole.poses_)
    assert np.array_equal(model.latents_, whole.latents_)


@pytest.mark.slow
def test_a_cluster_finds_the_poses_of_one_machine_and_resumes(client, files, tmp_path):
    """It ends after one iteration, and resumes from its checkpoint with poses and gains."""
    options, path = OPTIONS | MATCHED, tmp_path / "checkpoint.safetensors"
    pooled = ShapeAppearanceModel(**options).fit(files)
    for n_iter in (1, 2):
        model = ShapeAppearanceModel(**options | {"n_iter": n_iter})
        folder = tmp_path / "shared"
        fit_on_cluster(model, files, client, folder, n_partitions=3, checkpoint=path)
        assert model.n_iter_ == n_iter
    assert np.allclose(model.objective_, pooled.objective_, rtol=1e-5, atol=0)
    assert np.allclose(model.poses_, pooled.poses_, atol=1e-3)
    assert np.allclose(model.latents_, pooled.latents_, atol=1e-3)


def test_a_fit_with_gains_of_each_image_resumes_with_the_same_numbers(files, tmp_path):
    options, path = OPTIONS | {"intensity": "per image"}, tmp_path / "checkpoint.safetensors"
    whole = ShapeAppearanceModel(**options).fit(files)
    for n_iter in (1, options["n_iter"]):
        model = ShapeAppearanceModel(**options | {"n_iter": n_iter}).fit(files, checkpoint=path)
    assert np.allclose(model.objective_, whole.objective_, rtol=1e-9, atol=0)
    assert np.allclose(model.latents_, whole.latents_, atol=1e-6)
