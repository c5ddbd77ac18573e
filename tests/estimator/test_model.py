"""ShapeAppearanceModel: what is pinned, round trips, and one line for everything that is wrong."""

import inspect
import os
import subprocess
import sys

import nibabel
import numpy as np
import pytest
from safetensors import safe_open
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import anamorph
from anamorph import ShapeAppearanceModel
from tests import simulated
from tests.conftest import relative_error

PINNED = {
    "n_components": 16,
    "likelihood": "gaussian",
    "latents": "joint",
    "shape_penalty": None,  # some default
    "appearance_penalty": None,
    "mean_penalty": None,
    "balance": (1.0, 1.0),
    "prior_dof": None,
    "align": "none",
    "residual": "none",
    "n_iter": 20,
    "levels": 1,
    "tol": None,
    "n_steps": 8,
    "voxel_size": None,
    "channel_axis": None,
    "scale": None,
    "decimation": "auto",
    "intensity": "global",
    "device": "cpu",
    "n_threads": None,
    "memory_budget": None,
    "random_state": None,
    "verbose": False,
}
FITTED = (
    "mean_", "appearance_basis_", "shape_basis_", "latents_", "latent_precision_",
    "prior_precision_", "noise_variance_", "objective_", "n_iter_",
)  # fmt: skip
N = 11
every_likelihood = pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
every_layout = pytest.mark.parametrize("layout", ["joint", "separate", "shape", "appearance"])


def small_images(likelihood="gaussian", n_images=N, missing=0.0, seed=0):
    """Return images as a user has them: channels last, if there are any."""
    *_, images = simulated.random_problem(
        likelihood, n_images=n_images, missing=missing, seed=seed, space=(10, 8)
    )
    return images[:, 0] if likelihood == "bernoulli" else np.moveaxis(images, 1, -1)


def small_model(likelihood="gaussian", **changes):
    channel_axis = None if likelihood == "bernoulli" else -1
    options = {"n_components": 2, "n_iter": 3, "random_state": 0, "channel_axis": channel_axis}
    options |= {"shape_penalty": (0.01, 0.1, 1.0, 0.1, 0.1)}
    return ShapeAppearanceModel(likelihood=likelihood, **{**options, **changes})


@pytest.fixture(scope="module", params=["gaussian", "bernoulli", "categorical"])
def fitted(request):
    """Return images with missing voxels and a model fitted to them."""
    images = small_images(request.param, missing=0.1)
    return images, small_model(request.param).fit(images)


@pytest.fixture(scope="module")
def digits():
    return simulated.load("digits")


# ---- names


def test_constructor_arguments_are_pinned():
    parameters = inspect.signature(ShapeAppearanceModel).parameters
    assert list(parameters) == list(PINNED)
    for name, default in PINNED.items():
        keyword_only = parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert keyword_only == (name != "n_components")
        if default is not None or name in ("prior_dof", "tol", "voxel_size", "random_state"):
            assert parameters[name].default == default


def test_methods_are_pinned():
    def arguments(name):
        return list(inspect.signature(getattr(ShapeAppearanceModel, name)).parameters)

    fitting = ["start", "checkpoint", "callback", "validation"]
    assert arguments("fit") == ["self", "X", "y", *fitting]
    drawing = ["Z", "part", "covariance", "poses", "residuals"]
    assert arguments("inverse_transform") == ["self", *drawing]
    assert arguments("encode") == ["self", "X", "residual", "exact_curvature"]
    assert arguments("impute") == ["self", "X", "return_std"]
    assert arguments("transform") == ["self", "X", "return_cov"]
    assert arguments("sample_posterior")[1:] == ["X", "n_samples", "random_state"]
    assert arguments("sample")[1:] == ["n_samples", "random_state", "noise"]
    assert arguments("score_samples") == ["self", "X"]
    assert arguments("score") == ["self", "X", "y"]
    assert arguments("save") == ["self", "path"]
    assert arguments("load") == ["path"]


