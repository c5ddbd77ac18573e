"""Sums over images: all that may leave a site.

`FIELDS` lists, question by question, what an answer holds during a fit, and `ANALYSES` what it
holds afterwards. Everything in them is a sum over images; images and latents have no field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import to_host

FIELDS: dict[str, tuple[str, ...]] = {
    # How many images observe each voxel, what they observe in sum, its squares per channel.
    "moments": ("count", "total", "squares"),
    # Sums of z and z z'.
    "start_latents": ("latent_sum", "latent_scatter"),
    "transform_latents": (),
    "keep_displacements": (),
    # Derivatives per column of a basis, weighted by z (gradient) and z^2 (Hessian).
    "shape_derivatives": ("log_likelihood", "gradient", "hessian"),
    "appearance_derivatives": ("log_likelihood", "gradient", "hessian"),
    "propose_latents": ("log_likelihood",),
    # Sums of z, z z', S_n and ln|H_n|; residuals for the noise; images whose z stayed.
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
    "mean_derivatives": ("log_likelihood", "gradient", "hessian"),
}

#: Questions of analyses across sites, about the latents of images under a finished model.
ANALYSES: dict[str, tuple[str, ...]] = {
    # By group: how many images, and the weighted sums of 1, z and z z'.
    "statistics": ("group_size", "weight_sum", "latent_sum", "latent_scatter"),
}


@dataclass(frozen=True)
class Sums:
    """The answer to a question: named sums over some images.

    Attributes
    ----------
    n_images : int
    fields : dict of float64 arrays
    """

    n_images: int
    fields: dict[str, NDArray[np.float64]]

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

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.fields[name]

    def in_memory(self) -> Sums:
        """Return the same with sums as NumPy arrays, wherever they were added up."""
        return Sums(self.n_images, {name: to_host(field) for name, field in self.fields.items()})

    def scalar(self, name: str) -> float:
        """Return a sum that is one number."""
        return float(self.fields[name])
