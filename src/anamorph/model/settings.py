"""What stays fixed during a fit: the grid, likelihood, penalties and layout of the latents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from anamorph.likelihoods import LIKELIHOODS, Likelihood


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
        """Return the layout "joint", "separate", "shape" or "appearance"."""
        if name == "separate":
            if not isinstance(n_components, tuple):
                raise ValueError(
                    "n_components must be a pair (n_appearance, n_shape) when latents='separate', "
                    f"got {n_components!r}"
                )
            n_appearance, n_shape = n_components
            return cls(n_appearance + n_shape, n_appearance, n_shape, n_appearance)
        if isinstance(n_components, tuple):
            raise ValueError(
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
