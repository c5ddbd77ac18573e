"""Models of every likelihood, small: fitted, used, saved and loaded alike."""

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.geometry import compose, corner_determinants
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.likelihoods import LIKELIHOODS
from anamorph.storage.meshes import Mesh
from tests import simulated

N_IMAGES = 14


@pytest.fixture(scope="module", params=list(LIKELIHOODS))
def fitted(request):
    """Return a model and the images, with channels last, that it was fitted to."""
    *_, images = simulated.random_problem(
        request.param, n_images=N_IMAGES, missing=0.0, space=(10, 8)
    )
    images = np.moveaxis(images, 1, -1)
    model = ShapeAppearanceModel(
        2,
        likelihood=request.param,
        channel_axis=-1,
        n_iter=4,
        shape_penalty=(0.01, 0.1, 1.0, 0.1, 0.1),
        appearance_penalty=(0.1, 0.2, 0.1),
        mean_penalty=(1e-3, 1e-2, 1e-2),
    )
    return model.fit(images), images


def test_the_objective_rises(fitted):
    model, _ = fitted
    assert (np.diff(model.objective_) > 0).all()


def test_encoded_images_are_more_probable_than_the_mean(fitted):
    model, images = fitted
    latents = model.transform(images)
    gain = model.log_likelihood(images, latents) - model.log_likelihood(images, 0 * latents)
    assert (gain >= 0).all()  # the mean itself may be a mode: there all voxels are at kinks
    assert (gain > 0).mean() > 0.9


def test_expected_and_drawn_images_have_values_of_the_likelihood(fitted):
    model, images = fitted
    kind = LIKELIHOODS[model.likelihood]
    expected, latents = model.sample(5, random_state=3)
    drawn, same = model.sample(5, random_state=3, noise=True)
    assert np.array_equal(latents, same)
    assert drawn.shape == expected.shape == (5, *images.shape[1:])
    for values in (expected, drawn):
        assert kind.accepts(values.min(), values.max(), slack=1e-6)
    assert not np.array_equal(expected, drawn)
    if kind.holds_classes:
        assert np.array_equal(drawn.sum(axis=-1), np.ones((5, 10, 8)))
    drawn_again, _ = model.sample(5, random_state=3, noise=True)
    assert np.array_equal(drawn, drawn_again)


def test_missing_voxels_are_filled_with_what_is_expected_there(fitted):
    model, images = fitted
    holes = images.copy()
    holes[:, 2:5, 3:6] = np.nan
    filled = model.impute(holes)
    observed = ~np.isnan(holes)
    assert np.array_equal(filled[observed], holes[observed])
    # Posterior means, about what the most probable latents give.
    expected = model.inverse_transform(model.transform(holes))[~observed]
    mean_error = np.abs(model.inverse_transform(np.zeros((1, 2)))[0] - images)[~observed]
    assert np.abs(filled[~observed] - expected).mean() < 0.5 * mean_error.mean()


def test_a_saved_model_is_the_same(fitted, tmp_path):
    model, images = fitted
    model.save(tmp_path / "model.safetensors")
    again = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.score_samples(images), model.score_samples(images))


# ---- counts are what they are, in arrays and in files of any type


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(5.0, (6, 9, 8))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int64", "float32"])
def test_counts_in_arrays_are_not_scaled(counts, dtype):
    objectives = [
        ShapeAppearanceModel(1, likelihood="poisson", n_iter=1).fit(images).objective_
        for images in (counts.astype(dtype), counts.astype(np.float64))
    ]
    assert objectives[0] == objectives[1]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32"])
def test_counts_in_arrays_on_disk_are_not_scaled(counts, dtype, tmp_path):
    for n, image in enumerate(counts):
        np.save(tmp_path / f"{n}.npy", image.astype(dtype))
    images = FileImages(sorted(tmp_path.glob("*.npy")), "poisson")
    images.check(for_fit=True)
    assert np.array_equal(images.read(slice(None))[:, 0], counts)


def test_cached_counts_are_not_taken_for_intensities_later(counts, tmp_path):
    for n, image in enumerate(counts):
        np.savez_compressed(tmp_path / f"{n}.npz", image.astype(np.int32))
    files = sorted(tmp_path.glob("*.npz"))
    images = FileImages(files, "poisson", cache=tmp_path / "cache")
    assert np.array_equal(images.read(slice(None))[:, 0], counts)
    with pytest.raises(ImageError, match="look like labels"):
        FileImages(files, "gaussian", cache=tmp_path / "cache").read(slice(None))


