"""What stays fixed during a fit: the grid, likelihood, penalties and layout of the latents.

`checked_settings` makes it from the arguments of the estimator (`hyperparameters` checks each on
its own) and from the images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.typing import Float64Array
from anamorph.geometry.fields import check_voxel_size
from anamorph.geometry.pose import NONE, PoseFrame
from anamorph.images.arrays import ImageFormat
from anamorph.latents import check_prior_dof
from anamorph.likelihoods import LIKELIHOODS, Likelihood
from anamorph.model.checks import ArgumentError, argument_errors
from anamorph.model.hyperparameters import (
    AUTO,
    GLOBAL,
    INSIDE,
    MODES_FIRST,
    checked_arguments,
)


@dataclass(frozen=True)
class LatentLayout:
    """Which of the K latents of an image control its appearance, and which its shape.

    Attributes
    ----------
    n_latents : int
        K.
    n_appearance : int
        Ka: the first Ka latents have a column in the appearance basis.
    n_shape : int
        Kv: as many latents, from `first_shape` on, have a column in the shape basis.
    first_shape : int
    """

    n_latents: int
    n_appearance: int
    n_shape: int
    first_shape: int

    @classmethod
    def named(cls, name: str, n_components: int | tuple[int, int]) -> LatentLayout:
        """Return the layout "joint", "separate", "shape" or "appearance".

        Half of a number of separate latents are for appearance, and the others for shape.
        """
        if name == "separate":
            if n_components == 1:
                raise ArgumentError(
                    "n_components must be an integer >= 2 or a pair when latents='separate', for "
                    "appearance and for shape, e.g. 10,20, got 1"
                )
            if not isinstance(n_components, tuple):
                n_components = n_components // 2, n_components - n_components // 2
            n_appearance, n_shape = n_components
            return cls(n_appearance + n_shape, n_appearance, n_shape, n_appearance)
        if isinstance(n_components, tuple):
            raise ArgumentError(
                f"n_components must be one integer when latents={name!r}, got {n_components!r}"
            )
        n_appearance = 0 if name == "shape" else n_components
        n_shape = 0 if name == "appearance" else n_components
        return cls(n_components, n_appearance, n_shape, 0)

    @property
    def appearance(self) -> slice:
        """The latents that control appearance."""
        return slice(0, self.n_appearance)

    @property
    def shape(self) -> slice:
        """The latents that control shape."""
        return slice(self.first_shape, self.first_shape + self.n_shape)

    def columns(self, name: str) -> slice:
        """Return the latents that control "shape" or "appearance"."""
        return self.shape if name == "shape" else self.appearance

    @property
    def blocks(self) -> tuple[int, ...]:
        """Sizes of the groups of latents that may be mixed with each other."""
        if self.first_shape:
            return (self.n_appearance, self.n_shape)
        return (self.n_latents,)


@dataclass(frozen=True)
class Settings:
    """All that defines a model besides what is learnt.

    Attributes
    ----------
    likelihood_name : str
    layout : LatentLayout
    space : tuple of int
        Shape of the grid, 2 or 3 axes.
    n_channels : int
        C.
    voxel_size : tuple of float
    shape_penalty, appearance_penalty, mean_penalty : tuple of float
        5, 3 and 3 weights; that of the mean is per image.
    balance : pair of float
        lambda_1, lambda_2.
    prior_dof : float
        nu_0.
    n_steps : int
        Steps of geodesic shooting.
    decimation : float
        Weight of the log-likelihood.
    estimates_weight : bool
        Whether a fit ends with estimates of the noise and of the weight for new images. False for
        models that were fitted before there were any.
    prediction_weight : float, optional
        Weight of the log-likelihood where hidden voxels of new images are predicted; that of the
        fit by default.
    intensity : {"global", "per image", "smooth"}
        Whether images have gains and offsets of their own, or also smooth fields; by default not.
    independent_share : float, optional
        Effective number of voxels of an image over their number, where a fit has estimated it.
    align : str
        What poses of images may do; "none" by default, and for models that know no poses.
    residual : {"none", "after", "inside"}
        When residual warps are learnt; "none" by default, and for models that know none.
    """

    likelihood_name: str
    layout: LatentLayout
    space: tuple[int, ...]
    n_channels: int
    voxel_size: tuple[float, ...]
    shape_penalty: tuple[float, ...]
    appearance_penalty: tuple[float, ...]
    mean_penalty: tuple[float, ...]
    balance: tuple[float, float]
    prior_dof: float
    n_steps: int
    decimation: float
    estimates_weight: bool = False
    prediction_weight: float | None = None
    intensity: str = GLOBAL
    independent_share: float | None = None
    align: str = NONE
    residual: str = NONE

    @cached_property
    def frame(self) -> PoseFrame:
        """The grid and the group of poses."""
        return PoseFrame(self.align, self.space, self.voxel_size)

    @property
    def has_poses(self) -> bool:
        """Whether images have poses."""
        return self.align != NONE

    @property
    def differentiates_exactly(self) -> bool:
        """Whether a fit takes exact gradients of the shape basis: see `fitting.step_length`."""
        return self.has_poses

    @property
    def has_residuals(self) -> bool:
        """Whether images have residual warps."""
        return self.residual != NONE

    @property
    def matches_intensities(self) -> bool:
        """Whether images have gains and offsets of their own."""
        return self.intensity != GLOBAL

    @property
    def for_prediction(self) -> Settings:
        """The same with the weight by which hidden voxels of new images are predicted."""
        weight = self.decimation if self.prediction_weight is None else self.prediction_weight
        return replace(self.for_new_images, decimation=weight)

    @property
    def for_new_images(self) -> Settings:
        """The same with the prior of new images, which `sample` draws from: z ~ N(0, A^-1)."""
        return replace(self, balance=(1.0, 0.0))

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of an image given its warped appearance."""
        return LIKELIHOODS[self.likelihood_name]

    @property
    def n_dims(self) -> int:
        """Number d of spatial axes."""
        return len(self.space)

    @cached_property
    def n_hessian(self) -> int:
        """Number P of values in which the appearance Hessian of a voxel is packed."""
        return self.likelihood.n_hessian(self.n_channels)

    @cached_property
    def n_shape_hessian(self) -> int:
        """Number of values in which the d x d shape Hessian of a voxel is packed."""
        return self.n_dims * (self.n_dims + 1) // 2


