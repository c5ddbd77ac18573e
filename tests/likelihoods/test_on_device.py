"""Likelihoods on a GPU, a real one or a simulated one: the same formulas, the same numbers."""

import numpy as np
import pytest

from anamorph.likelihoods import LIKELIHOODS
from tests.device.conftest import gpu  # noqa: F401  the fixture
from tests.likelihoods import formulas


@pytest.mark.parametrize("name", list(LIKELIHOODS))
def test_numbers_are_those_of_the_processor(gpu, name):  # noqa: F811
    generator = np.random.default_rng(0)
    shape = (2, 3, 3, 4)
    appearance = generator.standard_normal(shape).astype(np.float32)
    images = formulas.random_images(name, generator, shape, missing=0.2)
    precision, likelihood = np.array([0.7, 3.0, 11.0]), LIKELIHOODS[name]
    here = likelihood.derivatives(appearance, images, precision)
    there = likelihood.derivatives(gpu.asarray(appearance), gpu.asarray(images), precision)
    for part in ("log_likelihood", "gradient", "hessian"):
        assert np.allclose(getattr(there, part).get(), getattr(here, part), rtol=2e-6, atol=2e-6), (
            part
        )
    values = likelihood.log_likelihood(gpu.asarray(appearance), gpu.asarray(images), precision)
    assert np.allclose(values.get(), here.log_likelihood, rtol=2e-6, atol=2e-6)
    expected = likelihood.expectation(gpu.asarray(appearance)).get()
    assert np.allclose(expected, likelihood.expectation(appearance), rtol=1e-6)
    if likelihood.has_noise:
        arrays = gpu.asarray(appearance), gpu.asarray(images)
        for ours, theirs in zip(
            likelihood.residual_sums(*arrays),
            likelihood.residual_sums(appearance, images),
            strict=True,
        ):
            assert np.allclose(ours.get(), theirs, rtol=2e-6)
