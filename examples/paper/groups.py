"""Who is demented: the paper's "ROC curves from five-fold cross-validation", on slices of OASIS.

A linear Gaussian process tells groups of people apart by the latents of a shape and appearance
model with separate latents: three hyper-parameters weight shape, appearance and a constant. Beside
it, the same classifier has principal components of the images, and smoothed images, as features.

In each of five folds everything, the shape and appearance model too, is learnt from the training
images alone, and the images of one subject are all in one fold.

The data are ``oasis200_slice16_2mm_104x88.npz`` in the data folder (gm, wm, y, subject).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from scipy.stats import rankdata
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from anamorph import ShapeAppearanceModel, preset
from anamorph.classify import GaussianProcessClassifier
from anamorph.datasets.simulated import GREY_MATTER, WHITE_MATTER, brains
from examples.paper.experiment import Experiment, parser
from examples.paper.groups_figure import draw_curves

N_FOLDS = 5
N_COMPONENTS = (15, 35)  # of appearance and of shape: in the proportion of the paper
SMOOTHING = 2.0  # standard deviation in voxels of 2 mm: 9.4 mm full width at half maximum
_SMALL_N_COMPONENTS, _SMALL_N_ITER = (2, 3), 2
_N_RESAMPLED = 2000

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Slices:
    """Slices of people's brains.

    Attributes
    ----------
    tissues : (N, height, width, 3)
        Probabilities of grey matter, white matter and what is neither.
    is_patient : (N,) bool
    subject : (N,) int
        Images of the same number stay in the same fold.
    """

    tissues: NDArray[np.float32]
    is_patient: NDArray[np.bool_]
    subject: NDArray[np.int64]


@dataclass(frozen=True)
class Features:
    """Features (N, D) of all images, and the columns that share a weight."""

    values: Float64Array
    groups: list[slice]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment."""
    experiment = Experiment.from_options("groups", parser("groups", __doc__).parse_args(arguments))
    slices = simulated_slices() if experiment.is_small else load_slices(experiment)
    splits = folds(slices, experiment.seed)
    curves = {}
    for name, features_of in METHODS.items():
        parts = [
            predict(experiment, f"{name}/fold-{k}", features_of, slices, train)
            for k, train in enumerate(splits)
        ]
        probabilities = np.empty(len(slices.subject))
        for part, train in zip(parts, splits, strict=True):
            probabilities[~train] = part["probabilities"]
        numbers = measures(slices.is_patient, probabilities, splits, experiment.seed)
        numbers["variances_of_folds"] = [part["variances"] for part in parts]
        experiment.publish(name, numbers, f"{name}/")
        experiment.say(f"{name}: area {numbers['area']:.3f}, accuracy {numbers['accuracy']:.3f}")
        curves[name] = probabilities
    experiment.draw("curves", draw_curves(slices.is_patient, curves))


# ---- data


def load_slices(experiment: Experiment) -> Slices:
    """Return the 200 slices: half of the people are demented."""
    arrays = experiment.load("oasis200_slice16_2mm_104x88.npz")
    # The numbers of subjects begin again in every class, and no two images look like the same
    # person. Folds go by number all the same, whatever the class: nobody can be split then.
    return Slices(_tissues(arrays["gm"], arrays["wm"], 255), arrays["y"] > 0, arrays["subject"])


