"""Draw docs/digits.png, the picture at the front: fits, what was missing, modes and samples.

python docs/scripts/draw_digits.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.plots import plot_fits, plot_imputed, plot_modes, plot_samples

PICTURE = Path(__file__).parents[1] / "digits.png"
# Chosen to show different digits, not at random.
SHOWN = [300, 301, 302, 303, 304, 306, 313, 316]


def draw(model: ShapeAppearanceModel, images: np.ndarray) -> Figure:
    """Return a figure of four parts."""
    hidden = images / np.float32(255)
    hidden[:, 9:19, 9:19] = np.nan
    figure = Figure((12.5, 5.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.12, 1), wspace=0.02)
    fits, imputed = left.subfigures(2, 1, height_ratios=(3.35, 2.15))
    modes, samples = right.subfigures(2, 1, height_ratios=(3.35, 2.15))
    parts = (
        (fits, "digits the model has not seen, and what it makes of them"),
        (imputed, "a square is hidden, and filled in"),
        (modes, "the first four of 16 modes"),
        (samples, "drawn at random, and their opposites"),
    )
    for part, title in parts:
        part.suptitle(title, fontsize="large")
    plot_fits(model, images, indices=SHOWN, names=[""] * len(images), figure=fits)
    plot_imputed(model, hidden, indices=SHOWN, names=[""] * len(images), figure=imputed)
    plot_modes(model, range(4), (-3, -2, -1, 0, 1, 2, 3), figure=modes)
    plot_samples(model, 8, random_state=1, figure=samples)
    return figure


if __name__ == "__main__":
    images, _ = digits()
    fitted = ShapeAppearanceModel(16, likelihood="bernoulli").fit(images[:300])
    draw(fitted, images).savefig(PICTURE, dpi=110)
