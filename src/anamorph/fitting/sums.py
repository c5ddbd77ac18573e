"""Questions to sites, and sums over images, their answers: all that may leave a site.

`FIELDS` lists, question by question, what an answer holds during a fit, and `ANALYSES` what it
holds afterwards. Everything in them is a sum over images; images and latents have no field.

A question changes latents only if its name says so (`start_latents`, `update_latents`), or if it
carries a `Move`: then the site first takes every z to M z + t, and answers for the latents that
result. This saves a round over all sites wherever latents move between two sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Float64Array

FIELDS: dict[str, tuple[str, ...]] = {
    # How many images observe each voxel, what they observe in sum, its squares per channel.
    "moments": ("count", "total", "squares"),
    # Sums of z and z z'.
    "start_latents": ("latent_sum", "latent_scatter"),
    # Nothing but the move that it carries.
    "transform_latents": (),
    # Nothing: sites shoot all images, so that later questions find the warps.
    "keep_displacements": (),
    # g_k and H_kk per column k of a basis: sums weighted by z (gradient) and z^2 (Hessian),
    # Algorithms 5 and 6.
    "shape_derivatives": ("log_likelihood", "gradient", "hessian"),
    "appearance_derivatives": ("log_likelihood", "gradient", "hessian"),
    "propose_latents": ("log_likelihood",),
    # Sums of z, z z', S_n and ln|H_n|, Algorithm 7; residuals for the noise; images whose z stayed.
    "update_latents": (
        "log_likelihood",
        "latent_sum",
        "latent_scatter",
        "covariance_sum",
        "log_determinant_sum",
        "squares",
        "observed",
        "n_unimproved",
    ),
    # g and H of the mean, Algorithm 2.
    "mean_derivatives": ("log_likelihood", "gradient", "hessian"),
    # Errors in hidden boxes by weight of the likelihood, and residuals, all as if the image had not
    # been learnt from: see `leave_one_out`. How residuals of neighbours correlate, by lag.
    "leave_one_out": (
        "errors_by_weight",
        "squares",
        "observed",
        "correlation",
        "squared_correlation",
    ),
}

#: Questions about poses, of fits whose images have them: see `alignment`.
POSING: dict[str, tuple[str, ...]] = {
    # Number, sum and sum of squares of the voxels at the borders of images, per channel.
    "border_moments": ("count", "total", "squares"),
    # Sum of poses, from centres of mass.
    "start_poses": ("pose_sum",),
    # What "moments" answers, of images that their poses bring onto the template.
    "posed_moments": ("count", "total", "squares"),
    # Sum of poses, compared with a template on a coarse grid.
    "match_poses": ("pose_sum",),
    # After steps on ln p(f, q | z); images whose pose stayed.
    "update_poses": ("log_likelihood", "pose_sum", "squares", "observed", "n_unimproved"),
}

#: Questions about residual warps, of fits whose images have them: see `model.residuals`.
RESIDUALS: dict[str, tuple[str, ...]] = {
    # After steps on ln p(f | z, r) - tau r'Lr/2: r'Lr before and after, tr H (H + tau L)^-1; images
    # whose warps stayed.
    "update_residuals": (
        "log_likelihood",
        "energy_before",
        "energy",
        "determined",
        "squares",
        "observed",
        "n_unimproved",
    ),
}

#: All questions of a fit on one machine.
QUESTIONS = FIELDS | POSING | RESIDUALS

#: Questions that may carry a `Move`.
MOVING = ("transform_latents", "mean_derivatives", "shape_derivatives")

#: Questions of analyses across sites, about the latents of images under a finished model.
ANALYSES: dict[str, tuple[str, ...]] = {
    # By group: how many images, and the weighted sums of 1, z and z z'.
    "statistics": ("group_size", "weight_sum", "latent_sum", "latent_scatter"),
}


@dataclass(frozen=True)
class Move:
    """A move of all latents, z -> M z + t, that a site makes before it answers a question.

    Attributes
    ----------
    matrix : (K, K)
        M.
    shift : (K,)
        t.
    keeps_warps : bool
        Whether bases W M^-1 are published together with the move, and t = 0: then W z stays the
        same, and so does every warp. By default warps change.
    pose : (P,), optional
        A pose that follows every pose R: R -> exp(pose) R. By default poses stay.
    """

    matrix: Float64Array
    shift: Float64Array
    keeps_warps: bool = False
    pose: Float64Array | None = None

    @classmethod
    def by(cls, shift: Float64Array) -> Move:
        """Return the move z -> z + t."""
        return cls(np.eye(len(shift)), shift)

    @classmethod
    def posing(cls, n_latents: int, pose: Float64Array) -> Move:
        """Return the move R -> exp(pose) R, which leaves latents (K of them) as they are."""
        return cls(np.eye(n_latents), np.zeros(n_latents), keeps_warps=True, pose=pose)

    @classmethod
    def turning(cls, transform: Float64Array) -> Move:
        """Return the move z -> T z that bases W T^-1 go along with."""
        return cls(transform, np.zeros(len(transform)), keeps_warps=True)


@dataclass(frozen=True)
class Sums:
    """The answer to a question: named sums over some images.

    Attributes
    ----------
    n_images : int
    fields : dict of float64 arrays
    """

    n_images: int
    fields: dict[str, Float64Array]

    def __add__(self, other: Sums) -> Sums:
        if self.fields.keys() != other.fields.keys():
            raise ValueError(
                f"answers to different questions cannot be added: {sorted(self.fields)} and "
                f"{sorted(other.fields)}"
            )
        return Sums(
            self.n_images + other.n_images,
            {name: np.asarray(self.fields[name] + other.fields[name]) for name in self.fields},
        )

    def __getitem__(self, name: str) -> Float64Array:
        return self.fields[name]

    def in_memory(self) -> Sums:
        """Return the same sums as NumPy arrays, wherever they were added up."""
        return Sums(self.n_images, {name: to_host(field) for name, field in self.fields.items()})

    def scalar(self, name: str) -> float:
        """Return a sum that is one number."""
        return float(self.fields[name])
