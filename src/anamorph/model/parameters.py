"""The parameters that a fit learns: mean, bases, precisions. Latents stay with the images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from anamorph.arrays.devices import beside, to_host
from anamorph.arrays.mapped import blocks_of, empty_mapped, is_mapped, let_go
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.latents import prior_precision
from anamorph.model.settings import Settings


@dataclass(frozen=True)
class Parameters:
    """The parameters of a model, as they are published to whoever holds images.

    Attributes
    ----------
    mean : (C, *space)
        mu.
    appearance_basis : (Ka, C, *space)
        Wa.
    shape_basis : (Kv, d, *space)
        Wv, in voxels.
    basis_energy : (K, K)
        C = Wv' Lv Wv + Wa' La Wa.
    latent_precision : (K, K)
        A.
    noise_precision : (C,)
        1 where the likelihood has no noise variance.
    background : (2, C), optional
        What is outside of the template's box, where images have poses: appearance and precision of
        each channel.
    residual : (1 + C,), optional
        Of models with residual warps: their precision tau, relative to L, and the precision of the
        noise that they expect.
    warp_version : int
        Changes whenever the warp Wv z of given latents does: not by orthogonalisation, which
        leaves Wv z as it is.
    """

    mean: Float32Array
    appearance_basis: Float32Array
    shape_basis: Float32Array
    basis_energy: Float64Array
    latent_precision: Float64Array
    noise_precision: Float64Array
    background: Float64Array | None = None
    residual: Float64Array | None = None
    warp_version: int = 0

    @property
    def known_background(self) -> Float64Array:
        """The background, of models whose images have poses."""
        if self.background is None:
            raise ValueError("a model whose images have poses must know their background")
        return self.background

    @property
    def residual_precision(self) -> float:
        """tau, of models with residual warps."""
        if self.residual is None:
            raise ValueError("a model with residual warps must know their precision")
        return float(self.residual[0])

    def with_residuals(self) -> Parameters:
        """Return the same with the noise that is left of images with residual warps."""
        if self.residual is None:
            raise ValueError("a model with residual warps must know their precision")
        return replace(self, noise_precision=self.residual[1:])

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell fits apart: of what files keep to the last bit."""
        numbers = [to_host(self.latent_precision), to_host(self.basis_energy)]
        content = np.asarray(numbers, np.float64).tobytes()
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    @property
    def n_bytes(self) -> int:
        """Bytes of mean and bases."""
        return int(self.mean.nbytes + self.appearance_basis.nbytes + self.shape_basis.nbytes)

    def basis(self, name: str) -> Float32Array:
        """Return the basis of "shape" or "appearance"."""
        return self.shape_basis if name == "shape" else self.appearance_basis

    def prior_precision(self, settings: Settings) -> Float64Array:
        """Return P = lambda_1 A + lambda_2 C."""
        return prior_precision(self.latent_precision, self.basis_energy, settings.balance)

    def beside(self, array: object) -> Parameters:
        """Return the same with mean and bases where an array is, in memory or on a GPU."""
        names = ("mean", "appearance_basis", "shape_basis")
        return replace(self, **{name: beside(array, getattr(self, name)) for name in names})

    def transformed(self, transform: Float64Array, settings: Settings) -> Parameters:
        """Return the bases W T^-1 that go with latents T z, so that W z stays the same."""
        inverse = np.linalg.inv(transform)
        layout = settings.layout
        return replace(
            self,
            appearance_basis=_combine(self.appearance_basis, inverse, layout.appearance),
            shape_basis=_combine(self.shape_basis, inverse, layout.shape),
            basis_energy=inverse.T @ self.basis_energy @ inverse,
        )


def starting_residual(settings: Settings, noise_precision: Float64Array) -> Float64Array | None:
    """Return `Parameters.residual` before anything is known: the precision of the modes' penalty.

    None where images have no residual warps.
    """
    return np.array([1.0, *noise_precision]) if settings.has_residuals else None


def _combine(basis: Float32Array, matrix: Array, columns: slice) -> Float32Array:
    block = beside(basis, matrix[columns, columns].T, np.float32)
    if not is_mapped(basis):
        combined: Float32Array = np.tensordot(block, basis, axes=1)
        return combined
    combined = empty_mapped(basis.shape)
    for some in blocks_of(basis):
        combined[some] = np.tensordot(block[some], basis, axes=1)
        let_go(basis, combined)
    return combined


def power_of(mean: Array) -> Float64Array:
    """Return the mean square of each channel of a mean (C, *space), (C,)."""
    squares = np.square(mean.astype(np.float64)).mean(axis=tuple(range(1, mean.ndim)))
    return np.asarray(to_host(squares))