def test_fitted_attributes_are_pinned(fitted):
    _, model = fitted
    for name in FITTED:
        assert hasattr(model, name), name
    space, n_channels = (10, 8), simulated.N_CHANNELS[model.likelihood]
    assert model.mean_.shape == (n_channels, *space)
    assert model.appearance_basis_.shape == (2, n_channels, *space)
    assert model.shape_basis_.shape == (2, 2, *space)
    assert model.latents_.shape == (N, 2)
    assert model.latent_precision_.shape == model.prior_precision_.shape == (2, 2)
    assert model.noise_variance_.shape == (n_channels,)
    assert len(model.objective_) == model.n_iter_ == 3


def test_the_package_exports_the_estimator():
    assert "ShapeAppearanceModel" in anamorph.__all__
    assert "ShapeAppearanceModel" in dir(anamorph)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = anamorph.Nothing


# ---- scikit-learn


def test_the_constructor_only_stores():
    penalty = [1, 2, 3]
    model = ShapeAppearanceModel(0, likelihood="nonsense", mean_penalty=penalty)
    assert model.mean_penalty is penalty
    assert model.get_params()["likelihood"] == "nonsense"


def test_clones_are_equal_and_unfitted(fitted):
    _, model = fitted
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not any(hasattr(copy, name) for name in FITTED)


def test_parameters_can_be_set():
    model = ShapeAppearanceModel().set_params(n_components=3, likelihood="bernoulli")
    assert (model.n_components, model.likelihood) == (3, "bernoulli")
    with pytest.raises(ValueError, match="nothing"):
        model.set_params(nothing=1)


def test_fit_returns_the_model_and_fit_transform_its_latents():
    images = small_images()
    model = small_model()
    assert model.fit(images) is model
    assert model.fit_transform(images).shape == (N, 2)


def digit_pipeline():
    model = ShapeAppearanceModel(3, likelihood="bernoulli", n_iter=2, random_state=0)
    return make_pipeline(model, LogisticRegression())


def zeros_and_ones(digits):
    chosen = np.isin(digits["labels"], (0, 1))
    return digits["images"][chosen], digits["labels"][chosen]


def test_a_pipeline_tells_digits_apart(digits):
    images, labels = zeros_and_ones(digits)
    assert digit_pipeline().fit(images, labels).score(images, labels) == 1.0


def test_cross_validation_works(digits):
    images, labels = zeros_and_ones(digits)
    scores = cross_val_score(digit_pipeline(), images, labels, cv=2)
    assert scores.shape == (2,)
    assert scores.mean() > 0.8


def test_grid_search_works(digits):
    images, labels = zeros_and_ones(digits)
    grid = {"shapeappearancemodel__n_components": [1, 2]}
    search = GridSearchCV(digit_pipeline(), grid, cv=2, error_score="raise").fit(images, labels)
    assert search.best_params_.keys() == grid.keys()


def test_grid_search_without_labels_uses_the_evidence():
    search = GridSearchCV(small_model(n_iter=1), {"n_components": [1, 2]}, cv=2)
    assert np.isfinite(search.fit(small_images()).cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    "method", ["transform", "score_samples", "score", "impute", "inverse_transform"]
)
def test_nothing_works_before_a_fit(method):
    with pytest.raises(NotFittedError):
        getattr(small_model(), method)(np.zeros((2, 2)))


# ---- fits


@every_likelihood
def test_fits_are_bit_identical(likelihood):
    images = small_images(likelihood, missing=0.1)
    first, second = (small_model(likelihood).fit(images) for _ in range(2))
    for name in FITTED:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


@every_likelihood
@pytest.mark.parametrize(
    "options",
    [
        {"n_threads": 1},
        {"memory_budget": 10**5},
        pytest.param({"n_threads": 3}, marks=pytest.mark.slow),
        pytest.param({"memory_budget": 1}, marks=pytest.mark.slow),
    ],
)
def test_threads_and_memory_change_next_to_nothing(likelihood, options):
    images = small_images(likelihood, missing=0.1)
    expected = np.array(small_model(likelihood).fit(images).objective_)
    result = np.array(small_model(likelihood, **options).fit(images).objective_)
    assert np.abs(result - expected).max() < 1e-4 * np.ptp(expected)


