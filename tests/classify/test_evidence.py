"""The evidence classifier: one model per class, compared by evidence and prior."""

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from anamorph import EvidenceClassifier, ShapeAppearanceModel
from anamorph.classify import evidence
from anamorph.classify.calibration import Calibration, folds_of
from anamorph.datasets import digits
from anamorph.images.collection import open_images

MODEL = ShapeAppearanceModel(2, likelihood="bernoulli", n_iter=2, n_threads=1)


@pytest.fixture(scope="module")
def small_digits():
    """Return noughts, ones and sevens at half their size, (60, 14, 14), and their labels."""
    images, labels = digits()
    chosen = np.concatenate([np.flatnonzero(labels == k)[:20] for k in (0, 1, 7)])
    chosen = np.random.default_rng(0).permutation(chosen)
    halved = images[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    return halved, np.array(["nought", "one", "", "", "", "", "", "seven"])[labels[chosen]]


@pytest.fixture(scope="module")
def fitted(small_digits):
    images, labels = small_digits
    return EvidenceClassifier(MODEL).fit(images[:40], labels[:40])


def test_it_tells_digits_apart(fitted, small_digits):
    images, labels = small_digits
    assert fitted.score(images[40:], labels[40:]) >= 0.9


def test_probabilities_are_evidence_times_prior(fitted, small_digits):
    images, labels = small_digits
    assert fitted.classes_.tolist() == ["nought", "one", "seven"]
    shares = np.array([np.mean(labels[:40] == label) for label in fitted.classes_])
    found = np.stack([each.log_evidence for each in fitted.encode(images[40:])], axis=1)
    joint = found + np.log(shares)
    assert np.allclose(fitted.joint_log_evidence(images[40:]), joint)
    log_total = np.log(np.exp(joint - joint.max(axis=1, keepdims=True)).sum(axis=1))
    expected = joint - joint.max(axis=1, keepdims=True) - log_total[:, None]
    assert np.allclose(fitted.predict_log_proba(images[40:]), expected)
    assert np.allclose(fitted.predict_proba(images[40:]).sum(axis=1), 1)
    best = fitted.predict_proba(images[40:]).argmax(axis=1)
    assert np.array_equal(fitted.predict(images[40:]), fitted.classes_[best])


def test_doubtful_classes_are_encoded_from_a_second_start(fitted, small_digits, monkeypatch):
    images = small_digits[0][40:]
    once = [model.encode(images, exact_curvature=False) for model in fitted.models_]
    joint = np.stack([each.log_evidence for each in once], axis=1) + fitted.class_log_prior_
    behind = joint.max(axis=1, keepdims=True) - joint
    limit = np.median(np.sort(behind, axis=1)[:, 1])  # half of the images have two classes nearer
    monkeypatch.setattr(evidence, "_DOUBT", limit)
    for k, (again, before) in enumerate(zip(fitted.encode(images), once, strict=True)):
        is_near = (behind[:, k] < limit) & (np.count_nonzero(behind < limit, axis=1) > 1)
        assert is_near.any()
        assert np.array_equal(again.n_shootings > before.n_shootings, is_near)
        assert np.array_equal(again.latents[~is_near], before.latents[~is_near])
        assert (again.log_evidence >= before.log_evidence).all()


def test_each_model_is_that_of_its_class_alone(fitted, small_digits):
    images, labels = small_digits
    alone = clone(MODEL).fit(images[:40][labels[:40] == "one"])
    assert np.allclose(fitted.models_[1].mean_, alone.mean_)
    assert np.allclose(fitted.models_[1].shape_basis_, alone.shape_basis_)


def test_the_given_model_stays_as_it_was(fitted):
    assert not hasattr(fitted.model, "mean_")


@pytest.mark.parametrize(
    ("prior", "expected"), [("uniform", [1 / 3] * 3), ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2])]
)
def test_priors(small_digits, prior, expected):
    images, labels = small_digits
    unfitted = clone(MODEL).set_params(n_iter=0)
    found = EvidenceClassifier(unfitted, class_prior=prior).fit(images, labels)
    assert np.allclose(np.exp(found.class_log_prior_), expected)


def test_models_from_files_make_the_same_classifier(fitted, small_digits, tmp_path):
    images, _ = small_digits
    order = [2, 0, 1]
    for k in order:
        fitted.models_[k].save(tmp_path / f"{k}.safetensors")
    models = [ShapeAppearanceModel.load(tmp_path / f"{k}.safetensors") for k in order]
    found = EvidenceClassifier.from_models(models, fitted.classes_[order])
    assert found.classes_.tolist() == fitted.classes_.tolist()
    expected = fitted.joint_log_evidence(images[40:])
    assert np.allclose(found.joint_log_evidence(images[40:]), expected)
    uniform = EvidenceClassifier.from_models(models, [2, 0, 1], class_prior="uniform")
    assert np.allclose(uniform.class_log_prior_, np.log(1 / 3))


def test_models_that_do_not_go_together(fitted):
    with pytest.raises(ValueError, match="classes must be 3 different labels"):
        EvidenceClassifier.from_models(fitted.models_, ["a", "a", "b"])
    with pytest.raises(ValueError, match="at least 2 classes, got one: all labels are a"):
        EvidenceClassifier.from_models(fitted.models_[:1], ["a"])
    other = clone(MODEL).fit(np.random.default_rng(0).random((5, 8, 8)))
    with pytest.raises(ValueError, match="the images of class b must have the shape"):
        EvidenceClassifier.from_models([fitted.models_[0], other], ["a", "b"])