def checked_settings(
    arguments: Mapping[str, Any],
    image_format: ImageFormat,
    n_images: int,
    voxel_size: tuple[float, ...] | None = None,
) -> Settings:
    """Return the settings of a fit.

    Parameters
    ----------
    arguments : dict
        All arguments of the estimator.
    image_format : ImageFormat
    n_images : int
    voxel_size : 2 or 3 numbers, optional
        That of the images, which an argument overrides; by default 1 along every axis.

    Returns
    -------
    Settings

    Raises
    ------
    ArgumentError
        If a value is not accepted, on its own, with others or with these images.
    """
    return completed_settings(checked_arguments(arguments), image_format, n_images, voxel_size)


def completed_settings(
    arguments: Mapping[str, Any],
    image_format: ImageFormat,
    n_images: int,
    voxel_size: tuple[float, ...] | None = None,
) -> Settings:
    """Do what `checked_settings` does, with arguments that `checked_arguments` has returned.

    It only checks how arguments go together, and with the images.
    """
    if arguments["scale"] not in (None, image_format.scale):
        raise ArgumentError(
            f"scale must be {image_format.scale!r}, as the images were opened with, got "
            f"{arguments['scale']!r}"
        )
    layout = LatentLayout.named(arguments["latents"], arguments["n_components"])
    if layout.n_latents > n_images - 1:
        raise ArgumentError(
            f"n_components must be at most the number of images less one, got "
            f"{layout.n_latents} for {n_images} images"
        )
    prior_dof = arguments["prior_dof"]
    prior_dof = float(layout.n_latents) if prior_dof is None else prior_dof
    if arguments["voxel_size"] is not None:
        voxel_size = arguments["voxel_size"]
    with argument_errors():
        check_prior_dof(prior_dof, layout.n_latents)
        voxel_size = check_voxel_size(voxel_size, len(image_format.space))
    penalties = {
        f"{name}_penalty": arguments[f"{name}_penalty"] or weights
        for name, weights in LIKELIHOODS[arguments["likelihood"]].default_penalties.items()
    }
    is_estimated = arguments["decimation"] == AUTO
    return Settings(
        likelihood_name=image_format.likelihood,
        layout=layout,
        space=image_format.space,
        n_channels=image_format.n_channels,
        voxel_size=voxel_size,
        balance=arguments["balance"],
        prior_dof=prior_dof,
        n_steps=arguments["n_steps"],
        decimation=1.0 if is_estimated else arguments["decimation"],
        estimates_weight=is_estimated,
        prediction_weight=None,
        intensity=_checked_intensity(arguments["intensity"], image_format.likelihood),
        independent_share=None,
        align=arguments.get("align", NONE),
        residual=_checked_residual(arguments, layout),
        **penalties,
    )


def _checked_residual(arguments: Mapping[str, Any], layout: LatentLayout) -> str:
    """Return when residual warps are learnt, which must go with the latents and the iterations."""
    residual: str = arguments.get("residual", NONE)
    if residual != NONE and not layout.n_shape:
        raise ArgumentError(
            f"residual must be {NONE!r} where latents='appearance': nothing is warped, got "
            f"{residual!r}"
        )
    if residual == INSIDE and arguments["n_iter"] <= MODES_FIRST:
        raise ArgumentError(
            f"n_iter must be above {MODES_FIRST} with residual={INSIDE!r}, since residual warps "
            f"begin after so many iterations, got {arguments['n_iter']}"
        )
    return residual


def _checked_intensity(intensity: str, likelihood: str) -> str:
    """Return a way of treating intensities, which must go with the likelihood."""
    if intensity != GLOBAL and not LIKELIHOODS[likelihood].has_noise:
        raise ArgumentError(
            f"intensity must be {GLOBAL!r} where likelihood={likelihood!r}: its images have no "
            f"gain, got {intensity!r}"
        )
    return intensity


def checked_start(start: ArrayLike | None, n_images: int, n_latents: int) -> Float64Array | None:
    """Return starting latents (N, K), if any are given."""
    if start is None:
        return None
    try:
        latents = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(f"start must hold numbers, got {type(start).__name__}") from None
    if latents.shape != (n_images, n_latents):
        raise ArgumentError(f"start must have shape ({n_images}, {n_latents}), got {latents.shape}")
    if not np.isfinite(latents).all():
        raise ArgumentError("start must be finite, got NaN or infinity")
    return latents