def test_seeds_matter():
    images = small_images()
    first, second = (small_model(random_state=seed).fit(images) for seed in (0, 1))
    assert not np.allclose(first.latents_, second.latents_)


def test_a_fit_leaves_the_images_as_they_are():
    for likelihood in ("gaussian", "bernoulli", "categorical"):
        images = small_images(likelihood, missing=0.1)
        before = images.copy()
        model = small_model(likelihood).fit(images)
        model.transform(images)
        model.impute(images)
        assert np.array_equal(images, before, equal_nan=True)


def test_given_latents_are_centred_and_whitened():
    images = small_images()
    start = 3 + 2 * np.random.default_rng(0).standard_normal((N, 2))
    model = small_model(n_iter=0).fit(images, start=start)
    assert np.allclose(model.latents_.mean(axis=0), 0, atol=1e-9)
    assert np.allclose(model.latents_.T @ model.latents_, N * np.eye(2), atol=1e-8)
    again = small_model().fit(images, start=start @ np.diag([5.0, 0.1]) - 7)
    assert np.allclose(again.objective_, small_model().fit(images, start=start).objective_, 1e-5)


def test_no_iterations_give_the_mean_and_nothing_else():
    model = small_model(n_iter=0).fit(small_images())
    assert model.n_iter_ == 0
    assert not model.shape_basis_.any()
    assert not model.appearance_basis_.any()


def test_a_tolerance_stops_a_fit_early():
    images = small_images()
    model = small_model(n_iter=60, tol=0.05).fit(images)
    assert 2 <= model.n_iter_ < 60
    rise = np.abs(np.diff(model.objective_))
    assert rise[-1] <= 0.05 * np.ptp(model.objective_)


@every_layout
def test_every_layout_has_its_bases(layout):
    n_components = (2, 1) if layout == "separate" else 2
    model = small_model(latents=layout, n_components=n_components).fit(small_images())
    expected = {
        "joint": (2, 2, 2),
        "separate": (2, 1, 3),
        "shape": (0, 2, 2),
        "appearance": (2, 0, 2),
    }
    n_appearance, n_shape, n_latents = expected[layout]
    assert len(model.appearance_basis_) == n_appearance
    assert len(model.shape_basis_) == n_shape
    assert model.latents_.shape == (N, n_latents)
    assert np.isfinite(model.objective_).all()


def test_the_objective_rises_on_digits(digits):
    model = ShapeAppearanceModel(
        4,
        likelihood="bernoulli",
        n_iter=5,
        shape_penalty=(0.002, 0.02, 2, 0.2, 0.2),
        appearance_penalty=(0.002, 0.2, 0),
        mean_penalty=(1e-7, 1e-5, 0),
        balance=(0.95, 0.05),
        random_state=0,
    ).fit(digits["images"])
    assert (np.diff(model.objective_) > 0).all()
    pixels = digits["images"] / 255
    mean = 1 / (1 + np.exp(-model.mean_[0]))
    rest = np.square(pixels - model.inverse_transform(model.latents_)).sum()
    assert rest < 0.75 * np.square(pixels - mean).sum()


# ---- the same images in different dress


def test_label_maps_and_one_hot_probabilities_fit_alike():
    probabilities = small_images("categorical")
    labels = probabilities.argmax(axis=-1)
    first = small_model("categorical").fit(probabilities)
    second = small_model("categorical", channel_axis=None).fit(labels)
    assert np.array_equal(first.mean_, second.mean_)
    assert first.objective_ == second.objective_
    assert np.array_equal(
        first.inverse_transform(first.latents_), second.inverse_transform(second.latents_)
    )
    assert np.array_equal(first.transform(probabilities), second.transform(labels))


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_bytes_fit_like_fractions(likelihood, digits):
    images = digits["images"][:12]
    options = {"n_components": 2, "n_iter": 2, "likelihood": likelihood, "random_state": 0}
    first = ShapeAppearanceModel(**options).fit(images)
    second = ShapeAppearanceModel(**options).fit(images.astype(np.float32) / np.float32(255))
    assert first.objective_ == second.objective_
    assert np.array_equal(first.mean_, second.mean_)


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -2, -3])
def test_channels_may_be_anywhere(axis):
    images = small_images(missing=0.1)  # channels last
    moved = np.ascontiguousarray(np.moveaxis(images, -1, axis))
    expected = small_model(n_iter=1).fit(images)
    model = small_model(n_iter=1, channel_axis=axis).fit(moved)
    assert model.objective_ == expected.objective_
    rebuilt = model.inverse_transform(model.latents_)
    assert rebuilt.shape == moved.shape
    assert np.array_equal(
        np.moveaxis(rebuilt, axis, -1), expected.inverse_transform(expected.latents_)
    )
    assert model.impute(moved).shape == moved.shape


