"""Predictions stay within the memory budget, and do not depend on it."""

import tracemalloc

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.arrays.batches import BatchPlanner
from anamorph.arrays.devices import Machine
from anamorph.model.generator import Generator, encoding_bytes
from anamorph.model.predicting import Predictor
from tests import simulated

N_IMAGES = 24
OVERHEAD = 4 * 10**6  # of Python and its threads, as large as the work on 1.5 images


@pytest.fixture(scope="module")
def problem():
    settings, parameters, latents, images = simulated.random_problem(
        "gaussian", n_images=N_IMAGES, space=(160, 128)
    )
    generator = Generator(settings, parameters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anamorph.model.generator._MOST_GUESSES", 3)
        assert len(generator.guesses.latents) == 3  # kept with the model, like its parameters
    few, machine = simulated.Stack(images[:2]), Machine("cpu", 2, encoding_bytes(settings))
    for predict in predictions(Predictor(generator, machine), latents[:2], few).values():
        predict()  # compiles kernels, or loads them: what that takes is not measured
    return generator, latents, simulated.Stack(images)


def predictions(predictor, latents, images):
    """Return ways to use a predictor; the dearest is for few images."""
    few = images and simulated.Stack(images.read(slice(0, 6)))
    return {
        "encode": lambda: predictor.encode(images).latents,
        "expected_images": lambda: predictor.expected_images(latents),
        "log_likelihood": lambda: predictor.log_likelihood(images, latents),
        "displacement": lambda: predictor.displacement(latents),
        "are_held": lambda: predictor.are_held(30 * latents).astype(float),
        "impute": lambda: np.stack(predictor.impute(few)),
    }


@pytest.mark.parametrize("name", list(predictions(None, None, None)))
@pytest.mark.parametrize(("n_at_once", "n_threads"), [(1, 2), (4, 1), (4, 2)])
def test_memory_stays_within_the_budget(problem, name, n_at_once, n_threads):
    generator, latents, images = problem
    budget = n_at_once * encoding_bytes(generator.settings)
    predictor = Predictor(generator, Machine("cpu", n_threads, budget))
    predict = predictions(predictor, latents, images)[name]
    tracemalloc.start()
    result = predict()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= budget + result.nbytes + OVERHEAD


@pytest.mark.parametrize("name", list(predictions(None, None, None)))
def test_the_budget_does_not_change_predictions(problem, name):
    generator, latents, images = problem
    one, all_ = (
        predictions(Predictor(generator, Machine("cpu", 1, budget)), latents, images)[name]()
        for budget in (1, None)
    )
    tolerance = 1e-2 if name in ("encode", "impute") else 1e-4  # iterations amplify rounding
    scale = np.abs(all_).max()
    assert np.abs(one - all_).max() < tolerance * scale


def test_a_model_passes_its_budget_on(monkeypatch):
    used = []

    def note(image_bytes, budget, on_gpu):
        used.append(budget)
        return BatchPlanner(image_bytes, budget, on_gpu)

    monkeypatch.setattr("anamorph.model.predicting.BatchPlanner", note)
    images = np.random.default_rng(0).random((6, 8, 8))
    model = ShapeAppearanceModel(1, n_iter=1, memory_budget=12345, n_threads=1).fit(images)
    model.transform(images)
    model.sample(2)
    assert len(used) >= 2
    assert set(used) == {12345}


def test_warps_are_held_that_stay_within_the_box():
    settings, parameters, latents, _ = simulated.random_problem("gaussian")
    generator = Generator(settings, parameters)
    distances = np.geomspace(1, 1e6, len(latents))[:, None]
    some = distances * latents[:1]
    predictor = Predictor(generator, Machine("cpu", 1, None))
    farthest = np.abs(generator.displacement(some)).max(axis=(1, 2, 3))
    expected = farthest <= max(settings.space)
    assert 0 < expected.sum() < len(some)
    assert np.array_equal(predictor.are_held(some), expected)
    # A residual velocity that undoes the modes leaves a warp that is held.
    undone = -generator.velocity(some)
    assert predictor.are_held(some, undone).all()
