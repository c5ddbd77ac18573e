"""Figures of the experiment with MNIST: error against number of images, and all mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from numpy.typing import NDArray

from anamorph import EvidenceClassifier
from examples.paper.experiment import Experiment

#: Errors in per cent by number of training images, as published (Bruna and Mallat 2013).
SCATTERING = {300: 4.7, 1000: 2.3, 2000: 1.3, 5000: 1.03, 10000: 0.88, 60000: 0.43}
#: The error in per cent that the paper reports from about 5000 images on.
PLATEAU = 0.85
#: What this implementation is held to, in per cent.
BARS = {300: 5.0, 1000: 2.3, 3000: 1.3, 5000: 1.05, 10000: 0.95}

_ALL_TEST_DIGITS = 10000
_DIGITS_PER_ROW = 32
_TITLE_HEIGHT = 12  # pixels of a digit
_MOST_ENLARGED = 150


def draw_errors(experiment: Experiment) -> None:
    """Draw the error against the number of training images, of all that is published."""
    figure = Figure((6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.hlines(PLATEAU, 5000, 60000, color="black", linestyle=":", label="the paper's plateau")
    axes.plot(
        *zip(*BARS.items(), strict=True),
        color="tab:grey", linestyle="none", marker="_", markersize=14, label="wanted at most",
    )  # fmt: skip
    axes.plot(
        *zip(*SCATTERING.items(), strict=True),
        color="tab:orange", marker="s", label="scattering networks (Bruna and Mallat 2013)",
    )  # fmt: skip
    found = {int(n): entry for n, entry in experiment.published.items()}
    _draw_found(axes, {n: found[n] for n in sorted(found)})
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({*SCATTERING, *found})
    axes.xaxis.set_major_locator(FixedLocator([n for n in ticks if n not in (500, 2000)]))
    axes.xaxis.set_major_formatter(lambda n, _: f"{n:g}" if n < 1e4 else f"{n:.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    percents = [0.5, 1, 2, 5, 10, 20, 50]
    axes.yaxis.set_major_locator(FixedLocator(percents))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{value:g}" for value in percents]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("training images")
    axes.set_ylabel("test error, %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    experiment.draw("errors", figure)


def _draw_found(axes: Any, found: dict[int, Any]) -> None:
    """Draw the errors that were found, hollow and with an interval where digits were left out."""
    errors = {n: entry["error_percent"] for n, entry in found.items()}
    axes.plot(*zip(*errors.items(), strict=True), color="tab:blue", marker="o", label="anamorph")
    for n, entry in found.items():
        if entry["n_test"] < _ALL_TEST_DIGITS:
            axes.plot(n, errors[n], color="tab:blue", marker="o", markerfacecolor="white")
            axes.vlines(n, *entry["error_percent_95"], color="tab:blue", linewidth=1)
    calibrated = {n: entry["calibrated"] for n, entry in found.items() if "calibrated" in entry}
    if calibrated:
        axes.plot(
            list(calibrated), [entry["error_percent"] for entry in calibrated.values()],
            color="tab:blue", marker=".", linestyle="--", label="anamorph, calibrated",
        )  # fmt: skip


def draw_mistakes(
    experiment: Experiment,
    n: int,
    classifier: EvidenceClassifier,
    images: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    predicted: NDArray[np.uint8],
) -> None:
    """Draw all digits that were taken for others, and below each its two fits.

    The first fit is by the model of what the digit is, the second by that of what it was taken for.
    """
    wrong = np.flatnonzero(predicted != labels)
    if not len(wrong):
        return
    observed = images[wrong] / 255
    rows = [
        observed,
        _fits(classifier, observed, labels[wrong]),
        _fits(classifier, observed, predicted[wrong]),
    ]
    columns = np.concatenate(rows, axis=1)  # (n_wrong, 3 * side, side)
    titles = [f"{labels[k]}→{predicted[k]}" for k in wrong]
    experiment.draw(f"mistakes-{n}", _mosaic(columns, titles), dpi=100, n_colours=16)


def _fits(
    classifier: EvidenceClassifier, images: NDArray[np.floating], labels: NDArray[np.uint8]
) -> NDArray[np.floating]:
    """Return what the models of some labels (N,) make of images (N, *space)."""
    fits = np.empty_like(images)
    for k, model in zip(classifier.classes_, classifier.models_, strict=True):
        some = labels == k
        if some.any():
            fits[some] = model.inverse_transform(model.transform(images[some]))
    return fits


def _mosaic(columns: NDArray[np.floating], titles: list[str]) -> Figure:
    """Return a figure of columns of images (N, height, width), many side by side, with titles."""
    number, height, width = columns.shape
    pixels = 2 if number <= _MOST_ENLARGED else 1  # of the screen for one of a digit
    per_row = min(_DIGITS_PER_ROW // pixels, number)
    n_rows = -(-number // per_row)
    cell = np.array([height + _TITLE_HEIGHT, width + 2])
    canvas = np.ones(cell * [n_rows, per_row])
    figure = Figure(tuple(canvas.shape[::-1] * np.array(pixels / 100)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for n, (column, title) in enumerate(zip(columns, titles, strict=True)):
        top, left = cell * divmod(n, per_row)
        canvas[top + _TITLE_HEIGHT : top + cell[0], left + 1 : left + 1 + width] = column
        axes.text(
            left + cell[1] / 2, top + _TITLE_HEIGHT / 2 + 1, title,
            fontsize=6 * pixels, ha="center", va="center",
        )  # fmt: skip
    axes.imshow(canvas, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    return figure