def test_lists_and_arrays_fit_alike():
    images = small_images()
    expected = small_model(n_iter=1).fit(images)
    model = small_model(n_iter=1).fit(list(images))
    assert model.objective_ == expected.objective_
    assert np.array_equal(model.transform(list(images)), expected.transform(images))


def test_files_and_arrays_fit_alike(tmp_path):
    """From the same latents: random ones depend on the names of files."""
    images = small_images()
    paths = [tmp_path / f"{n:02d}.npy" for n in range(N)]
    for path, image in zip(paths, images, strict=True):
        np.save(path, image)
    start = np.random.default_rng(0).standard_normal((N, 2))
    expected = small_model(n_iter=1).fit(images, start=start)
    for given in (paths, [str(path) for path in paths]):
        model = small_model(n_iter=1).fit(given, start=start)
        assert model.objective_ == expected.objective_
        assert np.array_equal(model.transform(given), expected.transform(images))


def test_voxel_sizes_of_files_reach_the_penalties(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"sub-{n}.nii.gz" for n in range(4)]
    for path in paths:
        nibabel.save(nibabel.Nifti1Image(rng.random((8, 9, 7), "f4"), np.diag([1, 2, 3, 1])), path)
    model = ShapeAppearanceModel(2, n_iter=1).fit(paths)
    assert model.settings_.voxel_size == (1, 2, 3)
    assert model.transform(paths).shape == (4, 2)


# ---- using a model


def test_latents_of_the_training_images_are_found_again(fitted):
    images, model = fitted
    assert model.transform(images).shape == (N, 2)
    # both explain the images, encoding to convergence at least as well as one step per iteration
    generator = model.generator_
    internal = np.moveaxis(images, -1, 1) if model.channel_axis == -1 else images[:, None]

    def value(latents):
        prior = -0.5 * np.einsum("nk,kl,nl->n", latents, model.latent_precision_, latents)
        found = simulated.log_likelihoods(
            generator.settings, generator.parameters, latents, internal
        )
        return (found + prior).sum()

    assert value(model.transform(images)) > value(model.latents_) - 0.01 * abs(
        value(model.latents_)
    )


def test_images_of_the_model_are_encoded_no_worse_than_by_what_made_them(fitted):
    """The mode is not z itself, towards which only the likelihood pulls, but it is no worse."""
    _, model = fitted
    latents = 0.5 * model.latents_[:6]
    made = model.inverse_transform(latents)
    found = model.transform(made)
    generator = model.generator_
    inner = np.moveaxis(made, -1, 1) if model.channel_axis == -1 else made[:, None]

    def values(z):
        prior = -0.5 * np.einsum("nk,kl,nl->n", z, model.prior_precision_, z)
        return prior + simulated.log_likelihoods(
            generator.settings, generator.parameters, z, np.ascontiguousarray(inner)
        )

    # encoding stops where its metric promises less than .006 nats, and .013 were left
    assert (values(found) >= values(latents) - 0.02).all()


def test_the_origin_stands_for_the_mean(fitted):
    _, model = fitted
    image = model.inverse_transform(np.zeros((1, 2)))
    expectation = model.settings_.likelihood.expectation(model.mean_[None])
    inner = np.moveaxis(image, -1, 1) if model.channel_axis == -1 else image[:, None]
    assert np.allclose(inner, expectation, atol=1e-6)