def test_another_classifier_is_no_model(small_digits):
    """It had no attribute "likelihood", said an AttributeError."""
    with pytest.raises(TypeError, match="must be a ShapeAppearanceModel, got LogisticRegression: "):
        EvidenceClassifier(LogisticRegression()).fit(*small_digits)


def test_what_encoding_costs_is_counted(fitted, small_digits):
    images, _ = small_digits
    encoded = fitted.encode(images[:5])
    assert len(encoded) == 3
    assert all((each.n_shootings >= 2).all() for each in encoded)  # good guesses need no step
    evidence = np.stack([each.log_evidence for each in encoded], axis=1)
    joint = fitted.joint_log_evidence(images[:5])
    assert np.allclose(evidence + fitted.class_log_prior_, joint)


def test_it_clones_and_cross_validates(small_digits):
    images, labels = small_digits
    classifier = EvidenceClassifier(clone(MODEL).set_params(n_iter=1), class_prior="uniform")
    copy = clone(classifier).set_params(model__n_components=3)
    assert copy.get_params()["model__n_components"] == 3
    assert classifier.model.n_components == 2
    scores = cross_val_score(classifier, images, labels, cv=2)
    assert scores.mean() > 0.8


def test_lists_and_files_are_as_good_as_arrays(fitted, small_digits, tmp_path):
    images, labels = small_digits
    paths = [tmp_path / f"{n:02}.png" for n in range(40)]
    for path, image in zip(paths, images[:40], strict=True):
        Image.fromarray(np.uint8(np.round(255 * image))).save(path)
    from_files = EvidenceClassifier(MODEL).fit(paths, labels[:40])
    assert (from_files.predict(paths) == fitted.predict(list(images[:40]))).mean() > 0.95


def test_label_maps_may_lack_a_label_in_one_class():
    generator = np.random.default_rng(0)
    maps = generator.integers(0, 2, (12, 8, 8))
    maps[6:, 2:5, 2:5] = 2
    model = ShapeAppearanceModel(2, likelihood="categorical", n_iter=1, n_threads=1)
    found = EvidenceClassifier(model).fit(maps, np.arange(12) >= 6)
    assert [len(model.mean_) for model in found.models_] == [3, 3]
    assert found.score(maps, np.arange(12) >= 6) == 1


def test_calibration_by_folds_is_learnt_from_images_that_models_have_not_seen(small_digits):
    images, labels = small_digits
    model = clone(MODEL).set_params(n_iter=1)
    found = EvidenceClassifier(model, calibration=2).fit(images, labels)
    numbers = np.unique(labels, return_inverse=True)[1]
    folds = folds_of(numbers, 2)
    joint = np.empty((60, 3))
    for fold in range(2):
        part = EvidenceClassifier(model).fit(images[folds != fold], labels[folds != fold])
        joint[folds == fold] = part.joint_log_evidence(images[folds == fold])
    expected = Calibration.learn(joint, numbers)
    assert found.calibration_.temperature > 1
    assert found.calibration_.temperature == pytest.approx(expected.temperature, rel=1e-3)
    assert np.allclose(found.calibration_.offsets, expected.offsets, atol=1e-3)
    logs = expected.log_probabilities(found.joint_log_evidence(images))
    assert np.allclose(found.predict_log_proba(images), logs, atol=0.05)
    assert np.array_equal(found.predict(images), found.classes_[logs.argmax(axis=1)])


def test_what_cannot_be_calibrated(small_digits):
    images, labels = small_digits
    for folds in (1, 2.5, True, "auto"):
        with pytest.raises(ValueError, match="calibration must be None or an integer >= 2, got"):
            EvidenceClassifier(MODEL, calibration=folds).fit(images, labels)
    few = np.array(["many"] * 56 + ["few"] * 4)
    with pytest.raises(
        ValueError, match=r"calibration=2 fits .* class few has 2 images.*more folds"
    ):
        EvidenceClassifier(MODEL, calibration=2).fit(images, few)


def test_what_cannot_be_classified(small_digits):
    images, labels = small_digits
    with pytest.raises(ValueError, match="at least 2 classes, got one: all labels are one"):
        EvidenceClassifier(MODEL).fit(images[:9], ["one"] * 9)
    few = np.array(["many"] * 57 + ["few"] * 3)
    large = clone(MODEL).set_params(n_components=(2, 2), latents="separate")
    with pytest.raises(ValueError, match=r"class few has 3 images, .* needs at least 5: add"):
        EvidenceClassifier(large).fit(images, few)
    with pytest.raises(ValueError, match=r"y must be 60 labels, .* got \(59,\)"):
        EvidenceClassifier(MODEL).fit(images, labels[:-1])
    for prior in ("equal", [0.5, 0.5], [1.0, 1.0, -1.0], [0.5, 0.5, 0.5]):
        with pytest.raises(ValueError, match="class_prior must be"):
            EvidenceClassifier(MODEL, class_prior=prior).fit(images, labels)
    with pytest.raises(TypeError, match="got an opened collection: give its files"):
        EvidenceClassifier(MODEL).fit(open_images(images, "bernoulli"), labels)
    with pytest.raises(NotFittedError):
        EvidenceClassifier(MODEL).predict(images)