def simulated_slices() -> Slices:
    """Return slices through simulated brains, of which the old ones are the patients."""
    labels, ages = brains(30)
    middle = labels[..., labels.shape[-1] // 2]
    tissues = _tissues(middle == GREY_MATTER, middle == WHITE_MATTER, 1)
    return Slices(tissues, ages > np.median(ages), np.arange(len(ages)))


def _tissues(grey: NDArray[Any], white: NDArray[Any], certain: float) -> NDArray[np.float32]:
    """Return probabilities that sum to 1, from maps in which `certain` stands for 1."""
    both = np.stack([grey, white], axis=-1) / np.float32(certain)
    neither = np.clip(1 - both.sum(axis=-1, keepdims=True), 0, 1)
    tissues = np.concatenate([both, neither], axis=-1)
    return np.asarray(tissues / tissues.sum(axis=-1, keepdims=True), np.float32)


def folds(slices: Slices, seed: int) -> list[NDArray[np.bool_]]:
    """Return which images each fold learns from, (N,) bool; it is tested on the others."""
    splitter = StratifiedGroupKFold(N_FOLDS, shuffle=True, random_state=seed)
    splits = []
    for train, _ in splitter.split(slices.is_patient, slices.is_patient, slices.subject):
        learns = np.zeros(len(slices.subject), bool)
        learns[train] = True
        splits.append(learns)
    return splits


# ---- features: learnt from some images, computed for all


def latent_features(
    experiment: Experiment, step: str, slices: Slices, train: NDArray[np.bool_]
) -> Features:
    """Return latents of appearance and of shape.

    Latents of training images are found as those of test images are, by a model that is fixed.
    """
    settings = preset("brains2d") | {"latents": "separate", "channel_axis": -1}
    settings["n_components"] = _n_components(experiment)
    if experiment.is_small:
        settings["n_iter"] = _SMALL_N_ITER

    def fit(checkpoint: Path) -> ShapeAppearanceModel:
        model = ShapeAppearanceModel(**settings, **experiment.computing)
        return model.fit(slices.tissues[train], checkpoint=checkpoint)

    model = experiment.model(f"{step}/model", fit)
    model.set_params(**experiment.computing)
    latents = experiment.arrays(
        f"{step}/latents", lambda: {"latents": model.transform(slices.tissues)}
    )["latents"]
    layout = model.settings_.layout
    return Features(latents, [layout.appearance, layout.shape])


def component_features(
    experiment: Experiment, step: str, slices: Slices, train: NDArray[np.bool_]
) -> Features:
    """Return as many principal components of grey and white matter as there are latents."""
    number = sum(_n_components(experiment))
    voxels = slices.tissues[..., :2].reshape(len(train), -1).astype(np.float64)
    components = PCA(number, svd_solver="full").fit(voxels[train])
    return Features(components.transform(voxels), [slice(0, number)])


def smoothed_features(
    experiment: Experiment, step: str, slices: Slices, train: NDArray[np.bool_]
) -> Features:
    """Return smoothed grey matter and smoothed white matter."""
    width = (0, SMOOTHING, SMOOTHING, 0)
    smoothed = gaussian_filter(slices.tissues[..., :2].astype(np.float64), width)
    voxels = np.moveaxis(smoothed, -1, 1).reshape(len(train), -1)
    middle = voxels.shape[1] // 2
    return Features(voxels, [slice(0, middle), slice(middle, None)])


def _n_components(experiment: Experiment) -> tuple[int, int]:
    return _SMALL_N_COMPONENTS if experiment.is_small else N_COMPONENTS


FeatureMaker = Callable[[Experiment, str, Slices, NDArray[np.bool_]], Features]
METHODS: dict[str, FeatureMaker] = {
    "shape and appearance": latent_features,
    "principal components": component_features,
    "smoothed voxels": smoothed_features,
}


# ---- classifying


def predict(
    experiment: Experiment,
    step: str,
    features_of: FeatureMaker,
    slices: Slices,
    train: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:
    """Return what a fold says of its test images, and what decides.

    Returns
    -------
    dict
        Probabilities that test images are of patients, and for each group of features the variance,
        before labels are seen, that it gives to the latent function: its weight times its size.
    """
    features = features_of(experiment, step, slices, train)

    def compute() -> dict[str, ArrayLike]:
        values = features.values - features.values[train].mean(axis=0)
        classifier = GaussianProcessClassifier(features.groups)
        classifier.fit(values[train], slices.is_patient[train])
        return {
            "probabilities": classifier.predict_proba(values[~train])[:, 1],
            "variances": [
                weight * np.square(values[train][:, columns]).sum(axis=1).mean()
                for weight, columns in zip(classifier.weights_, features.groups, strict=True)
            ],
        }

    return experiment.arrays(f"{step}/predictions", compute)


def measures(
    is_patient: NDArray[np.bool_],
    probabilities: Float64Array,
    splits: Sequence[NDArray[np.bool_]],
    seed: int,
) -> dict[str, Any]:
    """Return the area under the curve and the accuracy, of all images and of each fold."""
    return {
        "n_images": len(is_patient),
        "n_patients": int(is_patient.sum()),
        "area": float(roc_auc_score(is_patient, probabilities)),
        "area_95": resampled_areas(is_patient, probabilities, seed),
        "accuracy": float(np.mean((probabilities > 0.5) == is_patient)),
        "area_of_folds": [
            float(roc_auc_score(is_patient[~train], probabilities[~train])) for train in splits
        ],
    }


def resampled_areas(
    is_patient: NDArray[np.bool_], probabilities: Float64Array, seed: int
) -> list[float]:
    """Return the 95 % interval of the area when patients and others are drawn anew."""
    generator = np.random.default_rng(seed)
    drawn = np.concatenate(
        [
            generator.choice(probabilities[group], (_N_RESAMPLED, group.sum()))
            for group in (is_patient, ~is_patient)
        ],
        axis=1,
    )
    n_patients = int(is_patient.sum())
    ranks = rankdata(drawn, axis=1)[:, :n_patients].sum(axis=1)
    # The area is the share of pairs of a patient and another in which the patient ranks higher.
    n_pairs = n_patients * (len(is_patient) - n_patients)
    areas = (ranks - n_patients * (n_patients + 1) / 2) / n_pairs
    return [float(bound) for bound in np.percentile(areas, [2.5, 97.5])]


if __name__ == "__main__":
    main()