def test_parts_show_shape_or_appearance_alone(fitted):
    _, model = fitted
    origin = model.inverse_transform(np.zeros((N, 2)))
    shape, appearance = (
        model.inverse_transform(model.latents_, part=part) for part in ("shape", "appearance")
    )
    assert not np.allclose(shape, origin)
    assert not np.allclose(appearance, origin)
    settings, parameters = model.settings_, model.generator_.parameters
    unwarped = settings.likelihood.expectation(
        parameters.mean
        + np.tensordot(model.latents_.astype(np.float32), parameters.appearance_basis, axes=1)
    )
    inner = np.moveaxis(appearance, -1, 1) if model.channel_axis == -1 else appearance[:, None]
    assert np.allclose(inner, unwarped, atol=1e-5)


def test_imputation_fills_what_is_missing_and_nothing_else(fitted):
    images, model = fitted
    filled = model.impute(images)
    observed = ~np.isnan(images)
    assert filled.shape == images.shape
    assert np.isfinite(filled).all()
    assert np.allclose(filled[observed], images[observed], atol=1e-6)
    predictor = model.imputer_  # the weight of predictions is not that of `transform`
    posterior = predictor.posterior(model.checked_images(images), exact_curvature=False)
    expected = model.inverse_transform(posterior.latents, covariance=posterior.covariance)
    assert np.allclose(filled[~observed], expected[~observed], atol=1e-5)


def test_imputation_is_better_than_the_mean():
    complete = small_images(n_images=30, seed=4)
    model = small_model(n_iter=10).fit(complete[:24])
    damaged = complete[24:].copy()
    damaged[:, :4] = np.nan
    truth = complete[24:, :4]
    error = np.square(model.impute(damaged)[:, :4] - truth).mean()
    baseline = np.square(complete[:24, :4].mean(axis=0) - truth).mean()
    assert error < 0.8 * baseline


def test_likelihoods_are_highest_where_images_were_encoded(fitted):
    images, model = fitted
    latents = model.transform(images)
    values = model.log_likelihood(images, latents)
    assert values.shape == (len(images),)
    assert (values >= model.log_likelihood(images, np.zeros_like(latents))).all()
    np.testing.assert_allclose(
        model.log_likelihood(model.checked_images(images).subset([2, 0]), latents[[2, 0]]),
        values[[2, 0]],
        rtol=1e-5,
    )
    with pytest.raises(ValueError, match="Z must have a row for each"):
        model.log_likelihood(images, latents[1:])


def test_settings_are_those_of_the_fit(fitted):
    _, model = fitted
    assert model.settings_.space == model.image_format_.space == model.mean_.shape[1:]
    assert model.settings_.likelihood_name == model.likelihood


def test_the_score_is_the_mean_evidence(fitted):
    images, model = fitted
    values = model.score_samples(images)
    assert values.shape == (N,)
    assert model.score(images) == pytest.approx(values.mean())
    assert model.score(images, y=np.zeros(N)) == model.score(images)


def test_images_of_the_kind_learnt_are_more_probable_than_others():
    images = small_images(n_images=30)
    model = small_model(n_iter=8).fit(images[:20])
    shuffled = np.random.default_rng(0).permuted(images[20:].reshape(10, -1), axis=1)
    assert model.score(images[20:]) > model.score(shuffled.reshape(images[20:].shape))


def test_samples_have_the_covariance_of_the_model_and_are_repeatable(fitted):
    _, model = fitted
    images, latents = model.sample(4000, random_state=0)
    assert len(images) == len(latents) == 4000
    expected = np.linalg.inv(model.latent_precision_)
    assert relative_error(np.cov(latents.T), expected) < 0.1
    some, again = model.sample(3, random_state=1), model.sample(3, random_state=1)
    assert np.array_equal(some[0], again[0])
    assert np.allclose(some[0], model.inverse_transform(some[1]), atol=1e-6)
    assert not np.array_equal(some[1], model.sample(3, random_state=2)[1])


# ---- model files


