"""The effective number of voxels: that of noise smoothed by a known kernel, and of a whole fit."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, uniform_filter

from anamorph import ShapeAppearanceModel
from anamorph.fitting.autocorrelation import correlation_sums, independent_share, lags_of

KERNELS = {
    "none": lambda field: field,
    "narrow": lambda field: gaussian_filter(field, 0.7, mode="wrap"),
    "wide": lambda field: gaussian_filter(field, 1.2, mode="wrap"),
    "box": lambda field: uniform_filter(field, 3, mode="wrap"),
    "along one axis": lambda field: gaussian_filter(field, (2.0, *(0,) * (field.ndim - 1))),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
MARGIN = 8


def true_share(kernel, n_dims):
    """Return 1 / sum of squared autocorrelations of white noise after a kernel."""
    point = np.zeros((41,) * n_dims)
    point[(20,) * n_dims] = 1
    power = np.abs(np.fft.fftn(kernel(point))) ** 2
    correlation = np.fft.ifftn(power).real
    return 1 / np.sum((correlation / correlation.flat[0]) ** 2)


def smooth_noise(kernel, n_images, space, seed=0):
    """Return noise of variance 1, (N, *space), that does not wrap around."""
    draws, inner = np.random.default_rng(seed), (slice(MARGIN, -MARGIN),) * len(space)
    larger = tuple(side + 2 * MARGIN for side in space)
    noise = np.stack([kernel(draws.standard_normal(larger))[inner] for _ in range(n_images)])
    return noise / noise.std()


@every_kernel
@pytest.mark.parametrize("space", [(30, 26), (14, 16, 15)])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_effective_number_is_that_of_the_kernel(kernel, space, missing):
    noise = smooth_noise(kernel, 40, space)[:, None]
    is_seen = np.random.default_rng(1).random(noise.shape) >= missing
    is_seen[:, :, : round(4 * missing)] = False  # a part that nobody sees
    sums = correlation_sums(np.where(is_seen, noise, 0).astype(np.float32), is_seen)
    assert all(field.shape == lags_of(space) for field in sums)
    found = independent_share(*sums, 40)
    assert found == pytest.approx(true_share(kernel, len(space)), rel=0.15)


def test_sums_of_parts_are_those_of_the_whole():
    noise = smooth_noise(KERNELS["wide"], 9, (12, 15))[:, None]
    is_seen = np.ones(noise.shape, bool)
    parts = [correlation_sums(noise[some], is_seen[some]) for some in (slice(4), slice(4, None))]
    whole = correlation_sums(noise, is_seen)
    for field in range(2):
        assert np.allclose(parts[0][field] + parts[1][field], whole[field], atol=1e-9)


def test_images_without_residuals_say_nothing():
    nothing = np.zeros((3, 1, 9, 8), np.float32)
    sums = correlation_sums(nothing, np.zeros(nothing.shape, bool))
    assert not sums[0].any()
    assert independent_share(*sums, 3) == 1
    with pytest.raises(ValueError, match="n_images must be an integer >= 2"):
        independent_share(*sums, 1)


@every_kernel
@pytest.mark.parametrize(("space", "latents"), [((40, 36), "joint"), ((16,) * 3, "appearance")])
def test_a_fit_finds_the_effective_number_of_voxels(kernel, space, latents):
    """Two modes and smooth noise: the weight for new images is the share that is independent."""
    draws, n_dims, n_images = np.random.default_rng(2), len(space), 50
    modes = np.stack([gaussian_filter(draws.standard_normal(space), 3) for _ in range(2)])
    modes /= modes.std(axis=tuple(range(1, n_dims + 1)), keepdims=True)
    images = np.tensordot(draws.standard_normal((n_images, 2)), modes, 1)
    images += smooth_noise(kernel, n_images, space)
    images[draws.random(images.shape) < 0.1] = np.nan
    firm = (1e-4, 0.0, 1e-4)
    model = ShapeAppearanceModel(
        2, latents=latents, appearance_penalty=firm, mean_penalty=firm, n_iter=10
    ).fit(images.astype(np.float32))
    expected = true_share(kernel, n_dims)
    assert model.effective_voxels_ == pytest.approx(expected * np.prod(space), rel=0.15)
    assert model.settings_.prediction_weight == pytest.approx(expected, rel=0.15)


def test_a_weight_that_is_given_is_not_estimated():
    images = smooth_noise(KERNELS["box"], 6, (10, 9)).astype(np.float32)
    model = ShapeAppearanceModel(1, n_iter=1, decimation=0.5).fit(images)
    assert model.effective_voxels_ is None
