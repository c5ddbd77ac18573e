"""Classifying images by the model that explains them best.

One model is learnt for each class, from its images alone. An image f belongs to class k with
probability P(k | f), proportional to p(f | model k) P(k), where p(f | model k) is the evidence by
Laplace's approximation. On request, a calibration learnt by cross-validation makes it comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.typing import Array, Float64Array, IntArray
from anamorph.classify.calibration import Calibration, folds_of
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.arrays import ImageFormat
from anamorph.images.collection import ImageCollection, open_images
from anamorph.model.checks import checked_components
from anamorph.model.encoding import Encoded

CLASS_PRIORS = ("empirical", "uniform")

_DOUBT = 15.0  # nats behind the best class, within which a second start may change the order


class EvidenceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One shape and appearance model per class, compared by their evidence.

    Parameters
    ----------
    model : ShapeAppearanceModel
        Cloned for every class.
    class_prior : {"empirical", "uniform"} or sequence of float
        Probabilities P(k) of the classes before an image is seen: their shares of the training
        images, all the same, or numbers that sum to 1, in the order of `classes_`.
    calibration : int, optional
        Number of folds, at least 2, by which a temperature and an offset per class are learnt:
        models are fitted to the images outside each fold, and the evidence of those within it
        says how the classes compare. Takes as many fits more. None, the default, compares
        evidence as it is, which is far too sure.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Labels of the classes, sorted.
    models_ : list of ShapeAppearanceModel
        Fitted, one for each of `classes_`.
    class_log_prior_ : array of shape (n_classes,)
        ln P(k).
    calibration_ : Calibration
        Its `temperature` and `offsets`; 1 and 0 without calibration.

    Examples
    --------
    >>> from anamorph import EvidenceClassifier, ShapeAppearanceModel
    >>> model = ShapeAppearanceModel(16, likelihood="bernoulli")
    >>> classifier = EvidenceClassifier(model).fit(digits, labels)  # doctest: +SKIP
    >>> classifier.predict_proba(other_digits)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: ShapeAppearanceModel,
        *,
        class_prior: str | Sequence[float] = "empirical",
        calibration: int | None = None,
    ) -> None:
        self.model = model
        self.class_prior = class_prior
        self.calibration = calibration

    def fit(self, X: ArrayLike | Sequence[Any], y: ArrayLike) -> EvidenceClassifier:  # noqa: N803
        """Learn a model of every class.

        Parameters
        ----------
        X : array of shape (N, *space), or with channels; list of images or of paths
        y : N labels
        """
        if isinstance(X, ImageCollection):
            raise TypeError(
                "X must be an array or a list, got an opened collection: give its files"
            )
        if not isinstance(self.model, ShapeAppearanceModel):  # any classifier is tried here
            raise TypeError(
                f"model must be a ShapeAppearanceModel, got {type(self.model).__name__}: give one "
                "with the settings for every class, e.g. "
                "EvidenceClassifier(ShapeAppearanceModel(16))"
            )
        # All images are opened together first: it shows whether they go together, and how many
        # labels there are in label maps, even where one class lacks some of them.
        images = open_images(
            X, self.model.likelihood, self.model.channel_axis, scale=self.model.scale
        )
        labels = _checked_labels(y, len(images))
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        counts = np.bincount(numbers)
        self._check_counts(counts)
        n_folds = self._checked_folds(counts)
        self.class_log_prior_ = self._log_prior(counts)
        self.calibration_ = Calibration.none(len(counts))
        if n_folds is not None:
            joint = self._joint_out_of_folds(X, numbers, n_folds, images.format)
            self.calibration_ = Calibration.learn(joint, numbers)
        self.models_ = self._fitted_models(X, numbers, images.format)
        return self

    def _fitted_models(
        self, images: ArrayLike | Sequence[Any], numbers: IntArray, image_format: ImageFormat
    ) -> list[ShapeAppearanceModel]:
        """Return a model of each class, fitted to its images alone."""
        model = self.model
        return [
            clone(model).fit(
                open_images(
                    _select(images, np.flatnonzero(numbers == k)),
                    model.likelihood,
                    model.channel_axis,
                    like=image_format,
                )
            )
            for k in range(len(self.classes_))
        ]

    def _joint_out_of_folds(
        self,
        images: ArrayLike | Sequence[Any],
        numbers: IntArray,
        n_folds: int,
        image_format: ImageFormat,
    ) -> Float64Array:
        """Return the joint log evidence (N, n_classes) by models that have not seen the image."""
        folds = folds_of(numbers, n_folds)
        joint = np.empty((len(numbers), len(self.classes_)))
        for fold in range(n_folds):
            others, own = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            models = self._fitted_models(_select(images, others), numbers[others], image_format)
            part = EvidenceClassifier.from_models(
                models, self.classes_, class_prior=np.exp(self.class_log_prior_).tolist()
            )
            joint[own] = part.joint_log_evidence(_select(images, own))
        return joint

    @classmethod
    def from_models(
        cls,
        models: Sequence[ShapeAppearanceModel],
        classes: ArrayLike,
        *,
        class_prior: str | Sequence[float] = "empirical",
    ) -> EvidenceClassifier:
        """Return a classifier of models that were fitted before, e.g. loaded from files.

        Parameters
        ----------
        models : sequence of ShapeAppearanceModel
            Each fitted to the images of one class.
        classes : labels of the classes, one for each model
        class_prior : {"empirical", "uniform"} or sequence of float
            As for the class; numbers are in the order of the sorted labels.
        """
        labels = np.asarray(classes)
        if labels.shape != (len(models),) or len(np.unique(labels)) < len(models):
            raise ValueError(
                f"classes must be {len(models)} different labels, one for each model, got "
                f"{labels.tolist()}"
            )
        order = np.argsort(labels)
        classifier = cls(models[order[0]], class_prior=class_prior)
        classifier.classes_ = labels[order]
        classifier.models_ = [models[k] for k in order]
        expected = classifier.models_[0].image_format_
        for label, model in zip(classifier.classes_, classifier.models_, strict=True):
            model.image_format_.check_like(expected, f"the images of class {label!s}")
        counts = np.array([model.origin_.n_images for model in classifier.models_])
        classifier._check_counts(counts)
        classifier.class_log_prior_ = classifier._log_prior(counts)
        classifier.calibration_ = Calibration.none(len(counts))
        return classifier

    def encode(self, X: ArrayLike | Sequence[Any]) -> list[Encoded]:  # noqa: N803
        """Return what the model of each class makes of images: latents, evidence and cost.

        Where two or more classes are nearly as probable as the best one, their latents are looked
        for from a second start too: the model of another class has to stretch, and then ends in
        a poor optimum more often.

        Curvatures are approximate: exact ones take K shootings more for every class, and decided
        no better (of 10,000 digits 306 were wrong, against 296, with models of 300 digits).
        """
        check_is_fitted(self, "models_")
        images = self.models_[0].checked_images(X)
        encoded = [model.encode(images, exact_curvature=False) for model in self.models_]
        for k, which in enumerate(self._doubtful(encoded)):
            if len(which):
                again = self.models_[k].predictor_.encode(
                    _Some(images, which), second_start=True, exact_curvature=False
                )
                encoded[k] = encoded[k].improved(which, again)
        return encoded

    def _doubtful(self, encoded: Sequence[Encoded]) -> list[IntArray]:
        """Return for each class the images for which it may be the best, as others may."""
        joint = np.stack([each.log_evidence for each in encoded], axis=1) + self.class_log_prior_
        is_near = joint > joint.max(axis=1, keepdims=True) - _DOUBT
        is_near &= np.count_nonzero(is_near, axis=1, keepdims=True) > 1
        return [np.flatnonzero(column) for column in is_near.T]

    def joint_log_evidence(self, X: ArrayLike | Sequence[Any]) -> Float64Array:  # noqa: N803
        """Return ln p(f | model k) + ln P(k) of each image and class, (N, n_classes)."""
        evidence = np.stack([encoded.log_evidence for encoded in self.encode(X)], axis=1)
        return np.asarray(evidence + self.class_log_prior_)

    def predict(self, X: ArrayLike | Sequence[Any]) -> NDArray[Any]:  # noqa: N803
        """Return the most probable label of each image, (N,)."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_log_proba(self, X: ArrayLike | Sequence[Any]) -> Float64Array:  # noqa: N803
        """Return ln P(k | f) of each image and class, (N, n_classes)."""
        joint = self.joint_log_evidence(X)
        return self.calibration_.log_probabilities(joint)

    def predict_proba(self, X: ArrayLike | Sequence[Any]) -> Float64Array:  # noqa: N803
        """Return P(k | f) of each image and class, (N, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def _check_counts(self, counts: IntArray) -> None:
        if len(counts) < 2:
            raise ValueError(
                f"y must have at least 2 classes, got one: all labels are {self.classes_[0]!s}"
            )
        n_components = checked_components(self.model.n_components)
        n_latents = n_components if isinstance(n_components, int) else sum(n_components)
        for label, count in zip(self.classes_, counts, strict=True):
            if count < n_latents + 1:
                raise ValueError(
                    f"class {label!s} has {count} images, and a model with n_components="
                    f"{n_components} needs at least {n_latents + 1}: add images of that class, "
                    "leave it out, or lower n_components"
                )

    def _checked_folds(self, counts: IntArray) -> int | None:
        """Return the number of folds, none without calibration; each has to leave enough images."""
        n_folds = self.calibration
        if n_folds is None:
            return None
        if isinstance(n_folds, bool) or not isinstance(n_folds, Integral) or n_folds < 2:
            raise ValueError(f"calibration must be None or an integer >= 2, got {n_folds!r}")
        try:
            self._check_counts(counts - -(-counts // int(n_folds)))
        except ValueError as error:
            raise ValueError(
                f"calibration={n_folds} fits models without one of {n_folds} parts of the images, "
                f"and then {error}; or give more folds, or none"
            ) from None
        return int(n_folds)

    def _log_prior(self, counts: IntArray) -> Float64Array:
        prior = self.class_prior
        if isinstance(prior, str):
            if prior not in CLASS_PRIORS:
                raise ValueError(
                    f"class_prior must be one of {CLASS_PRIORS} or probabilities, got {prior!r}"
                )
            shares = counts if prior == "empirical" else np.ones(len(counts))
            return np.asarray(np.log(shares / shares.sum()))
        given = np.asarray(prior, np.float64)
        is_distribution = (
            given.shape == counts.shape and (given > 0).all() and np.isclose(given.sum(), 1)
        )
        if not is_distribution:
            raise ValueError(
                f"class_prior must be {len(counts)} positive numbers that sum to 1, one for each "
                f"of the classes, got {prior!r}"
            )
        return np.asarray(np.log(given))


@dataclass(frozen=True)
class _Some:
    """Some images of a collection, by their numbers."""

    images: ImageCollection
    which: IntArray

    def __len__(self) -> int:
        return len(self.which)

    def read(self, part: slice) -> Array:
        """Return images (n, C, *space)."""
        return np.concatenate([self.images.read(slice(n, n + 1)) for n in self.which[part]])


def _checked_labels(y: ArrayLike, n_images: int) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (n_images,):
        raise ValueError(f"y must be {n_images} labels, one for each image, got {labels.shape}")
    check_classification_targets(labels)
    return labels


def _select(images: ArrayLike | Sequence[Any], which: IntArray) -> Any:
    """Return some of the images, in the form in which they were given."""
    if isinstance(images, list | tuple):
        return [images[n] for n in which]
    return np.asarray(images)[which]
