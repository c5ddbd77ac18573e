"""The influence of an image on the bases, without fitting again, is what fitting again gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, uniform_filter

from anamorph import ShapeAppearanceModel
from anamorph.arrays.devices import Machine
from anamorph.fitting.leave_one_out import (
    WEIGHTS,
    Cohesion,
    best_weight,
    correlation_sums,
    draw_boxes,
    errors_without,
    independent_share,
    lags_of,
)
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.settings import LatentLayout, Settings

SPACE, N_LATENTS, N_IMAGES = (9, 11), 3, 14


def linear_settings():
    return Settings(
        likelihood_name="gaussian",
        layout=LatentLayout.named("appearance", N_LATENTS),
        space=SPACE,
        n_channels=1,
        voxel_size=(1.0, 1.0),
        shape_penalty=(1.0, 0.0, 1.0, 0.0, 0.0),
        appearance_penalty=(1.0, 0.0, 0.0),
        mean_penalty=(1.0, 0.0, 0.0),
        balance=(1.0, 0.0),
        prior_dof=3.0,
        n_steps=1,
        decimation=1.0,
    )


def least_squares(images, latents, precision):
    """Return a model whose mean and bases fit images best, given their latents."""
    design = np.column_stack([np.ones(len(latents)), latents])
    found = np.linalg.lstsq(design, images.reshape(len(images), -1), rcond=None)[0]
    fields = found.reshape(-1, 1, *SPACE).astype(np.float32)
    parameters = Parameters(
        mean=fields[0],
        appearance_basis=fields[1:],
        shape_basis=np.zeros((0, 2, *SPACE), np.float32),
        basis_energy=np.eye(N_LATENTS),
        latent_precision=precision,
        noise_precision=np.array([4.0]),
    )
    return Generator(linear_settings(), parameters)


def test_images_are_predicted_as_by_bases_that_were_fitted_without_them():
    draws = np.random.default_rng(0)
    latents = draws.standard_normal((N_IMAGES, N_LATENTS))
    latents -= latents.mean(axis=0)
    truth = draws.standard_normal((N_LATENTS, *SPACE))
    images = np.tensordot(latents, truth, 1) + draws.standard_normal((N_IMAGES, *SPACE))
    images = images[:, None].astype(np.float32)
    precision = np.diag([1.0, 2.0, 0.5])
    hidden = draw_boxes(list(range(N_IMAGES)), SPACE).mask()
    cohesion = Cohesion(np.linalg.inv(latents.T @ latents), N_IMAGES)
    generator = least_squares(images, latents, precision)
    errors, squares, observed, *_ = errors_without(
        generator, images, latents, None, hidden, cohesion
    )

    expected, residuals = np.zeros(len(WEIGHTS)), 0.0
    for n in range(N_IMAGES):
        others = np.arange(N_IMAGES) != n
        without = least_squares(images[others], latents[others], precision).parameters
        rows = without.appearance_basis.reshape(N_LATENTS, -1).astype(float)
        target = (images[n] - without.mean).ravel().astype(float)
        residuals += np.square(target - latents[n] @ rows).sum()
        seen = ~hidden[n].ravel()
        for place, weight in enumerate(WEIGHTS):
            gram = 4 * weight * rows[:, seen] @ rows[:, seen].T
            found = np.linalg.solve(gram + precision, 4 * weight * rows[:, seen] @ target[seen])
            wrong = target[~seen] - found @ rows[:, ~seen]
            expected[place] += 4 * np.square(wrong).sum()
    assert errors == pytest.approx(expected, rel=1e-4)
    assert squares[0] == pytest.approx(residuals, rel=1e-4)
    assert observed[0] == images.size


def test_missing_voxels_count_for_nothing():
    draws = np.random.default_rng(1)
    latents = draws.standard_normal((N_IMAGES, N_LATENTS))
    images = draws.standard_normal((N_IMAGES, 1, *SPACE)).astype(np.float32)
    generator = least_squares(images, latents, np.eye(N_LATENTS))
    images[:, :, 2] = np.nan
    hidden = draw_boxes(list(range(N_IMAGES)), SPACE).mask()
    cohesion = Cohesion(np.linalg.inv(latents.T @ latents), N_IMAGES)
    errors, squares, observed, *_ = errors_without(
        generator, images, latents, None, hidden, cohesion
    )
    assert np.isfinite(errors).all()
    assert np.isfinite(squares).all()
    assert observed[0] == np.isfinite(images).sum()


def test_boxes_depend_on_the_identity_of_an_image_alone():
    together = draw_boxes([3, "a", 7], SPACE).corners
    apart = np.concatenate([draw_boxes([name], SPACE).corners for name in (3, "a", 7)])
    assert np.array_equal(together, apart)
    assert len(np.unique(draw_boxes(list(range(50)), SPACE).corners, axis=0)) > 10


def test_the_least_sure_of_equally_good_weights_is_chosen():
    errors = np.full(len(WEIGHTS), 2.0)
    assert best_weight(errors) == 1  # nothing to choose by
    errors[3], errors[4], errors[5] = 1.0, 1.01, 1.1
    assert best_weight(errors) == WEIGHTS[4]
    assert best_weight(np.linspace(2, 1, len(WEIGHTS))) == WEIGHTS[-1]


def test_the_weight_that_residuals_say_is_taken_where_predictions_agree():
    errors = np.full(len(WEIGHTS), 2.0)
    errors[2:5] = 1.0
    assert best_weight(errors, 0.2) == 0.2
    assert best_weight(errors, 0.6) == WEIGHTS[4]
    assert best_weight(np.full(len(WEIGHTS), 2.0), 0.3) == 0.3


def smooth(noise):
    """Return fields whose neighbours say nearly the same."""
    for axis in (-1, -2):
        noise = sum(np.roll(noise, shift, axis) for shift in range(-3, 4)) / 7**0.5
    return noise


def weight_of(noise):
    """Return the weight that a fit finds for images of two modes and some noise."""
    draws = np.random.default_rng(2)
    modes = smooth(draws.standard_normal((2, 20, 20)))
    images = np.tensordot(draws.standard_normal((40, 2)), modes, 1) / 4 + noise
    model = ShapeAppearanceModel(
        2, latents="appearance", appearance_penalty=(0.01, 0, 0), n_iter=10
    ).fit(images.astype(np.float32))
    return model.settings_.prediction_weight


def test_smooth_noise_makes_a_model_less_sure_of_new_images():
    noise = np.random.default_rng(5).standard_normal((40, 20, 20))
    assert weight_of(smooth(noise)) < weight_of(noise) <= 1


def test_noise_of_new_images_is_that_of_images_that_were_left_out():
    """With many latents residuals of the fit are too small, and those of new images are not."""
    draws = np.random.default_rng(3)
    modes = 3 * smooth(draws.standard_normal((3, 16, 16)))

    def draw(number):
        noise = 0.5 * draws.standard_normal((number, 16, 16))
        images = np.tensordot(draws.standard_normal((number, 3)), modes, 1) + noise
        return images.astype(np.float32)

    arguments = {"latents": "appearance", "appearance_penalty": (1e-3, 0, 0), "n_iter": 10}
    training, new = draw(30), draw(200)
    honest = ShapeAppearanceModel(12, **arguments).fit(training)
    plain = ShapeAppearanceModel(12, decimation=1, **arguments).fit(training)
    codes = honest.transform(new)
    left = np.square(new - honest.inverse_transform(codes)).mean()
    assert plain.noise_variance_[0] < left / 2
    # Given its latents; new images find others, which leave a little less.
    assert left < honest.noise_variance_[0] < 1.5 * left
    assert honest.score(new) > plain.score(new)


def test_noise_is_at_most_what_the_mean_leaves_however_many_latents_there_are():
    """With nearly as many latents as images, leverage is near 1: noise was three times as large."""
    draws = np.random.default_rng(3)
    modes = 3 * smooth(draws.standard_normal((3, 16, 16)))
    images = np.tensordot(draws.standard_normal((72, 3)), modes, 1)
    images = (images + 0.5 * draws.standard_normal(images.shape)).astype(np.float32)
    training, new = images[:12], images[12:]
    arguments = {"latents": "appearance", "appearance_penalty": (1e-3, 0, 0), "n_iter": 10}
    model = ShapeAppearanceModel(11, **arguments).fit(training)
    left = np.square(new - model.inverse_transform(model.transform(new))).mean()
    assert left < model.noise_variance_[0] < 1.2 * np.square(new - training.mean(axis=0)).mean()


def test_the_machine_of_a_fit_does_not_matter():
    draws = np.random.default_rng(4)
    images = smooth(draws.standard_normal((12, 12, 12))).astype(np.float32)
    weights = {
        ShapeAppearanceModel(2, n_iter=2, memory_budget=budget)
        .fit(images)
        .settings_.prediction_weight
        for budget in (None, 10**6)
    }
    assert len({round(weight, 5) for weight in weights}) == 1
    assert Machine("cpu", None, None).budget > 10**6


def test_a_weight_whose_predictions_are_not_finite_is_never_the_best():
    errors = np.linspace(2.0, 1.0, len(WEIGHTS))
    errors[3:] = np.inf
    assert best_weight(errors) == WEIGHTS[2]
    assert best_weight(errors, expected=WEIGHTS[-1]) == WEIGHTS[2]
    unknown = np.full(len(WEIGHTS), np.inf)
    assert best_weight(unknown) == 1.0
    assert best_weight(unknown, expected=0.25) == 0.25


def test_images_that_cannot_be_predicted_count_as_infinitely_wrong(monkeypatch):
    draws = np.random.default_rng(0)
    latents = draws.standard_normal((N_IMAGES, N_LATENTS))
    images = draws.standard_normal((N_IMAGES, 1, *SPACE)).astype(np.float32)
    generator = least_squares(images, latents, np.eye(N_LATENTS))
    monkeypatch.setattr(
        Generator, "expected_images", lambda _, z: np.full_like(images, np.nan)[: len(z)]
    )
    hidden = np.ones((N_IMAGES, *SPACE), bool)
    cohesion = Cohesion(np.linalg.inv(latents.T @ latents), N_IMAGES)
    errors, *others = errors_without(generator, images, latents, None, hidden, cohesion)
    assert (errors == np.inf).all()
    assert all(np.isfinite(other).all() for other in others)


def test_a_fit_of_which_nothing_can_be_predicted_says_so(caplog, monkeypatch):
    def unpredictable(*arguments):
        errors, *others = errors_without(*arguments)
        return np.full_like(errors, np.inf), *others

    monkeypatch.setattr("anamorph.fitting.cohort.errors_without", unpredictable)
    images = np.random.default_rng(0).random((6, 9, 8)) > 0.5
    model = ShapeAppearanceModel(2, likelihood="bernoulli", n_iter=1).fit(images)
    assert "No image could be predicted from the others" in caplog.text
    assert model.settings_.prediction_weight == 1.0
    assert np.isfinite(model.transform(images)).all()


# ---- how many voxels count

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