@pytest.mark.parametrize("mode", ["uint8", "uint16"])
def test_counts_in_pictures_are_not_scaled(counts, mode, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for n, image in enumerate(counts):
        pillow.fromarray(image.astype(mode)).save(tmp_path / f"{n}.png")
    images = FileImages(sorted(tmp_path.glob("*.png")), "poisson")
    assert np.array_equal(images.read(slice(None))[:, 0], counts)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_counts_in_volumes_are_not_scaled(counts, dtype, tmp_path):
    nibabel = pytest.importorskip("nibabel")
    for n, image in enumerate(counts):
        volume = nibabel.Nifti1Image(image[..., None].astype(dtype), np.eye(4))
        nibabel.save(volume, tmp_path / f"{n}.nii.gz")
    images = FileImages(sorted(tmp_path.glob("*.nii.gz")), "poisson")
    assert np.array_equal(images.read(slice(None))[:, 0], counts)


def test_negative_counts_are_refused(counts, tmp_path):
    words = "values of 0 or more.*set negative ones to 0 or NaN, or fit with likelihood='gaussian'"
    with pytest.raises(ImageError, match=f"poisson images must have {words}"):
        ShapeAppearanceModel(1, likelihood="poisson").fit(counts - 3.0)
    for n, image in enumerate(counts):
        np.save(tmp_path / f"{n}.npy", (image - 3).astype(np.float32))
    with pytest.raises(ImageError, match=f"poisson images have {words}"):
        FileImages(sorted(tmp_path.glob("*.npy")), "poisson").check(for_fit=True)


def test_counts_beyond_all_rates_are_refused(counts, tmp_path):
    """Their latents would be 0 and their evidence NaN, without a word."""
    model = ShapeAppearanceModel(1, likelihood="poisson", n_iter=1).fit(counts)
    for factor in (1e9, 1e12, 1e20, 1e37):
        with pytest.raises(ImageError, match=r"up to 4\.8e8: divide larger ones by a number"):
            model.encode(counts * factor)
    np.save(tmp_path / "counts.npy", (counts[0] * 1e12).astype(np.float32))
    with pytest.raises(ImageError, match=r"up to 4\.8e8"):
        model.transform([tmp_path / "counts.npy"])
    encoded = model.encode(counts * (4.8e8 / counts.max()))
    assert np.isfinite(encoded.log_evidence).all()
    assert encoded.latents.any()


@pytest.mark.parametrize("most", [3.0, 300.0, 30_000.0])
def test_steps_that_overshoot_are_held_back_for_counts_of_any_size(most):
    """From rates of 0.01 to some thousands: the objective rises, and nothing blows up."""
    generator = np.random.default_rng(0)
    x, y = np.indices((14, 12)) - 6
    centres = generator.normal(0, 2, (2, 16, 1, 1))
    rates = 0.01 + most * np.exp(-((x - centres[0]) ** 2 + (y - centres[1]) ** 2) / 6)
    model = ShapeAppearanceModel(3, likelihood="poisson", n_iter=6)
    model.fit(generator.poisson(rates))
    assert (np.diff(model.objective_) > 0).all()
    expected = model.inverse_transform(model.latents_)
    mean = rates.mean(axis=0)
    assert np.mean((expected**0.5 - rates**0.5) ** 2) < np.mean((mean**0.5 - rates**0.5) ** 2)


def test_an_empty_field_of_counts_is_an_image_like_any_other():
    counts = np.random.default_rng(0).poisson(3, (8, 6, 5))
    counts[2] = 0
    model = ShapeAppearanceModel(1, likelihood="poisson", n_iter=1).fit(counts)
    assert np.isfinite(model.objective_).all()
    with pytest.raises(ImageError, match=r"image 2 is constant \(0"):
        ShapeAppearanceModel(1, n_iter=1).fit(counts.astype(float))


def test_warps_invert(fitted):
    """Of fitted images, and of latents that the model thinks likely: README's promise."""
    model, _ = fitted
    drawn = model.sample(20, random_state=1)[1]
    latents = np.concatenate([model.latents_, 2 * drawn])
    forward = model.displacement(latents)
    back = model.displacement(latents, inverse=True)
    assert np.abs(forward).max() > 0.2
    assert corner_determinants(forward).min() > 0
    assert np.abs(compose(forward, back)).max() < 2e-3
    # The inverse itself is interpolated here, which is exact only where it is linear: by how much
    # it is not tell its second differences.
    bends = sum(np.abs(np.diff(back, 2, axis)).max(axis=(1, 2, 3)) for axis in (-2, -1))
    assert (np.abs(compose(back, forward)).max(axis=(1, 2, 3)) < np.maximum(bends / 2, 2e-3)).all()
    points = Mesh(np.random.default_rng(0).uniform(0, 8, (30, 3)))
    for there, then in (
        (model.to_template, model.from_template),
        (model.from_template, model.to_template),
    ):
        for z in latents[::7]:
            (returned,) = then(there(points, z), z)
            assert np.abs(returned.points - points.points).max() < 1e-4
