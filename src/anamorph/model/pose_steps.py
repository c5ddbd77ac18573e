"""Gauss-Newton steps of poses on ln p(f, q | z), image by image, halved until they do no harm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.geometry.pose import PoseFrame
from anamorph.model.generator import Generator, slack
from anamorph.model.posing import PosedGenerator

_MOST_HALVINGS = 5
_LEAST_MOTION = 0.01  # voxels; shorter steps change nothing
_LONGEST_MOTION = 1.0  # sides of the box


@dataclass
class PoseSearch:
    """Poses of some images as steps improve them.

    Attributes
    ----------
    poses : (N, P)
    log_likelihood : (N,)
        ln p(f, q | z).
    improved : (N,) bool
        Whether any step was taken.
    """

    poses: Float64Array
    log_likelihood: Float64Array
    improved: BoolArray


def improve_poses(
    generator: Generator,
    images: Array,
    appearance: Array,
    displacement: Array | None,
    poses: Float64Array,
    *,
    n_steps: int,
    frame: PoseFrame | None = None,
) -> PoseSearch:
    """Take Gauss-Newton steps of poses, each halved until ln p(f, q | z) is no worse.

    Parameters
    ----------
    generator : Generator
        Without poses.
    images, appearance : (N, C, *space)
    displacement : (N, d, *space) or None
        Of psi.
    poses : (N, P)
        Where to start.
    n_steps : int
        The most steps; an image takes fewer once they are short, or once none improves it.
    frame : PoseFrame, optional
        By default that of the model's grid.
    """
    search = PoseSearch(poses.copy(), np.full(len(poses), -np.inf), np.zeros(len(poses), bool))
    active = np.arange(len(poses))
    for _ in range(n_steps):
        some = _Some(generator, images, appearance, displacement, frame, active)
        here = some.posed(search.poses[active])
        values, gradient, hessian = here.pose_derivatives(*some.fields())
        search.log_likelihood[active] = values
        prior = here.frame.prior_precision
        gradient = gradient + search.poses[active] * prior
        hessian = hessian + np.diag(prior)
        step: Float64Array = -np.linalg.solve(hessian, gradient[..., None])[..., 0].astype(
            np.float64, copy=False
        )
        moved = _backtrack(some, search, step)
        active = active[moved & (here.frame.motion(step) > _LEAST_MOTION)]
        if not len(active):
            break
    return search


@dataclass(frozen=True)
class _Some:
    """Some of the images that poses are found for."""

    generator: Generator
    images: Array
    appearance: Array
    displacement: Array | None
    frame: PoseFrame | None
    which: IntArray

    def posed(self, poses: Float64Array, rows: IntArray | None = None) -> PosedGenerator:
        about = self.generator.only(self._numbers(rows))
        return PosedGenerator.of(about, poses, self.frame)

    def _numbers(self, rows: IntArray | None) -> IntArray:
        return self.which if rows is None else self.which[rows]

    def fields(self, rows: IntArray | None = None) -> tuple[Array, Array | None, Array]:
        which = self._numbers(rows)
        if len(which) == len(self.images):
            return self.appearance, self.displacement, self.images
        moved = None if self.displacement is None else self.displacement[which]
        return self.appearance[which], moved, self.images[which]


def _backtrack(some: _Some, search: PoseSearch, step: Float64Array) -> BoolArray:
    """Take steps (n, P), halved until they do no harm; tell which were taken, (n,).

    Steps across the whole box are made shorter: the derivatives know nothing of what is so far.
    """
    before, start = search.log_likelihood[some.which].copy(), search.poses[some.which].copy()
    frame = some.posed(start).frame
    longest = _LONGEST_MOTION * max(frame.space) / np.maximum(frame.motion(step), _LEAST_MOTION)
    step = step * np.minimum(1.0, longest)[:, None]
    moved, pending = np.zeros(len(step), bool), np.arange(len(step))
    for halvings in range(_MOST_HALVINGS + 1):
        trial = frame.composed(step[pending] * 0.5**halvings, start[pending])
        is_pose = np.isfinite(trial).all(axis=1)  # steps may go beyond all poses
        trial[~is_pose] = start[pending[~is_pose]]
        values = to_host(some.posed(trial, pending).log_likelihood(*some.fields(pending)))
        good = is_pose & (values >= before[pending] - slack(before[pending]))
        taken = some.which[pending[good]]
        search.poses[taken], search.log_likelihood[taken] = trial[good], values[good]
        search.improved[taken] = True
        moved[pending[good]] = True
        pending = pending[~good]
        if not len(pending):
            break
    return moved
