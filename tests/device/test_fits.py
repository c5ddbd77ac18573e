"""Fits on a GPU, beside fits on the processor; and what is said when they cannot be."""

import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.arrays.batches import GpuPlan
from anamorph.arrays.devices import chosen_device, to_host
from anamorph.arrays.gpu_images import ImagesOnDevice
from anamorph.compare import hide_boxes, score_hidden
from anamorph.fitting.placement import plan_fit_on_gpu
from anamorph.geometry.shooting import count_folds
from anamorph.kernels.errors import DeviceError
from anamorph.model.generator import Generator
from tests import simulated
from tests.device.conftest import HAS_GPU

SPACE = (7, 6)


def blobs(n_images, seed=0):
    """Return round blobs in different places, some of them in part not seen."""
    rng = np.random.default_rng(seed)
    y, x = np.indices(SPACE)
    centres = rng.normal(3, 0.5, (n_images, 2))
    images = np.exp([-((y - a) ** 2 + (x - b) ** 2) / 4 for a, b in centres]).astype(np.float32)
    images[0, 0, 0] = np.nan
    return images


def images_for(likelihood):
    if likelihood == "categorical":
        filled = np.nan_to_num(blobs(6))
        return (filled > 0.4).astype(int) + (filled > 0.8)
    return blobs(6)


def fitted(likelihood, device, **changes):
    n_components = (1, 1) if likelihood == "categorical" else 2
    latents = "separate" if likelihood == "categorical" else "joint"
    options = {"n_iter": 2, "n_steps": 3, "latents": latents, "device": device, **changes}
    model = ShapeAppearanceModel(n_components, likelihood=likelihood, **options)
    return model.fit(images_for(likelihood))


@pytest.mark.long
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
def test_fits_agree(gpu, monkeypatch, likelihood):
    monkeypatch.setattr("anamorph.model.generator._MOST_GUESSES", 3)  # each takes a simulation long
    here, there = (fitted(likelihood, device) for device in ("cpu", "cuda"))
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-6)
    assert np.allclose(there.latents_, here.latents_, atol=1e-4)
    images = images_for(likelihood)[:2]
    ours, theirs = there.encode(images), here.encode(images)
    assert np.allclose(ours.latents, theirs.latents, atol=1e-3)
    assert np.allclose(ours.log_evidence, theirs.log_evidence, atol=1e-3)
    z = theirs.latents
    for use in (
        lambda model: model.inverse_transform(z),
        lambda model: model.displacement(z),
        lambda model: model.log_likelihood(images, z),
        lambda model: model.impute(images),
    ):
        assert np.allclose(use(there), use(here), atol=1e-3)


@pytest.mark.long
def test_hidden_voxels_are_scored_on_the_gpu(gpu, monkeypatch):
    monkeypatch.setattr("anamorph.model.generator._MOST_GUESSES", 3)
    scores = []
    for device in ("cpu", "cuda"):
        model = ShapeAppearanceModel(1, n_iter=1, n_steps=3, n_threads=1, device=device)
        hidden = hide_boxes(blobs(4), model)
        scores.append(score_hidden(model.fit(hidden), hidden))
    for here, there in zip(*scores, strict=True):
        assert isinstance(there, np.ndarray)
        assert np.allclose(there, here, atol=1e-3)


def test_warps_that_fold_are_shot_again_on_the_gpu(gpu):
    model = fitted("gaussian", "cpu", n_steps=1)
    basis = model.generator_.parameters.shape_basis
    for factor in np.geomspace(1, 1e6, 200):
        parameters = replace(model.generator_.parameters, shape_basis=np.float32(factor) * basis)
        generator = Generator(model.generator_.settings, parameters)
        plain = generator.displacement(model.latents_)
        drawn = generator.unfolded_displacement(model.latents_)
        if not np.array_equal(plain, drawn):
            break
    assert count_folds(plain)[0].any()
    assert not count_folds(drawn)[0].any()
    there = generator.on_gpu
    on_gpu = there.unfolded_displacement(there.own(model.latents_))
    np.testing.assert_allclose(to_host(on_gpu), drawn, atol=1e-4)
    np.testing.assert_array_equal(count_folds(on_gpu)[0], count_folds(drawn)[0])


