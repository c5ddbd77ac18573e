"""The latent variables z: the posterior of their precision A, their prior and their axes.

Plain K x K algebra in float64 on sums over images. Nothing here sees an image.
"""

from anamorph.latents.matrices import NotPositiveDefiniteError, log_determinant
from anamorph.latents.orthogonalise import orthogonalising_transform
from anamorph.latents.prior import (
    draw_latents,
    mode_standard_deviations,
    prior_precision,
    ridge_weights,
    starting_latents,
    whitening,
)
from anamorph.latents.wishart import (
    WishartPosterior,
    check_prior_dof,
    expected_precision,
    wishart_part,
)

__all__ = [
    "NotPositiveDefiniteError",
    "WishartPosterior",
    "check_prior_dof",
    "draw_latents",
    "expected_precision",
    "log_determinant",
    "mode_standard_deviations",
    "orthogonalising_transform",
    "prior_precision",
    "ridge_weights",
    "starting_latents",
    "whitening",
    "wishart_part",
]
