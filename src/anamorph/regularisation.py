"""Penalties at work: energies of the mean and the bases, and their Gauss-Newton directions.

Updates have the form w - (H + weight L)^-1 (g + weight L w), with L the penalty of the mean, of the
appearance basis or of the shape basis.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anamorph.geometry import momentum
from anamorph.geometry.operators import field_momentum
from anamorph.kernels.device import beside, is_on_device, to_host
from anamorph.parameters import Parameters
from anamorph.settings import Settings
from anamorph.solvers import solve_field, solve_velocity
from anamorph.sums import Sums

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]
BasisName = Literal["shape", "appearance"]

TOLERANCE = 1e-3
_BLOCK_BYTES = 2**30  # of Hessians that are sent to a GPU at a time


class Regularisation:
    """The penalties of a model.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def basis_energy(self, parameters: Parameters) -> Float64Array:
        """Return C = Wv' Lv Wv + Wa' La Wa, (K, K)."""
        layout = self.settings.layout
        energy = np.zeros((layout.n_latents, layout.n_latents))
        names: tuple[BasisName, BasisName] = ("shape", "appearance")
        for name in names:
            basis, columns = parameters.basis(name), layout.columns(name)
            if len(basis):
                energy[columns, columns] += _inner_products(basis, self._momenta(name, basis))
        return energy

    def mean_energy(self, mean: Array) -> float:
        """Return mu' L_mu mu of a mean (C, *space)."""
        return float(np.vdot(mean, self._mean_momentum(mean)))

    def basis_direction(
        self, name: BasisName, basis: Array, derivatives: Sums, weights: Float64Array
    ) -> NDArray[np.float32]:
        """Return (H_kk + weights_kk L)^-1 (g_k + sum_j weights_kj L w_j) for all columns k.

        Parameters
        ----------
        name : {"shape", "appearance"}
        basis : (columns, ...)
            w_k: (Kv, d, *space) or (Ka, C, *space).
        derivatives : Sums
            With "gradient" and "hessian" of the columns.
        weights : (columns, columns)
            Those of the penalty: lambda_1 N I + lambda_2 ZZ'.
        """
        factors = beside(basis, weights, np.float32)
        mixed = np.tensordot(factors, self._momenta(name, basis), axes=1)
        solve = solve_velocity if name == "shape" else solve_field
        direction = np.empty_like(basis)
        for some in _columns_at_a_time(basis, derivatives["hessian"]):
            gradient = beside(basis, derivatives["gradient"][some])
            direction[some] = solve(
                beside(basis, derivatives["hessian"][some], np.float32),
                (gradient + mixed[some]).astype(np.float32),
                self._penalty(name),
                self.settings.voxel_size,
                weight=np.diag(weights)[some],
                tolerance=TOLERANCE,
            ).x
        return direction

    def mean_direction(
        self,
        mean: Array,
        gradient: Array,
        hessian: Array,
        n_images: int,
        tolerance: float = TOLERANCE,
    ) -> Array:
        """Return (H + N L)^-1 (g + N L mu), (C, *space).

        Parameters
        ----------
        mean, gradient : (C, *space)
            mu and g.
        hessian : (P, *space)
            H, packed.
        n_images : int
            N.
        tolerance : float
            Of the solver.
        """
        settings = self.settings
        return solve_field(
            hessian,
            gradient + n_images * self._mean_momentum(mean),
            settings.mean_penalty,
            settings.voxel_size,
            weight=float(n_images),
            tolerance=tolerance,
        ).x

    def _mean_momentum(self, mean: Array) -> Array:
        return field_momentum(mean, self.settings.mean_penalty, self.settings.voxel_size)

    def _momenta(self, name: BasisName, basis: Array) -> Array:
        operator = momentum if name == "shape" else field_momentum
        return operator(basis, self._penalty(name), self.settings.voxel_size)

    def _penalty(self, name: BasisName) -> tuple[float, ...]:
        if name == "shape":
            return self.settings.shape_penalty
        return self.settings.appearance_penalty


def _columns_at_a_time(basis: Array, hessian: Array) -> list[slice]:
    """Return all columns of a basis, or some at a time where sums did not fit on the GPU."""
    if is_on_device(basis) == is_on_device(hessian):
        return [slice(None)]
    most = max(1, _BLOCK_BYTES // (4 * math.prod(hessian.shape[1:])))
    return [slice(first, first + most) for first in range(0, len(basis), most)]


def _inner_products(basis: Array, momenta: Array) -> Float64Array:
    """Return W' L W, symmetric, in float64."""
    rows = basis.reshape(len(basis), -1).astype(np.float64)
    products = to_host(rows @ momenta.reshape(len(basis), -1).T)
    return np.asarray((products + products.T) / 2)
