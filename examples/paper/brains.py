"""Brains: modes, random brains and fits of slices in 2D, and whole brains in 3D.

    python -m examples.paper.brains --data FOLDER

Slices of grey and white matter are fitted with the 100 latents of the paper (section 3.3.1), and
with fewer, whose number is the one that best predicts hidden voxels. Whole brains are fitted with
separate latents (section 3.3.3), and shown by shape alone and by appearance alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from anamorph.compare import hide_boxes, score_hidden
from anamorph.estimator import PARTS, ShapeAppearanceModel
from anamorph.model.presets import preset
from anamorph.plots import plot_fits, plot_modes, plot_samples
from examples.paper.experiment import Experiment, parser
from examples.paper.images import Array, brain_slices, coarser, whole_brains

FACTOR = 2  # slices have voxels of 4 mm; with 1 they have the paper's 2 mm, and take longer


def run(experiment: Experiment, parts: Sequence[str]) -> None:
    """Do some of the parts of the experiment, and write numbers and pictures."""
    if "volumes" in parts:
        fit_volumes(experiment)
    if "slices" in parts:
        images = coarser(brain_slices(experiment), FACTOR)
        chosen = choose_number(experiment, images)
        for number in (chosen, 6 if experiment.is_small else 100):
            fit_slices(experiment, images, number)


# ---- slices


def choose_number(experiment: Experiment, images: Array) -> int:
    """Return the number of latents that predicts hidden voxels best."""
    numbers = (2, 4) if experiment.is_small else (8, 16, 32)
    found = {number: _prediction(experiment, images, number) for number in numbers}
    chosen = max(found, key=lambda number: found[number])
    experiment.publish("number-of-latents", {"log_likelihood": found, "chosen": chosen}, "hidden/")
    return chosen


def _prediction(experiment: Experiment, images: Array, number: int) -> float:
    """Return the mean log-likelihood of hidden voxels, with some number of latents."""
    name = f"hidden/{number}"
    hidden = hide_boxes(images, _slice_model(experiment, number), random_state=experiment.seed)
    model = _fitted(experiment, name, hidden, lambda: _slice_model(experiment, number))
    scores = experiment.arrays(
        f"{name}/scores", lambda: {"log_likelihood": score_hidden(model, hidden)[0]}
    )
    return float(scores["log_likelihood"].mean())


def fit_slices(experiment: Experiment, images: Array, number: int) -> None:
    """Fit all slices with a number of latents; publish how well, and draw what was learnt."""
    name = f"slices-{number}"
    model = _fitted(experiment, name, images, lambda: _slice_model(experiment, number))
    some = images[:: max(1, len(images) // 40)]
    latents = _latents(experiment, name, model, some)
    experiment.publish(name, _quality(model, some, latents), f"{name}/")
    modes = plot_modes(model, range(min(8, number)))
    experiment.draw(f"{name}-modes", cast(Figure, modes), 80, 256)
    samples = plot_samples(model, 8, experiment.seed)
    experiment.draw(f"{name}-samples", cast(Figure, samples), 80, 256)
    # Slices of people stay out of the results: the terms of the data are not ours to widen.
    private = replace(experiment, results=experiment.work / "pictures")
    fits = plot_fits(model, some, latents, range(min(8, len(some))))
    private.draw(f"{name}-fits", cast(Figure, fits), 80, 256)


def _slice_model(experiment: Experiment, number: int) -> ShapeAppearanceModel:
    # Penalties are those of voxels of 2 mm.
    size = {"channel_axis": -1, "voxel_size": (float(FACTOR),) * 2}
    return _model(experiment, preset("brains2d") | size | {"n_components": number})


# ---- whole brains


def fit_volumes(experiment: Experiment) -> None:
    """Fit whole brains with separate latents, and show shape and appearance by themselves."""
    images = whole_brains(experiment)
    # Penalties are those of voxels of 2 mm, and these are of 4 mm.
    arguments = preset("brains3d") | {"channel_axis": -1, "voxel_size": (2.0,) * 3}
    arguments["n_components"] = (1, 2) if experiment.is_small else (4, 8)
    model = _fitted(
        experiment, "volumes", images, lambda: _model(experiment, arguments), keeps_latents=True
    )
    latents = _latents(experiment, "volumes", model, images)  # those of the fit
    experiment.publish("volumes", _quality(model, images, latents), "volumes/")
    fits = plot_fits(model, images, latents, range(4))
    experiment.draw("volumes-fits", cast(Figure, fits), 70, 256)
    first_shape = arguments["n_components"][0]
    modes = plot_modes(model, [0, first_shape], (-3, -1, 1, 3), names=["appearance", "shape"])
    experiment.draw("volumes-modes", cast(Figure, modes), 70, 256)


# ---- both


def _model(experiment: Experiment, arguments: dict[str, Any]) -> ShapeAppearanceModel:
    if experiment.is_small:
        arguments = arguments | {"n_iter": 2}
    return ShapeAppearanceModel(**arguments | experiment.computing)


def _fitted(
    experiment: Experiment,
    name: str,
    images: Any,
    make: Callable[[], ShapeAppearanceModel],
    *,
    keeps_latents: bool = False,
) -> ShapeAppearanceModel:
    """Fit a model once; remember the latents of its images too, which it does not store itself."""

    def fit(checkpoint: Path) -> ShapeAppearanceModel:
        fitted = make().fit(
            images,
            checkpoint=checkpoint,
            callback=lambda progress: experiment.say(f"{name}: {progress}"),
        )
        if keeps_latents:
            experiment.arrays(f"{name}/latents", lambda: {"z": fitted.latents_})
        return fitted

    model = experiment.model(f"{name}/model", fit)
    model.n_threads = experiment.n_threads
    return model


def _latents(
    experiment: Experiment, name: str, model: ShapeAppearanceModel, images: Array
) -> NDArray[np.float64]:
    """Return latents of images: remembered ones, or found under the model."""
    return experiment.arrays(f"{name}/latents", lambda: {"z": model.transform(images)})["z"]


def _quality(
    model: ShapeAppearanceModel, images: Array, latents: NDArray[np.float64]
) -> dict[str, Any]:
    """Return how well a model fits images: agreement and log-likelihood, by what is shown of it."""
    numbers: dict[str, Any] = {
        "n_components": model.n_components,
        "n_images": model.origin_.n_images,
        "n_images_measured": len(images),
        "n_iter": model.n_iter_,
        "seconds_of_iterations": sum(model.origin_.seconds),
    }
    is_brain = images[..., 2] < 0.5
    truth = images.argmax(axis=-1)[is_brain]
    for part in PARTS:
        expected = np.float64(model.inverse_transform(latents, part))
        numbers[part] = {
            "share_of_brain_in_its_class": np.mean(expected.argmax(axis=-1)[is_brain] == truth),
            "log_likelihood_per_image": np.sum(images * np.log(expected)) / len(images),
        }
    return numbers


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment from the command line."""
    options = parser("brains", __doc__)
    both = ("slices", "volumes")
    options.add_argument("--only", nargs="+", choices=both, default=both, help="some of the parts")
    given = options.parse_args(arguments)
    run(Experiment.from_options("brains", given), given.only)


if __name__ == "__main__":
    main(sys.argv[1:])