def test_what_is_fitted_is_in_memory(gpu, tmp_path):
    model = fitted("bernoulli", "cuda")
    for name in ("mean_", "appearance_basis_", "shape_basis_", "latents_"):
        assert isinstance(getattr(model, name), np.ndarray)
    model.save(tmp_path / "model")
    assert np.array_equal(ShapeAppearanceModel.load(tmp_path / "model").mean_, model.mean_)


@pytest.mark.long
def test_a_fit_goes_on_from_its_checkpoint(gpu, tmp_path):
    path = tmp_path / "checkpoint"
    ShapeAppearanceModel(2, n_iter=1, n_steps=3, device="cuda").fit(blobs(6), checkpoint=path)
    model = ShapeAppearanceModel(2, n_iter=2, n_steps=3, device="cuda")
    model.fit(blobs(6), checkpoint=path)
    assert model.objective_ == pytest.approx(fitted("gaussian", "cuda").objective_, rel=1e-6)


def test_images_that_do_not_fit_are_sent_when_needed(gpu):
    images = simulated.Stack(np.arange(7 * 4.0).reshape(7, 1, 2, 2))
    streamed, resident = (ImagesOnDevice(images, are_resident=flag) for flag in (False, True))
    parts = [slice(0, 3), slice(3, 6), slice(6, 7)]
    for part in [*parts, *parts, parts[2], parts[0]]:
        assert np.array_equal(streamed.read(part).get(), images.array[part])
        assert np.array_equal(resident.read(part).get(), images.array[part])


def test_a_model_that_is_too_large_says_so_before_it_starts(gpu):
    settings = simulated.random_settings("gaussian", space=(40, 50))
    with pytest.raises(DeviceError, match=r"needs \S+ GiB.* lower n_components"):
        plan_fit_on_gpu(settings, 10, budget=2**20)
    with pytest.raises(DeviceError, match="lower n_components"):
        ShapeAppearanceModel(2, device="cuda", memory_budget=1000).fit(blobs(6))


def test_less_memory_means_that_images_are_streamed(gpu):
    settings = simulated.random_settings("gaussian", space=(8, 9))
    assert plan_fit_on_gpu(settings, 10).are_images_resident
    needed = 2**20
    assert not plan_fit_on_gpu(settings, 10**6, budget=needed).are_images_resident


@pytest.mark.long
def test_sums_that_do_not_fit_are_solved_with_some_at_a_time(gpu, monkeypatch):
    everything = fitted("bernoulli", "cuda")
    plan = GpuPlan(are_images_resident=True, are_sums_resident=False, working_bytes=2**20)
    monkeypatch.setattr("anamorph.fitting.placement.plan_fit_on_gpu", lambda *_: plan)
    monkeypatch.setattr("anamorph.fitting.regularisation._BLOCK_BYTES", 1)
    assert fitted("bernoulli", "cuda").objective_ == pytest.approx(everything.objective_, rel=1e-6)


def test_less_memory_means_that_sums_leave_the_gpu_first(gpu):
    settings = simulated.random_settings("gaussian", n_components=30, space=(40, 50))
    budgets = [2**20 * mebibytes for mebibytes in range(1, 200)]
    plans = []
    for budget in budgets:
        with suppress(DeviceError):
            plans.append(plan_fit_on_gpu(settings, 10, budget))
    assert len(plans) < len(budgets)
    assert not plans[0].are_sums_resident
    assert plans[-1].are_sums_resident
    assert plans[-1].are_images_resident


def test_the_gpu_is_chosen_when_it_pays(gpu):
    assert chosen_device("auto", 10) == "cpu"
    assert chosen_device("auto", 10**9) == "cuda"


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert chosen_device("auto", 10**9) == "cpu"
    with pytest.raises(DeviceError, match=r"CuPy.*anamorph\[cuda\]"):
        ShapeAppearanceModel(2, device="cuda").fit(blobs(6))