def test_a_loaded_model_gives_identical_numbers(fitted, tmp_path):
    images, model = fitted
    model.save(tmp_path / "model.anamorph")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.anamorph")
    for name in FITTED:
        if name != "latents_":
            assert np.array_equal(getattr(loaded, name), getattr(model, name)), name
    assert np.array_equal(loaded.transform(images), model.transform(images))
    assert np.array_equal(loaded.score_samples(images), model.score_samples(images))
    assert np.array_equal(loaded.impute(images), model.impute(images))
    assert np.array_equal(loaded.sample(2, 0)[0], model.sample(2, 0)[0])
    assert loaded.get_params()["likelihood"] == model.likelihood
    assert clone(loaded).set_params(n_iter=1).fit(images).n_iter_ == 1


def test_model_files_hold_no_latents_and_no_images(fitted, tmp_path):
    _, model = fitted
    path = tmp_path / "model.anamorph"
    model.save(path)
    assert not hasattr(ShapeAppearanceModel.load(path), "latents_")
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        shapes = [file.get_tensor(name).shape for name in names]
    assert names == {
        "mean", "appearance_basis", "shape_basis", "basis_energy", "latent_precision",
        "noise_precision",
    }  # fmt: skip
    assert not any(N in shape for shape in shapes)
    content = path.read_bytes()
    for dtype in (np.float32, np.float64):
        for row in model.latents_.astype(dtype):
            assert row.tobytes() not in content


def test_saving_leaves_one_file(fitted, tmp_path):
    _, model = fitted
    for _ in range(2):
        model.save(tmp_path / "model.anamorph")
    assert os.listdir(tmp_path) == ["model.anamorph"]


