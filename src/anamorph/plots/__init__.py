"""Pictures of a model: fits, modes, samples, latents, deformations, comparisons, in matplotlib.

Functions that draw many images take an optional `figure` (or subfigure) and return it; those that
draw one thing take and return `axes`, whose ``.figure`` can be saved. None of them needs a screen
or pyplot:

>>> plot_modes(model).savefig("modes.png")  # doctest: +SKIP

Arguments number modes and latents from 0, as Python does; pictures number them from 1, as tables
do (z1, z2, ...). A volume is shown as three orthogonal slices: `views` chooses them, and
`rendering` their colours.
"""

from anamorph.plots.animation import save_animation
from anamorph.plots.comparison import plot_comparison
from anamorph.plots.deformations import plot_deformation, plot_log_jacobian
from anamorph.plots.images import (
    plot_arithmetic,
    plot_fits,
    plot_imputed,
    plot_modes,
    plot_samples,
)
from anamorph.plots.latents import plot_latent_pairs, plot_latents, plot_objective

__all__ = [
    "plot_arithmetic",
    "plot_comparison",
    "plot_deformation",
    "plot_fits",
    "plot_imputed",
    "plot_latent_pairs",
    "plot_latents",
    "plot_log_jacobian",
    "plot_modes",
    "plot_objective",
    "plot_samples",
    "save_animation",
]
