"""How long the next step of the shape basis is, where gradients are exact.

The gradient of Algorithm 6 takes every warp for a small one. As warps grow it points elsewhere: on
brains with poses it soon had nothing in common with the exact one, and steps along it lowered F.
Where images have poses, and in fits through several grids, sites therefore differentiate geodesics
exactly (`geometry.adjoint`). The Hessian is still that of Algorithm 6, too small by a factor that
grows with the warps: full steps are too long. A parabola through F before and after a step, with
the slope it had, says how long the step should have been, and the next one is as long.
"""

from __future__ import annotations

_MOST_CHANGE = 2.0  # of a step from one to the next


def next_step(step: float, slope: float, gain: float) -> float:
    """Return the step to begin with next time, at most 1.

    Parameters
    ----------
    step : float
        That was taken.
    slope : float
        How much F gained per step at first.
    gain : float
        How much it gained in all.
    """
    lost = slope * step - gain  # to the curvature: c step^2 / 2
    best = slope * step**2 / (2 * lost) if lost > 0 else _MOST_CHANGE * step
    return float(min(1.0, max(step / _MOST_CHANGE, min(best, _MOST_CHANGE * step))))