def test_a_model_is_loaded_in_another_process(tmp_path):
    images = small_images()
    model = small_model(n_iter=1).fit(images)
    model.save(tmp_path / "model.anamorph")
    np.save(tmp_path / "images.npy", images)
    code = (
        "import sys, numpy as np; from anamorph import ShapeAppearanceModel as M;"
        "np.save(sys.argv[1] + '/z.npy',"
        "M.load(sys.argv[1] + '/model.anamorph').transform(np.load(sys.argv[1] + '/images.npy')))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "z.npy"), model.transform(images))


@pytest.mark.parametrize(
    "options",
    [
        {"latents": "separate", "n_components": (1, 1)},
        {"n_components": np.int64(2), "voxel_size": np.array([1.0, 2.0])},
        {"shape_penalty": [0.01, 0.1, 1, 0.1, 0.1], "balance": [1, 0.5], "tol": 0.1},
    ],
)
def test_all_kinds_of_arguments_survive_a_file(options, tmp_path):
    images = small_images()
    model = small_model(n_iter=1, **options).fit(images)
    model.save(tmp_path / "model")
    loaded = ShapeAppearanceModel.load(tmp_path / "model")
    assert np.array_equal(loaded.transform(images), model.transform(images))


def explained(call, match, exception=ValueError):
    with pytest.raises(exception, match=match) as error:
        call()
    assert "\n" not in str(error.value)


def test_saving_into_a_missing_folder_is_explained(fitted, tmp_path):
    _, model = fitted
    explained(lambda: model.save(tmp_path / "no" / "model"), "does not exist")
    assert os.listdir(tmp_path) == []


def test_files_that_are_no_models_are_explained(fitted, tmp_path):
    _, model = fitted
    path = tmp_path / "model"
    model.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    explained(lambda: ShapeAppearanceModel.load(path), "truncated")
    path.write_bytes(b"hello")
    explained(lambda: ShapeAppearanceModel.load(path), "not a model file")
    path.write_bytes(content.replace(b'\\"version\\": 1', b'\\"version\\": 9'))
    explained(lambda: ShapeAppearanceModel.load(path), "version 9.*upgrade")
    explained(lambda: ShapeAppearanceModel.load(tmp_path / "none"), "does not exist")
    explained(lambda: ShapeAppearanceModel.load(tmp_path), "is a folder")


def test_a_checkpoint_is_no_model(tmp_path):
    small_model(n_iter=1).fit(small_images(), checkpoint=tmp_path / "checkpoint")
    explained(lambda: ShapeAppearanceModel.load(tmp_path / "checkpoint"), "not a model file")


# ---- bad input


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_components": 0}, "n_components must be an integer >= 1, got 0"),
        ({"n_components": -2}, "n_components must be an integer >= 1, got -2"),
        ({"n_components": 2.5}, "n_components must be an integer >= 1, got 2.5"),
        ({"n_components": True}, "n_components must be an integer >= 1, got True"),
        ({"n_components": "2"}, "n_components"),
        ({"n_components": N}, f"at most the number of images less one, got {N} for {N} images"),
        ({"n_components": (1, 1)}, "one integer when latents='joint'"),
        ({"latents": "separate", "n_components": 1}, "an integer >= 2 or a pair .* got 1"),
        ({"latents": "separate", "n_components": (6, 5)}, "at most the number of images less one"),
        ({"latents": "separate", "n_components": (0, 2)}, "n_components must be an integer >= 1"),
        ({"latents": "nonsense"}, "latents must be one of .* got 'nonsense'"),
        ({"likelihood": "student"}, "likelihood must be one of .* got 'student'"),
        ({"device": "tpu"}, "device must be one of .* got 'tpu'"),
        ({"n_iter": -1}, "n_iter must be an integer >= 0, got -1"),
        ({"n_iter": 1.5}, "n_iter must be an integer"),
        ({"n_steps": 0}, "n_steps must be an integer >= 1, got 0"),
        ({"tol": -1.0}, "tol must be a number >= 0"),
        ({"tol": "small"}, "tol must be a number >= 0"),
        ({"balance": (0, 1)}, "balance must be two numbers"),
        ({"balance": (1,)}, "balance must be two numbers"),
        ({"balance": 1.0}, "balance must be two numbers"),
        ({"balance": "ab"}, "balance must be two numbers"),
        ({"prior_dof": 0.5}, "prior_dof"),
        ({"prior_dof": "many"}, "prior_dof"),
        ({"decimation": 0}, "decimation must be a positive number or 'auto', got 0"),
        ({"decimation": "half"}, "decimation must be a positive number or 'auto', got 'half'"),
        ({"voxel_size": (1.0,)}, "voxel_size"),
        ({"voxel_size": (1.0, 0.0)}, "voxel_size"),
        ({"shape_penalty": (1, 1, 1)}, "shape_penalty must hold 5 numbers"),
        ({"appearance_penalty": (1, 1)}, "appearance_penalty must hold 3 numbers"),
        ({"mean_penalty": (1, -1, 1)}, "mean_penalty"),
        (
            {"random_state": -1},
            "random_state must be an integer >= 0, a RandomState or a Generator, got -1",
        ),
        ({"random_state": "a"}, "random_state"),
        ({"n_threads": 0}, "n_threads must be an integer >= 1, or -1 for all, got 0"),
        ({"memory_budget": -5}, "memory_budget"),
        ({"memory_budget": "2GB"}, "memory_budget"),
        ({"channel_axis": 0}, "channel_axis"),
        ({"channel_axis": 9}, "channel_axis"),
        ({"channel_axis": 1.5}, "channel_axis"),
    ],
)
def test_bad_settings_are_explained(options, match):
    model = small_model(**options)
    explained(lambda: model.fit(small_images()), match)
    assert not any(hasattr(model, name) for name in FITTED)


def changed(value, where=(3,)):
    images = small_images()
    images[where] = value
    return images


@pytest.mark.parametrize(
    ("images", "match"),
    [
        ([], "empty"),
        (np.zeros((0, 10, 8, 2)), "empty"),
        (changed(np.nan), "image 3 is all NaN"),
        (changed(0.5), "image 3 is constant"),
        (changed(np.inf, (3, 2, 2)), "image 3 contains infinity"),
        (
            [*small_images()[:4], np.zeros((10, 9, 2), np.float32)],
            "image 0 is 10 x 8 x 2 and image 4",
        ),
        ((1000 * small_images()).astype(np.int32), "holds int32 from -"),
        (small_images()[..., 0, 0], "2 or 3 spatial axes"),
        (small_images()[:2], "at most the number of images less one"),
    ],
)
def test_bad_images_are_explained(images, match):
    model = small_model()
    explained(lambda: model.fit(images), match)
    assert not any(hasattr(model, name) for name in FITTED)


