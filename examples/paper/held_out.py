"""Held-out voxels: which layout of latents predicts best what it has not seen.

    python -m examples.paper.held_out --data FOLDER

A rectangle of a quarter of every image is set to missing, wrapping around at the edges. Models with
joint latents, separate latents, shape alone and appearance alone, all with the same number of
latents, are fitted to what is left, and what they predict in the rectangles is held against the
truth: section 3.3.2 of the paper, on brain slices, hippocampi and faces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from anamorph.compare import Comparison, hide_boxes, layout_models, score_hidden
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images import HiddenImages
from anamorph.model.hyperparameters import LAYOUTS
from anamorph.model.presets import preset
from anamorph.plots import plot_comparison
from anamorph.plots.rendering import HUES
from examples.paper.experiment import Experiment, parser
from examples.paper.images import Array, brain_slices, coarser, faces, hippocampi

N_SLICES = (50, 100, 200)
SCORES = ("log_likelihood", "squared_error", "n_hidden")


@dataclass(frozen=True)
class Case:
    """Images, and the models that are compared on them.

    Attributes
    ----------
    images : (N, *space, C)
    n_components : int or pair of int
        Latents of every layout, or those for appearance and for shape.
    arguments : dict
        Other arguments of `ShapeAppearanceModel`.
    """

    images: Array
    n_components: int | tuple[int, int]
    arguments: dict[str, Any]


def coarse_slices(experiment: Experiment, n_images: int) -> Case:
    """Return the first slices at 4 mm, with the settings of the paper.

    Sizes are in voxels of the paper's images, 2 mm: so penalties mean what they mean there.
    """
    images = coarser(brain_slices(experiment), 2)
    images = images[: n_images * len(images) // max(N_SLICES)]
    arguments = _arguments("brains2d", experiment) | {"voxel_size": (2.0, 2.0)}
    return Case(images, 2 if experiment.is_small else 16, arguments)


def fine_slices(experiment: Experiment) -> Case:
    """Return all slices at 2 mm, with the settings of the paper."""
    number = 4 if experiment.is_small else 32
    return Case(brain_slices(experiment), number, _arguments("brains2d", experiment))


def firmer_fine_slices(experiment: Experiment) -> Case:
    """Return all slices at 2 mm, with twice the paper's penalties, and half its iterations."""
    case = fine_slices(experiment)
    balance = tuple(2 * weight for weight in case.arguments["balance"])
    n_iter = case.arguments["n_iter"] // 2
    return replace(case, arguments=case.arguments | {"balance": balance, "n_iter": n_iter})


def decimated_fine_slices(experiment: Experiment) -> Case:
    """Return all slices at 2 mm, whose voxels together count as much as those at 4 mm."""
    case = fine_slices(experiment)
    return replace(case, arguments=case.arguments | {"decimation": 0.25})


def some_hippocampi(experiment: Experiment) -> Case:
    """Return the first 60 hippocampi at 2 mm, and settings under which fits take minutes."""
    arguments = _arguments("brains3d", experiment) | {"voxel_size": (2.0,) * 3}
    images = hippocampi(experiment)[:60]
    if experiment.is_small:
        return Case(images, 2, arguments)
    return Case(images, 8, arguments | {"n_iter": 5})


def coarse_faces(experiment: Experiment) -> Case:
    """Return faces of 64 x 48, whose pixels are six times as wide as those of the paper."""
    images = faces(experiment).images
    arguments = _arguments("faces", experiment) | {"voxel_size": (6.0, 6.0)}
    arguments |= {"shape_penalty": (1e-3, 0.0, 16.0, 1.0, 1.0)}  # a quarter of the preset's
    if experiment.is_small:
        return Case(images, 2, arguments)
    return Case(coarser(images, 2), 32, arguments | {"n_iter": 8})


CASES: dict[str, Callable[[Experiment], Case]] = {
    **{f"slices-4mm-{n}": partial(coarse_slices, n_images=n) for n in N_SLICES},
    "slices-2mm": fine_slices,
    "slices-2mm-firmer": firmer_fine_slices,
    "slices-2mm-decimated": decimated_fine_slices,
    "hippocampi": some_hippocampi,
    "faces": coarse_faces,
}


def run(experiment: Experiment, names: Sequence[str]) -> None:
    """Compare layouts in some cases, and write numbers and pictures."""
    for name in names:
        compare(experiment, name, CASES[name](experiment))
    by_number = [f"slices-4mm-{n}" for n in N_SLICES]
    if all(name in experiment.published for name in by_number):
        entries = [experiment.published[name] for name in by_number]
        experiment.draw("slices-by-number", plot_by_number(entries))


