"""Likelihoods: golden numbers, plain float64 formulas, and numerical derivatives, for all alike."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

from anamorph.likelihoods import LIKELIHOODS
from anamorph.likelihoods.poisson import log_factorial
from anamorph.model.generator import Generator
from tests import reference, simulated
from tests.conftest import relative_error
from tests.likelihoods import formulas

SHAPES = {name: (3, 4 if kind.holds_classes else 2, 6, 5) for name, kind in LIKELIHOODS.items()}
PRECISION = np.array([0.7, 11.0])
GOLDEN_VARIANTS = [("grid2d", ""), ("grid2d", "_missing"), ("grid2d", "_missing_factor")]
GOLDEN_VARIANTS += [("grid3d", ""), ("grid3d", "_missing")]
EXPECTED_LOADING = {  # on the diagonal of H at observed voxels
    "gaussian": lambda n_channels: 0.0,
    "bernoulli": lambda n_channels: 1e-8,
    "categorical": lambda n_channels: 1e-4 * n_channels**2,
    "poisson": lambda n_channels: 1e-6,  # and f / 8 - exp(a') where that is positive
}
STARTING_LOADING = {  # the same while the mean is found without warps
    "gaussian": lambda n_channels: 0.0,
    "bernoulli": lambda n_channels: 1e-3,
    "categorical": lambda n_channels: 1e-3 * n_channels**2,
    "poisson": lambda n_channels: 1e-3,
}

seeds = st.integers(0, 2**31)
every_likelihood = pytest.mark.parametrize("name", sorted(LIKELIHOODS))


def voxels(name, seed, *, soft, missing):
    """Return a random appearance, images and precision."""
    generator = np.random.default_rng(seed)
    shape = SHAPES[name]
    appearance = (3 * generator.standard_normal(shape)).astype(np.float32)
    images = formulas.random_images(name, generator, shape, soft=soft, missing=missing)
    return appearance, images, PRECISION


def numerical_gradient(function, appearance, step):
    """Return central differences of a per-voxel function, one channel moved at a time.

    Voxels are independent, so that a channel can be moved at all of them at once.
    """
    gradient = []
    for c in range(appearance.shape[1]):
        move = np.zeros(appearance.shape)
        move[:, c] = step
        gradient.append((function(appearance + move) - function(appearance - move)) / (2 * step))
    return np.stack(gradient, axis=1)


def formula_gradient(name, images, precision):
    """Return the gradient of -ln p as a function of the appearance, NaN taken for no change."""

    def value(appearance):
        values = formulas.VALUES[name](appearance, images.astype(np.float64), precision)
        return -np.nan_to_num(values).sum(axis=1)

    return lambda appearance: numerical_gradient(value, appearance.astype(np.float64), 1e-5)


@every_likelihood
class TestEveryLikelihood:
    @given(seed=seeds, soft=st.booleans(), missing=st.sampled_from([0.0, 0.3, 1.0]))
    def test_log_likelihood_is_the_formula(self, name, seed, soft, missing):
        appearance, images, precision = voxels(name, seed, soft=soft, missing=missing)
        expected = formulas.log_likelihood(name, appearance, images, precision)
        result = LIKELIHOODS[name].log_likelihood(appearance, images, precision)
        assert np.allclose(result, expected, rtol=2e-6, atol=2e-6)

    @given(seed=seeds, soft=st.booleans(), missing=st.sampled_from([0.0, 0.3]))
    def test_derivatives_bring_the_log_likelihood_along(self, name, seed, soft, missing):
        arguments = voxels(name, seed, soft=soft, missing=missing)
        alone = LIKELIHOODS[name].log_likelihood(*arguments)
        assert np.allclose(LIKELIHOODS[name].derivatives(*arguments).log_likelihood, alone, 1e-7)

    @given(seed=seeds, soft=st.booleans(), missing=st.sampled_from([0.0, 0.3]))
    def test_gradient_matches_differences_of_the_value(self, name, seed, soft, missing):
        appearance, images, precision = voxels(name, seed, soft=soft, missing=missing)
        expected = formula_gradient(name, images, precision)(appearance)
        result = LIKELIHOODS[name].derivatives(appearance, images, precision).gradient
        assert np.abs(result - expected).max() < 1e-6 * max(1, np.abs(expected).max())

    @given(seed=seeds, soft=st.booleans(), missing=st.sampled_from([0.0, 0.3]))
    def test_hessian_matches_differences_of_the_gradient(self, name, seed, soft, missing):
        appearance, images, precision = voxels(name, seed, soft=soft, missing=missing)
        expected = numerical_gradient(
            formula_gradient(name, images, precision), appearance.astype(np.float64), 1e-3
        )
        result = LIKELIHOODS[name].derivatives(appearance, images, precision).hessian
        n_channels = images.shape[1]
        full = formulas.matrices(result, n_channels)
        observed = ~np.isnan(images)
        for c in range(n_channels):
            full[:, c, c] -= EXPECTED_LOADING[name](n_channels) * observed[:, c]
            if name == "poisson":
                missing_to_share = images[:, c] / 8 - np.exp(appearance[:, c].astype(np.float64))
                full[:, c, c] -= np.maximum(np.nan_to_num(missing_to_share), 0)
        assert np.abs(full - expected).max() < 2e-5 * np.abs(expected).max()

    @given(seed=seeds, soft=st.booleans())
    def test_hessian_is_positive_definite_where_something_is_observed(self, name, seed, soft):
        appearance, images, precision = voxels(name, seed, soft=soft, missing=0.0)
        hessian = LIKELIHOODS[name].derivatives(10 * appearance, images, precision).hessian
        full = np.moveaxis(formulas.matrices(hessian, images.shape[1]), (1, 2), (-2, -1))
        assert np.linalg.eigvalsh(full).min() > 0

    @given(seed=seeds)
    def test_missing_voxels_contribute_nothing(self, name, seed):
        appearance, images, precision = voxels(name, seed, soft=True, missing=0.4)
        derivatives = LIKELIHOODS[name].derivatives(appearance, images, precision)
        missing = np.isnan(images)
        assert missing.any()
        assert not derivatives.gradient[missing].any()
        full = formulas.matrices(derivatives.hessian, images.shape[1])
        for c in range(images.shape[1]):
            assert not np.moveaxis(full[:, c], 1, 0)[:, missing[:, c]].any()

    def test_images_without_observations_have_likelihood_one(self, name):
        appearance, images, precision = voxels(name, 0, soft=False, missing=1.0)
        assert not LIKELIHOODS[name].log_likelihood(appearance, images, precision).any()

    @given(seed=seeds)
    def test_the_expected_image_has_no_gradient(self, name, seed):
        appearance, _, precision = voxels(name, seed, soft=True, missing=0.0)
        expected = np.asarray(LIKELIHOODS[name].expectation(appearance), np.float32)
        derivatives = LIKELIHOODS[name].derivatives(appearance, expected, precision)
        assert np.abs(derivatives.gradient).max() < 1e-6 * max(1, np.abs(expected).max())

    @given(seed=seeds)
    def test_the_link_is_the_inverse_of_the_expectation(self, name, seed):
        likelihood = LIKELIHOODS[name]
        appearance, *_ = voxels(name, seed, soft=True, missing=0.0)
        expected = likelihood.expectation(appearance)
        again = likelihood.expectation(likelihood.link(expected))
        assert again == pytest.approx(expected, rel=1e-4, abs=1e-6)
        with np.errstate(all="raise"):  # nothing is more certain than certain
            for certain in np.clip([0.0, 1.0], *likelihood.value_range):
                assert np.isfinite(likelihood.link(np.full_like(expected, certain))).all()

    @given(seed=seeds)
    def test_images_do_not_see_each_other(self, name, seed):
        appearance, images, precision = voxels(name, seed, soft=True, missing=0.2)
        together = LIKELIHOODS[name].derivatives(appearance, images, precision)
        for n in range(len(images)):
            some = slice(n, n + 1)
            alone = LIKELIHOODS[name].derivatives(appearance[some], images[some], precision)
            assert np.array_equal(alone.gradient, together.gradient[some])
            assert np.array_equal(alone.hessian, together.hessian[some])

    @given(seed=seeds)
    def test_mean_derivatives_are_sums_over_images(self, name, seed):
        """Without warps, apart from the loading of the start (1e-3, C^2 times that)."""
        generator = np.random.default_rng(seed)
        n_channels, *space = SHAPES[name][1:]
        images = formulas.random_images(name, generator, SHAPES[name], soft=True, missing=0.3)
        mean = generator.standard_normal((n_channels, *space))
        observed = ~np.isnan(images)
        count, total = observed.sum(axis=0).astype(float), np.nansum(images, axis=0, dtype=float)
        likelihood = LIKELIHOODS[name]
        gradient, hessian = likelihood.mean_derivatives(mean, count, total, PRECISION)
        repeated = np.broadcast_to(mean.astype(np.float32), images.shape)
        expected = likelihood.derivatives(np.ascontiguousarray(repeated), images, PRECISION)
        assert relative_error(expected.gradient.sum(axis=0), gradient) < 1e-5
        extra = STARTING_LOADING[name](n_channels) - EXPECTED_LOADING[name](n_channels)
        if name == "poisson":  # where counts exceed their rate by far, H is larger than the rate
            expected.hessian[...] = observed * (np.exp(repeated) + np.float32(1e-6))
        full = formulas.matrices(expected.hessian, n_channels).sum(axis=0)
        for c in range(n_channels):
            full[c, c] += extra * count[c]
        assert relative_error(full, formulas.matrices(hessian[None], n_channels)[0]) < 1e-5

    @given(seed=seeds)
    def test_removing_redundancy_changes_no_image(self, name, seed):
        appearance, _, _ = voxels(name, seed, soft=True, missing=0.0)
        likelihood = LIKELIHOODS[name]
        reduced = likelihood.remove_redundancy(appearance)
        assert np.allclose(
            likelihood.expectation(reduced), likelihood.expectation(appearance), atol=2e-6
        )
        assert np.allclose(likelihood.remove_redundancy(reduced), reduced, atol=1e-6)

    @given(seed=seeds)
    def test_both_float_types_are_taken(self, name, seed):
        appearance, images, precision = voxels(name, seed, soft=True, missing=0.2)
        short = LIKELIHOODS[name].derivatives(appearance, images, precision)
        wide = LIKELIHOODS[name].derivatives(
            appearance.astype(np.float64), images.astype(np.float64), precision
        )
        assert wide.gradient.dtype == wide.hessian.dtype == np.float64
        assert np.allclose(wide.log_likelihood, short.log_likelihood, rtol=2e-6, atol=2e-6)
        for part in ("gradient", "hessian"):
            scale = max(1, np.abs(getattr(wide, part)).max())
            assert np.abs(getattr(wide, part) - getattr(short, part)).max() < 2e-6 * scale

    def test_images_that_are_drawn_have_the_moments_of_the_likelihood(self, name):
        """E[g] = 0, and E[g g'] = H but for its loading, at the appearance they are drawn from."""
        n_images = 20_000
        generator = np.random.default_rng(0)
        n_channels = SHAPES[name][1]
        appearance = generator.uniform(1, 2, (1, n_channels, 2, 3)).astype(np.float32)
        repeated = np.repeat(appearance, n_images, axis=0)
        likelihood = LIKELIHOODS[name]
        expected = likelihood.expectation(repeated)
        precision = np.ones(n_channels) * PRECISION[0]
        images = likelihood.draw(expected, 1 / precision, generator)
        assert images.dtype == np.float32
        assert likelihood.accepts(images.min(), images.max())
        derivatives = likelihood.derivatives(repeated, images, precision)
        gradient = derivatives.gradient.astype(np.float64)
        products = gradient[:, :, None] * gradient[:, None]
        hessian = formulas.matrices(derivatives.hessian[:1], n_channels)[0]
        for c in range(n_channels):
            hessian[c, c] -= EXPECTED_LOADING[name](n_channels)
        for values, truth in ((gradient, 0), (products, hessian)):
            error = np.abs(values.mean(axis=0) - truth)
            is_noise = values.std(axis=0) > 0
            assert (error <= 5 * values.std(axis=0) / n_images**0.5 + 1e-6)[is_noise].all()

    def test_what_it_says_of_itself_is_complete(self, name):
        likelihood = LIKELIHOODS[name]
        assert likelihood.name == name
        assert likelihood.brief
        assert likelihood.description
        assert {key: len(w) for key, w in likelihood.default_penalties.items()} == {
            "shape": 5,
            "appearance": 3,
            "mean": 3,
        }
        lowest, highest = likelihood.value_range
        assert likelihood.accepts(lowest, highest)
        if np.isfinite(lowest):
            assert not likelihood.accepts(lowest - 0.1, highest)
            assert likelihood.accepts(lowest - 0.1, highest, slack=0.2)
            assert likelihood.range_advice

    @pytest.mark.parametrize("size", [30.0, 100.0, 1e4])
    def test_extreme_appearances_stay_finite(self, name, size):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            appearance, images, precision = voxels(name, 1, soft=True, missing=0.2)
            appearance = np.float32(size) * np.sign(appearance)
            derivatives = LIKELIHOODS[name].derivatives(appearance, images, precision)
            expected = LIKELIHOODS[name].expectation(appearance)
        for values in (derivatives.log_likelihood, derivatives.gradient, derivatives.hessian):
            assert np.isfinite(values).all()
        assert np.isfinite(expected).all()


@pytest.mark.parametrize("label", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("value", [-100.0, -41.0, 43.0, 100.0])
def test_certain_binary_voxels_are_clipped_at_40(value, label):
    appearance = np.full((1, 1, 2, 2), value, np.float32)
    images = np.full_like(appearance, label)
    derivatives = LIKELIHOODS["bernoulli"].derivatives(appearance, images, np.ones(1))
    at_40 = formulas.log_likelihood("bernoulli", np.sign(appearance) * 40, images, None)
    assert np.allclose(derivatives.log_likelihood, at_40, rtol=1e-6, atol=1e-15)
    assert np.allclose(derivatives.gradient, (value > 0) - np.float32(label), atol=1e-7)
    assert np.allclose(derivatives.hessian, 1e-8, rtol=1e-5)


@pytest.mark.parametrize("count", [0.0, 3.0, 1e6])
@pytest.mark.parametrize("value", [-100.0, -21.0, 21.0, 100.0])
def test_rates_are_clipped_at_exp_20(value, count):
    appearance = np.full((1, 1, 2, 2), value, np.float32)
    images = np.full_like(appearance, count)
    derivatives = LIKELIHOODS["poisson"].derivatives(appearance, images, np.ones(1))
    at_20 = formulas.log_likelihood("poisson", np.sign(appearance) * 20, images, None)
    rate = np.exp(np.sign(value) * 20)
    assert np.allclose(derivatives.log_likelihood, at_20, rtol=1e-6, atol=1e-7)
    assert np.allclose(derivatives.gradient, rate - count, rtol=1e-6, atol=1e-7)
    assert np.allclose(derivatives.hessian, max(rate, count / 8) + 1e-6, rtol=1e-6)


def test_the_log_of_a_factorial_is_exact_for_whole_and_broken_counts():
    generator = np.random.default_rng(0)
    counts = [*range(60), *(10.0 ** np.arange(2, 10)), *generator.random(300), 0.5, 1e-6]
    for count in np.float32(counts):
        truth = gammaln(np.float64(count) + 1)
        assert log_factorial(count) == pytest.approx(truth, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("rate", [0.0, 0.02, 1.0, 30.0, 4000.0])
def test_the_starting_mean_of_counts_converges_for_any_rate(rate):
    """Eight Gauss-Newton steps from where `starting_mean` departs, voxel by voxel."""
    generator = np.random.default_rng(1)
    contrast = np.exp(generator.uniform(-3, 3, (1, 9, 8)))
    images = generator.poisson(rate * contrast, (40, 1, 9, 8)).astype(np.float64)
    images[:, 0, 0, 0] = np.nan
    count, total = (~np.isnan(images)).sum(axis=0).astype(float), np.nansum(images, axis=0)
    likelihood = LIKELIHOODS["poisson"]
    mean = likelihood.starting_mean(count, total)
    assert np.isfinite(mean).all()
    for _ in range(8):
        gradient, hessian = likelihood.mean_derivatives(mean, count, total, np.ones(1))
        mean = mean - gradient / (hessian + 1e-6)
    found, truth = likelihood.expectation(mean), total / np.maximum(count, 1)
    is_seen = total > 0
    assert np.allclose(found[is_seen], truth[is_seen], rtol=1e-6)
    assert (found[(total == 0) & (count > 0)] < 0.02).all()


def test_certain_and_right_categories_cost_nothing_and_wrong_ones_their_distance():
    appearance = np.zeros((1, 3, 1, 1), np.float32)
    appearance[0, 1] = 100
    right, wrong = np.eye(3, dtype=np.float32)[[1, 0]]
    likelihood = LIKELIHOODS["categorical"]
    values = [
        likelihood.log_likelihood(appearance, image.reshape(1, 3, 1, 1), np.ones(3))[0]
        for image in (right, wrong)
    ]
    assert values == pytest.approx([0.0, -100.0], abs=1e-5)


def test_gaussian_channels_are_missing_on_their_own():
    appearance, images, precision = voxels("gaussian", 0, soft=False, missing=0.0)
    images[:, 0] = np.nan
    both = LIKELIHOODS["gaussian"].derivatives(appearance, images, precision)
    alone = LIKELIHOODS["gaussian"].derivatives(
        np.ascontiguousarray(appearance[:, 1:]), images[:, 1:].copy(), precision[1:]
    )
    assert not both.gradient[:, 0].any()
    assert np.array_equal(both.gradient[:, 1:], alone.gradient)
    assert np.allclose(both.log_likelihood, alone.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize(("grid", "variant"), GOLDEN_VARIANTS)
@pytest.mark.parametrize("name", ["bernoulli", "categorical", "gaussian"])
def test_pushed_derivatives_are_those_of_the_reference(name, grid, variant):
    file = simulated.load("likelihood")
    appearance = file[f"{grid}_{name}_appearance"][None]
    image = file[f"{grid}_{name}_image"][None].copy()
    if "missing" in variant:
        image[:, :, file[f"{grid}_missing_mask"]] = np.nan
    n_channels, *space = appearance.shape[1:]
    settings = simulated.random_settings(
        name,
        space=tuple(space),
        n_channels=n_channels,
        decimation=float(file["factor"]) if "factor" in variant else 1.0,
    )
    parameters = simulated.random_parameters(settings)
    precision = file.get(f"{grid}_{name}_noise_precision", np.ones(n_channels))
    generator = Generator(settings, simulated.replace(parameters, noise_precision=precision))
    displacement = file[f"{grid}_displacement"][None]
    result = generator.derivatives(appearance, displacement, image)
    expected = {
        part: file[f"{grid}_{name}{variant}_{part}"]
        for part in ("log_likelihood", "gradient", "hessian")
    }
    for part, value in expected.items():
        assert relative_error(getattr(result, part)[0], value) < 8e-7
    value = generator.log_likelihood(appearance, displacement, image)[0]
    assert value == pytest.approx(expected["log_likelihood"], rel=1e-6)


@pytest.mark.parametrize("grid", ["grid2d", "grid3d"])
def test_residual_sums_are_those_of_the_reference(grid):
    file = simulated.load("likelihood")
    appearance = file[f"{grid}_gaussian_appearance"][None]
    image = file[f"{grid}_gaussian_image"][None].copy()
    image[:, :, file[f"{grid}_missing_mask"]] = np.nan
    settings = simulated.random_settings("gaussian", space=image.shape[2:], n_channels=3)
    generator = Generator(settings, simulated.random_parameters(settings))
    warped = generator.warp(appearance, file[f"{grid}_displacement"][None])
    squares, observed = LIKELIHOODS["gaussian"].residual_sums(warped, image)
    # The exact sum, in float64, is 8.02e-7 away from the reference's float32 one in 3D.
    assert relative_error(squares[0], file[f"{grid}_gaussian_missing_sum_squares"]) < 8.1e-7
    exact = reference.pull(np.float64(appearance[0]), np.float64(file[f"{grid}_displacement"]))
    residuals = (exact - image[0]).reshape(3, -1)
    assert relative_error(squares[0], np.nansum(residuals**2, axis=1)) < 1e-7
    assert np.array_equal(observed[0], [file[f"{grid}_gaussian_missing_n_observed"]] * 3)
