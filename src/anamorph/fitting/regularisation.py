"""Penalties at work: energies of the mean and the bases, and their Gauss-Newton directions.

Updates of the M-step have the form w <- w - (H + weight L)^-1 (g + weight L w), with L the penalty
of the mean, of the appearance basis or of the shape basis.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from anamorph.arrays.devices import beside, is_on_device, to_host
from anamorph.arrays.mapped import blocks_of, empty_mapped, is_mapped, let_go
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.fitting.sums import Sums
from anamorph.geometry import momentum
from anamorph.geometry.operators import field_momentum
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.solvers import solve_field, solve_velocity

BasisName = Literal["shape", "appearance"]

TOLERANCE = 1e-3
_BLOCK_BYTES = 2**30  # of Hessians that are sent to a GPU at a time
_NUMBERS_AT_A_TIME = 2**17  # of each column of a basis that are converted to float64


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
                energy[columns, columns] += self._inner_products(name, basis)
        return energy

    def mean_energy(self, mean: Array) -> float:
        """Return mu' L_mu mu of a mean (C, *space)."""
        return float(np.vdot(mean, self._mean_momentum(mean)))

    def basis_direction(
        self, name: BasisName, basis: Array, derivatives: Sums, weights: Float64Array
    ) -> Float32Array:
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
        solve = solve_velocity if name == "shape" else solve_field
        gradients, hessians = derivatives["gradient"], derivatives["hessian"]
        # Sums that are in files are too large for memory, and so is the direction.
        direction = empty_mapped(basis.shape) if is_mapped(hessians) else np.empty_like(basis)
        for some in _columns_at_a_time(basis, hessians):
            mixed = self._momenta(name, np.tensordot(factors[some], basis, axes=1))
            direction[some] = solve(
                beside(basis, hessians[some], np.float32),
                (beside(basis, gradients[some]) + mixed).astype(np.float32),
                self._penalty(name),
                self.settings.voxel_size,
                weight=np.diag(weights)[some],
                tolerance=TOLERANCE,
            ).x
            let_go(basis, gradients, hessians, direction)
        return direction

    def basis_slope(
        self,
        name: BasisName,
        basis: Array,
        derivatives: Sums,
        weights: Float64Array,
        direction: Array,
    ) -> float:
        """Return by how much F rises per step along a direction, as steps become short.

        Parameters are those of `basis_direction`, and what it returns.
        """
        factors, slope = beside(basis, weights, np.float32), 0.0
        gradients = derivatives["gradient"]
        for some in _columns_at_a_time(basis, derivatives["hessian"]):
            mixed = self._momenta(name, np.tensordot(factors[some], basis, axes=1))
            whole = beside(basis, gradients[some]) + mixed
            slope += float(np.vdot(whole.astype(np.float64), direction[some].astype(np.float64)))
            let_go(basis, gradients, direction)
        return slope

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

    def _inner_products(self, name: BasisName, basis: Array) -> Float64Array:
        """Return W' L W, symmetric, in float64."""
        products = np.zeros((len(basis), len(basis)))
        rows = basis.reshape(len(basis), -1)
        step = rows.shape[1] if is_on_device(basis) else _NUMBERS_AT_A_TIME
        for some in blocks_of(basis):
            momenta = self._momenta(name, basis[some])
            momenta = momenta.reshape(len(momenta), -1)
            for first in range(0, rows.shape[1], step):
                part = slice(first, first + step)
                products[:, some] += to_host(rows[:, part].astype(np.float64) @ momenta[:, part].T)
            let_go(basis)
        return (products + products.T) / 2

    def _penalty(self, name: BasisName) -> tuple[float, ...]:
        settings = self.settings
        return settings.shape_penalty if name == "shape" else settings.appearance_penalty


def _columns_at_a_time(basis: Array, hessian: Array) -> list[slice]:
    """Return all columns of a basis, or some at a time if sums do not fit on a GPU or in memory."""
    if is_on_device(basis) == is_on_device(hessian):
        return list(blocks_of(hessian)) if is_mapped(hessian) else [slice(None)]
    most = max(1, _BLOCK_BYTES // (4 * math.prod(hessian.shape[1:])))
    return [slice(first, first + most) for first in range(0, len(basis), most)]


def stepped(basis: Array, step: float, direction: Array) -> Array:
    """Return w - step * direction for all columns w: in a file, if the direction is."""
    if not is_mapped(direction):
        return basis - np.float32(step) * direction
    moved = empty_mapped(basis.shape)
    for some in blocks_of(direction):
        moved[some] = basis[some] - np.float32(step) * direction[some]
        let_go(basis, direction, moved)
    return moved