def compare(experiment: Experiment, name: str, case: Case) -> Comparison:
    """Fit all layouts to the images of a case; publish how they predict what was hidden."""
    models = layout_models(case.n_components, random_state=experiment.seed, **case.arguments)
    hidden = hide_boxes(case.images, models["joint"], random_state=experiment.seed)
    scores = {
        layout: _layout_scores(experiment, f"{name}/{layout}", model, hidden)
        for layout, model in models.items()
    }
    comparison = Comparison(
        LAYOUTS,
        {layout: values["log_likelihood"] for layout, values in scores.items()},
        {layout: values["squared_error"] for layout, values in scores.items()},
        scores["joint"]["n_hidden"],
    )
    numbers = summary(case, comparison)
    if case.arguments["likelihood"] == "gaussian":
        numbers["variance"] = {layout: _variances(values) for layout, values in scores.items()}
    experiment.publish(name, numbers, f"{name}/")
    experiment.draw(name, cast(Figure, plot_comparison(comparison)))
    return comparison


def _layout_scores(
    experiment: Experiment, step: str, model: ShapeAppearanceModel, hidden: HiddenImages
) -> dict[str, NDArray[Any]]:
    """Fit a model to what is not hidden; return its scores by name, and its noise."""

    def fit(checkpoint: Path) -> ShapeAppearanceModel:
        return model.fit(
            hidden,
            checkpoint=checkpoint,
            callback=lambda progress: experiment.say(f"{step}: {progress}"),
        )

    fitted = experiment.model(step, fit)
    fitted.n_threads = experiment.n_threads
    scores = experiment.arrays(
        f"{step}-scores", lambda: dict(zip(SCORES, score_hidden(fitted, hidden), strict=True))
    )
    return scores | {"noise_variance": fitted.noise_variance_}


def summary(case: Case, comparison: Comparison) -> dict[str, Any]:
    """Return means over images, and of differences from joint latents with standard errors."""
    numbers: dict[str, Any] = {
        "n_images": len(case.images),
        "shape": case.images.shape[1:],
        "n_components": case.n_components,
        "n_iter": case.arguments["n_iter"],
        "n_hidden_per_image": int(comparison.n_hidden[0]),
    }
    for name, scores in (
        ("log_likelihood", comparison.log_likelihood),
        ("squared_error", comparison.squared_error),
    ):
        numbers[name] = {
            layout: {"mean": values.mean(), **_difference(values - scores["joint"])}
            for layout, values in scores.items()
        }
    return numbers


def _variances(values: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Return what a model takes for noise, and by how much it errs where it did not look."""
    noise = values["noise_variance"]
    n_hidden = values["n_hidden"].sum() * len(noise)
    return {
        "of_noise": float(noise.mean()),
        "of_hidden_residuals": float(values["squared_error"].sum() / n_hidden),
    }


def _difference(differences: NDArray[np.float64]) -> dict[str, float]:
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return {"less_joint": float(differences.mean()), "standard_error": float(error)}


def plot_by_number(entries: Sequence[dict[str, Any]]) -> Figure:
    """Draw how far each layout is behind joint latents, against the number of images."""
    figure = Figure((5.0, 3.4), layout="constrained")
    axes = figure.subplots()
    numbers = [entry["n_images"] for entry in entries]
    axes.axhline(0, color="black", linewidth=1)
    axes.annotate("joint", (numbers[-1], 0), (0, 3), textcoords="offset points", ha="right")
    for layout, colour in zip(LAYOUTS[1:], (HUES[2], HUES[4], HUES[5]), strict=True):
        scores = [entry["log_likelihood"][layout] for entry in entries]
        axes.errorbar(
            numbers,
            [score["less_joint"] for score in scores],
            [score["standard_error"] for score in scores],
            color=colour,
            marker="o",
            capsize=3,
            label=layout,
        )
    axes.set_xscale("log")
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.minorticks_off()
    axes.set(xlabel="number of images", ylabel="log-likelihood less that of joint\nlatents (nats)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _arguments(name: str, experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the paper, but for what a case says itself."""
    arguments = preset(name) | {"channel_axis": -1} | experiment.computing
    for decided in ("n_components", "latents", "random_state"):
        arguments.pop(decided, None)
    return arguments | ({"n_iter": 2} if experiment.is_small else {})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment from the command line."""
    options = parser("held_out", __doc__)
    options.add_argument(
        "--only", nargs="+", choices=CASES, default=list(CASES), help="some of the cases"
    )
    given = options.parse_args(arguments)
    run(Experiment.from_options("held_out", given), given.only)


if __name__ == "__main__":
    main(sys.argv[1:])