def test_bad_values_for_a_likelihood_are_explained():
    images = 2 * small_images("bernoulli")
    explained(lambda: small_model("bernoulli").fit(images), "values from 0 to 1.*rescale")
    images = 0.5 * small_images("categorical")
    explained(lambda: small_model("categorical").fit(images), "must sum to 1")


@pytest.mark.parametrize(
    ("start", "match"),
    [
        (np.zeros((N, 3)), "start must have shape"),
        (np.full((N, 2), np.nan), "start must be finite"),
        (np.ones((N, 2)), "starting latents must vary"),
        (np.repeat(np.arange(N)[:, None], 2, axis=1), "linearly independent"),
        ([["a", "b"]] * N, "start"),
    ],
)
def test_bad_starts_are_explained(start, match):
    explained(lambda: small_model().fit(small_images(), start=start), match)


def test_images_that_do_not_fit_the_model_are_explained(fitted):
    images, model = fitted
    explained(lambda: model.transform(images[:, :5]), r"shape .*\(10, 8\), got \(5, 8\)")
    if model.channel_axis is not None:
        wider = np.concatenate([images, images[..., :1]], axis=-1)
        explained(lambda: model.transform(wider), "number of channels")
    explained(lambda: model.transform(images[:0]), "empty")
    explained(lambda: model.transform(images[0]), "spatial axes|channel")


def test_one_image_is_enough_for_a_fitted_model(fitted):
    images, model = fitted
    assert model.transform(images[:1]).shape == (1, 2)
    constant = np.zeros_like(images[:1])
    if model.likelihood == "categorical":
        constant[..., 0] = 1
    assert np.isfinite(model.score_samples(constant)).all()


@pytest.mark.parametrize(
    ("latents", "match"),
    [
        (np.zeros((3, 5)), r"Z must have shape \(N, 2\), got \(3, 5\)"),
        (np.zeros(2), "Z must have shape"),
        (np.full((1, 2), np.nan), "Z must be finite"),
        (np.full((1, 2), 1e9), "Z must be within 1000 standard deviations of 0"),
    ],
)
def test_bad_latents_are_explained(fitted, latents, match):
    explained(lambda: fitted[1].inverse_transform(latents), match)


def test_latents_whose_warps_are_lost_are_explained(fitted):
    """Far within 1000 deviations, shooting took voxels 1e24 times as far, and then to NaN."""
    images, model = fitted
    wild = 900 / np.sqrt(np.diag(model.latent_precision_))[None]
    words = "row 1 of the latents is 900 standard deviations from 0, and takes voxels farther"
    latents = np.concatenate([np.zeros_like(wild), wild])
    for ask in (
        lambda: model.inverse_transform(latents),
        lambda: model.inverse_transform(latents, "shape"),
        lambda: model.displacement(latents),
        lambda: model.displacement(latents, inverse=True),
        lambda: model.log_likelihood(images[:2], latents),
        lambda: model.jacobians(latents),
        lambda: model.to_template(images[:2], latents),
        lambda: model.from_template(images[:2], latents),
    ):
        explained(ask, words)
    assert np.isfinite(model.inverse_transform(latents, "appearance")).all()


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_whatever_is_encoded_has_an_image(factor):
    images = small_images()
    model = small_model().fit(images)
    latents = model.transform(factor * images)
    assert np.isfinite(model.inverse_transform(latents)).all()
    assert np.isfinite(model.displacement(latents, inverse=True)).all()


def test_bad_questions_are_explained(fitted):
    _, model = fitted
    explained(lambda: model.inverse_transform(model.latents_, part="all"), "part must be one of")
    explained(lambda: model.sample(0), "n_samples must be an integer >= 1, got 0")
    explained(lambda: model.sample(1.5), "n_samples must be an integer >= 1, got 1.5")


def test_a_failed_fit_leaves_a_fitted_model_as_it_was():
    images = small_images()
    model = small_model().fit(images)
    before = model.transform(images)
    images[0] = np.nan
    with pytest.raises(ValueError, match="all NaN"):
        model.fit(images)
    images[0] = small_images()[0]
    assert np.array_equal(model.transform(images), before)
