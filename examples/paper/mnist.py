"""Handwritten digits, classified by evidence: Section "2D experiments with MNIST" of the paper.

A model of each digit is learnt from the first n training images of MNIST. A test digit is said to
be the one whose model has the most evidence, times the share of that digit among the n. Calibrated,
a temperature and an offset per digit are added, which are learnt from the same n images by
cross-validation.

The data are ``mnist.npz`` in the data folder (x_train, y_train, x_test, y_test), or are fetched by
`anamorph.datasets.mnist`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from anamorph import EvidenceClassifier, ShapeAppearanceModel, preset
from anamorph.classify.calibration import Calibration, folds_of
from anamorph.datasets import digits, mnist
from examples.paper.experiment import Experiment, parser
from examples.paper.mnist_figures import BARS, SCATTERING, draw_errors, draw_mistakes

SIZES = (300, 500, 1000, 3000, 5000, 10000, 60000)
_SMALL_SIZES = (60, 100)
_SMALL = {"n_components": 3, "n_iter": 2}
_SMALL_FOLDS = 2
_DIGITS_PER_STEP = {"cpu": 500, "cuda": 10000}


@dataclass(frozen=True)
class Digits:
    """Images (N, 28, 28) and labels (N,), to learn from and to classify."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment."""
    options = parser("mnist", __doc__)
    options.add_argument(
        "--n", type=int, nargs="+", help="how many training images; by default all sizes in turn"
    )
    options.add_argument(
        "--test", type=int, default=10000, help="classify only so many; by default all 10000"
    )
    options.add_argument(
        "--folds",
        type=int,
        help="of the calibration; by default 5, 10 below 1000 images and 2 above 10,000; 0: none",
    )
    given = options.parse_args(arguments)
    experiment = Experiment.from_options("mnist", given)
    data = load_digits(experiment, given.test)
    for n in given.n or (_SMALL_SIZES if experiment.is_small else SIZES):
        if not 0 < n <= len(data.train_images):
            options.error(f"--n must be from 1 to {len(data.train_images)}, got {n}")
        run_size(
            experiment, data, n, n_folds(experiment, n) if given.folds is None else given.folds
        )
        draw_errors(experiment)


