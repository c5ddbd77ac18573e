"""What scikit-learn expects of an estimator: its own checks, names, seeds, pickles, parameters."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks

from anamorph import ShapeAppearanceModel
from tests.cli.conftest import blobs

#: Checks of scikit-learn that a model of images cannot pass, and why.
CANNOT = {
    "check_estimators_dtypes": "the range of int64 says nothing of what images hold: convert them",
    "check_dtype_object": "images are numbers, and not objects that may be converted to some",
    "check_estimators_empty_data_messages": "wants '0 feature(s)': images have shapes",
    "check_fit2d_1sample": "wants '1 sample': one image is told in words of images",
    "check_fit2d_1feature": "wants '1 feature(s)': such an image is constant, which is told",
    "check_fit2d_predict1d": "wants 'Reshape your data': what shape images have is told",
    "check_n_features_in_after_fitting": "wants 'expecting 4 features': shapes are told",
    "check_methods_subset_invariance": "wants 1e-7 of float32 arithmetic: see the test of company",
    "check_array_api_input": "is skipped by scikit-learn unless SCIPY_ARRAY_API is set",
}


class Rows(ShapeAppearanceModel):
    """The estimator with rows of numbers for images: each row becomes a picture of bars.

    scikit-learn checks estimators with tables (N, F) only, and skips those that say that they take
    something else. This one takes tables, so that all of its checks are made.
    """

    def fit(self, X, y=None, **options):  # noqa: N803
        super().fit(bars(X), y, **options)
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def encode(self, X):  # noqa: N803
        return super().encode(bars(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = False
        return tags


def bars(X):  # noqa: N803
    rows = X if hasattr(X, "toarray") else np.asarray(X)
    if not hasattr(rows, "ndim") or rows.ndim != 2 or hasattr(X, "toarray"):
        return X
    return np.repeat(rows[:, :, None], 4, axis=2)


def model(**changes):
    return ShapeAppearanceModel(2, **{"n_iter": 2, "n_threads": 1} | changes)


def all_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(estimator_checks.estimator_checks_generator(Rows(1, n_iter=1, n_threads=1)))


def name_of(check):
    return getattr(check, "func", check).__name__


CHECKS = all_checks()


def test_checks_that_cannot_pass_are_checks_of_scikit_learn():
    assert len(CHECKS) > 40
    known = {name for name in dir(estimator_checks) if name.startswith("check_")}
    assert set(CANNOT) <= known | {"check_array_api_input"}


@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for pair in CHECKS if name_of(pair[1]) not in CANNOT],
    ids=lambda value: name_of(value) if callable(value) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
def test_the_estimator_itself_passes_as_one_of_images():
    tags = model().__sklearn_tags__().input_tags
    assert (tags.two_d_array, tags.three_d_array, tags.allow_nan) == (False, True, True)
    estimator_checks.check_estimator(model())


def test_latents_do_not_depend_on_the_company_of_an_image():
    images = blobs(12, (10, 8))
    fitted = model().fit(images)
    together = fitted.transform(images)
    alone = np.concatenate([fitted.transform(image[None]) for image in images])
    assert np.abs(alone - together).max() < 1e-5 * np.abs(together).max()


def test_latents_have_the_names_that_tables_give_them():
    fitted = model().fit(blobs(6, (10, 8)))
    assert fitted.get_feature_names_out().tolist() == ["z1", "z2"]
    assert fitted.n_features_in_ == 80
    coloured = model(channel_axis=-1).fit(blobs(6, (10, 8))[..., None].repeat(3, -1))
    assert coloured.n_features_in_ == 240


def test_output_may_be_a_data_frame():
    pandas = pytest.importorskip("pandas")
    fitted = model().set_output(transform="pandas").fit(blobs(6, (10, 8)))
    frame = fitted.transform(blobs(3, (10, 8)))
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["z1", "z2"]


def test_output_has_a_choice():
    fitted = model().set_output(transform="default").fit(blobs(6, (10, 8)))
    assert isinstance(fitted.transform(blobs(3, (10, 8))), np.ndarray)


@pytest.mark.parametrize("source", [np.random.RandomState, np.random.default_rng])
def test_sources_of_random_numbers_are_seeds(source, tmp_path):
    images = blobs(6, (10, 8))
    one, same = (model(random_state=source(3)).fit(images) for _ in range(2))
    other = model(random_state=source(4)).fit(images)
    assert np.array_equal(one.latents_, same.latents_)
    assert not np.array_equal(one.latents_, other.latents_)
    clone(one)
    one.save(tmp_path / "model.safetensors")
    assert ShapeAppearanceModel.load(tmp_path / "model.safetensors").random_state is None


@pytest.mark.parametrize("seed", [-1, 1.5, "a", np.random])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="random_state must be"):
        model(random_state=seed).fit(blobs(6, (10, 8)))


def test_minus_one_means_all_threads():
    fitted = model(n_threads=-1).fit(blobs(6, (10, 8)))
    assert fitted.machine.n_threads is None
    for wrong in (0, -2, True):
        with pytest.raises(ValueError, match="n_threads must be an integer >= 1, or -1 for all"):
            model(n_threads=wrong).fit(blobs(6, (10, 8)))


def test_pickles_do_not_grow_by_use():
    fitted = model().fit(blobs(6, (16, 14)))
    before = len(pickle.dumps(fitted))
    latents = fitted.transform(blobs(6, (16, 14)))
    content = pickle.dumps(fitted)
    assert len(content) == before
    assert np.array_equal(pickle.loads(content).transform(blobs(6, (16, 14))), latents)


@pytest.mark.parametrize(
    ("name", "value"),
    [("decimation", 0.5), ("n_steps", 4), ("n_components", 3), ("shape_penalty", (1.0,) * 5)],
)
def test_parameters_that_a_fit_has_fixed_say_so(name, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model().set_params(**{name: value}).fit(blobs(6, (10, 8)))
        fitted.set_params(**{name: value}, n_threads=1, verbose=False, n_iter=7)  # no change
    with pytest.warns(UserWarning, match=f"{name} cannot change in a fitted model"):
        fitted.set_params(**{name: getattr(model(), name)})


@pytest.mark.parametrize(
    ("images", "words"),
    [(blobs(6, (10, 8)).astype(complex), "Complex data not supported"), ("sparse", "sparse")],
)
def test_complex_and_sparse_input_is_told(images, words):
    if isinstance(images, str):
        import scipy.sparse

        images = scipy.sparse.csr_array(np.eye(6))
    for use in (model().fit, model().fit(blobs(6, (10, 8))).transform):
        with pytest.raises(ValueError, match=words):
            use(images)
