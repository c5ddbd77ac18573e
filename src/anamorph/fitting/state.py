"""The state of a fit between two iterations: all that it knows, apart from the latents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anamorph.arrays.devices import beside
from anamorph.arrays.typing import Float32Array, Float64Array
from anamorph.fitting.objective import LatentSums
from anamorph.model.parameters import Parameters


@dataclass(frozen=True)
class Turn:
    """An orthogonalisation: latents z became T z, and the bases W became W T^-1.

    Warps that sites keep were shot before it. Shot again after it they would be the same but for
    rounding, which iterations amplify. A fit that resumes therefore shoots them from what was
    before the turn.

    Attributes
    ----------
    transform : (K, K)
        T.
    shape_basis_before : (Kv, d, *space)
        Wv, in voxels.
    """

    transform: Float64Array
    shape_basis_before: Float32Array


@dataclass(frozen=True)
class State:
    """Where a fit stands after an iteration (with the latents, which stay with the images).

    Attributes
    ----------
    parameters : Parameters
    latents : LatentSums
    step : float
        Factor of basis updates, at most 1; it persists from one iteration to the next.
    objective : tuple of float
        What is shown to people, after each iteration.
    turn : Turn, optional
        The last orthogonalisation; None before the first one.
    seconds : tuple of float
        Duration of each iteration.
    prediction_weight : float, optional
        Weight of the likelihood of new images, once the fit is finished and if it was estimated.
    independent_share : float, optional
        Effective number of voxels over their number, found with that weight.
    residual_weight : float, optional
        What a voxel counts for where residual warps are found, once that is known.
    level_begins : tuple of int
        How many iterations had been done when the fit came to each of its grids so far, coarsest
        first; (0,) by default.
    """

    parameters: Parameters
    latents: LatentSums
    step: float = 1.0
    objective: tuple[float, ...] = ()
    turn: Turn | None = None
    seconds: tuple[float, ...] = ()
    prediction_weight: float | None = None
    independent_share: float | None = None
    residual_weight: float | None = None
    level_begins: tuple[int, ...] = (0,)

    def beside(self, array: object) -> State:
        """Return the same with mean and bases where an array is, in memory or on a GPU."""
        turn = self.turn
        if turn is not None:
            turn = replace(turn, shape_basis_before=beside(array, turn.shape_basis_before))
        return replace(self, parameters=self.parameters.beside(array), turn=turn)