def load_digits(experiment: Experiment, n_test: int) -> Digits:
    """Return the data, with the first `n_test` of the test digits."""
    if experiment.is_small:
        images, labels = digits()
        images, labels = images[labels < 3], labels[labels < 3]
        some = slice(100, min(100 + n_test, 110))
        return Digits(images[:100], labels[:100], images[some], labels[some])
    if experiment.data is not None:
        arrays = experiment.load("mnist.npz")
        found = tuple(arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    else:
        found = mnist()
    return Digits(found[0], found[1], found[2][:n_test], found[3][:n_test])


def n_folds(experiment: Experiment, n: int) -> int:
    """Return how many folds calibrate models of n digits: each has to leave enough of them."""
    if experiment.is_small:
        return _SMALL_FOLDS
    if n < 1000:
        return 10
    return 5 if n <= 10000 else 2


def run_size(experiment: Experiment, data: Digits, n: int, folds: int) -> None:
    """Learn from the first n training images, classify, and publish how it went."""
    images, labels = data.train_images[:n], data.train_labels[:n]
    classifier = fit(experiment, images, labels, f"n{n}")
    evidence, n_shootings = classify(experiment, classifier, data.test_images, f"n{n}/test")
    joint = evidence + classifier.class_log_prior_
    predicted = classifier.classes_[joint.argmax(axis=1)]
    numbers = measures(data.test_labels, predicted, n_shootings)
    numbers |= {
        "bar_percent": BARS.get(n),
        "scattering_percent": SCATTERING.get(n),
        "seconds_fit": experiment.provenance(f"n{n}/model-")["seconds"],
        "seconds_classify": experiment.provenance(f"n{n}/test-")["seconds"],
    }
    experiment.say(
        f"n = {n}: {numbers['n_errors']} errors in {numbers['n_test']} digits, "
        f"{numbers['error_percent']:.2f} %; shootings {numbers['shootings_mean']:.1f} on average, "
        f"{numbers['shootings_max']} at most"
    )
    if folds:
        calibration = calibrate(experiment, images, labels, n, folds)
        true = np.searchsorted(classifier.classes_, data.test_labels)
        numbers["calibrated"] = {"n_folds": folds} | calibrated_measures(calibration, joint, true)
        experiment.say(
            f"n = {n}: {numbers['calibrated']['n_errors']} errors with calibration by {folds} folds"
        )
    before = experiment.published.get(str(n), {"n_test": 0})
    if before["n_test"] > numbers["n_test"]:
        experiment.say(f"n = {n}: the result on {before['n_test']} test digits is kept")
        return
    experiment.publish(str(n), numbers, f"n{n}/")
    draw_mistakes(experiment, n, classifier, data.test_images, data.test_labels, predicted)


def fit(
    experiment: Experiment, images: NDArray[np.uint8], labels: NDArray[np.uint8], folder: str
) -> EvidenceClassifier:
    """Return a classifier with a model of each digit, kept in a folder."""
    settings = preset("digits") | (_SMALL if experiment.is_small else {})
    classes = np.unique(labels)

    def model_of(digit: int) -> ShapeAppearanceModel:
        def fit_one(checkpoint: Path) -> ShapeAppearanceModel:
            model = ShapeAppearanceModel(**settings, **experiment.computing)
            return model.fit(images[labels == digit], checkpoint=checkpoint)

        return experiment.model(f"{folder}/model-{digit}", fit_one)

    models = [model_of(digit) for digit in classes]
    for model in models:  # a stored model knows how it was computed, not how it is to be now
        model.set_params(**experiment.computing)
    return EvidenceClassifier.from_models(models, classes)


def classify(
    experiment: Experiment, classifier: EvidenceClassifier, images: NDArray[np.uint8], step: str
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return log evidence and number of shootings of each image and class, (N, n_classes)."""

    def compute(some: slice) -> dict[str, NDArray[Any]]:
        encoded = classifier.encode(images[some])
        return {
            "log_evidence": np.stack([each.log_evidence for each in encoded], axis=1),
            "n_shootings": np.stack([each.n_shootings for each in encoded], axis=1),
        }

    parts, most = [], _DIGITS_PER_STEP[experiment.device]
    for first in range(0, len(images), most):
        some = slice(first, min(first + most, len(images)))
        name = f"{step}-{some.start:05d}-{some.stop:05d}"
        parts.append(experiment.arrays(name, partial(compute, some)))
    return (
        np.concatenate([part["log_evidence"] for part in parts]),
        np.concatenate([part["n_shootings"] for part in parts]),
    )


def calibrate(
    experiment: Experiment,
    images: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    n: int,
    folds: int,
) -> Calibration:
    """Return the calibration of `EvidenceClassifier(calibration=folds)`, in steps that are kept."""
    classes, numbers = np.unique(labels, return_inverse=True)
    fold_of = folds_of(numbers, folds)
    evidence = np.empty((len(images), len(classes)))
    for fold in range(folds):
        folder, is_own = f"n{n}/folds{folds}/{fold}", fold_of == fold
        classifier = fit(experiment, images[~is_own], labels[~is_own], folder)
        evidence[is_own], _ = classify(experiment, classifier, images[is_own], f"{folder}/own")
    log_shares = np.log(np.bincount(numbers) / len(numbers))
    return Calibration.learn(evidence + log_shares, numbers)


def calibrated_measures(
    calibration: Calibration, joint: NDArray[np.float64], numbers: NDArray[np.intp]
) -> dict[str, Any]:
    """Return how many digits are taken for others with a calibration, and how sure it is."""
    logs = calibration.log_probabilities(joint)
    plain = Calibration.none(joint.shape[1]).log_probabilities(joint)
    each = np.arange(len(numbers))
    n_errors = int(np.count_nonzero(logs.argmax(axis=1) != numbers))
    return {
        "n_errors": n_errors,
        "error_percent": 100 * n_errors / len(numbers),
        "log_loss": float(-logs[each, numbers].mean()),
        "log_loss_before": float(-plain[each, numbers].mean()),
        "temperature": calibration.temperature,
        "offsets": calibration.offsets.round(3).tolist(),
    }


def measures(
    labels: NDArray[Any], predicted: NDArray[Any], n_shootings: NDArray[np.intp]
) -> dict[str, Any]:
    """Return how many digits were taken for others, which, and what encoding them cost."""
    wrong = np.flatnonzero(predicted != labels)
    interval = binomtest(len(wrong), len(labels)).proportion_ci(method="wilson")
    return {
        "n_test": len(labels),
        "n_errors": len(wrong),
        "error_percent": 100 * len(wrong) / len(labels),
        "error_percent_95": [100 * interval.low, 100 * interval.high],
        "n_errors_first_500": int(np.sum(wrong < 500)),
        "shootings_mean": float(n_shootings.mean()),
        "shootings_max": int(n_shootings.max()),
        "mistakes": {str(n): f"{labels[n]}→{predicted[n]}" for n in wrong},
    }


if __name__ == "__main__":
    main()
