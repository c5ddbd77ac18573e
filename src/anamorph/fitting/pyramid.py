"""Coarse to fine: the grids of a fit, coarsest first, and the way of a state from one to the next.

A coarse grid divides the same periodic box into fewer voxels, each the mean of what is observed in
its cell. Its objective is that of the fine grid for appearances that are constant within cells and
warps that keep them so: every coarse voxel stands for r fine ones, the ratio of their volumes. So
r multiplies the log-likelihood (as a decimation would) and the penalties, which are sums over
voxels as well, while latents, their prior and A stay what they are. Penalties are in physical
units: those of a smooth field agree on all grids.

From grid to grid, mean and bases are interpolated, velocities now in voxels of the finer grid;
latents, A, the precision of the noise, and poses (in mm) stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from anamorph.arrays.mapped import blocks_of, empty_mapped, is_mapped, let_go
from anamorph.arrays.typing import Array
from anamorph.fitting.em import Fit
from anamorph.fitting.regularisation import Regularisation
from anamorph.fitting.run import Checkpoints, Ending, Progress, run_fit
from anamorph.fitting.sites import OwnSites
from anamorph.fitting.state import State
from anamorph.geometry.coarsen import coarse_grid, prolonged, prolonged_velocities
from anamorph.geometry.pose import NONE
from anamorph.model.checks import ArgumentError
from anamorph.model.hyperparameters import AUTO
from anamorph.model.parameters import starting_residual
from anamorph.model.settings import Settings

# Along axes that are divided: the least that makes sense, and the least that helps.
_FEWEST_VOXELS, _FEWEST_AUTOMATIC = 4, 12
_MOST_AUTOMATIC_LEVELS = 3
# Of all iterations: details that coarse voxels do not show take some to be found. With exact
# gradients an iteration takes up to twice the time of one on that grid alone, and there are fewer.
# With poses one grid has such gradients, too. By number of axes: coarse volumes cost next to
# nothing, and more of the time is left for the finest grid.
_FINEST_SHARE, _FINEST_SHARE_WITH_POSES = 0.1, {2: 0.25, 3: 0.35}
_FEWEST_ON_FINEST = 2


@dataclass(frozen=True)
class GridSettings(Settings):
    """Settings on one of several grids, with exact gradients of the shape basis.

    They cost least where voxels are large. The finest grid begins with warps that are large, of
    which the gradient of Algorithm 6 knows little: it may find no step that raises F.
    """

    @property
    def differentiates_exactly(self) -> bool:
        """Whether a fit takes exact gradients of the shape basis: it does."""
        return True

    @classmethod
    def of(cls, settings: Settings) -> GridSettings:
        """Return the same settings, with exact gradients."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(settings)})


@dataclass(frozen=True)
class Level:
    """A grid of a fit.

    Attributes
    ----------
    settings : Settings
        Of the fit on this grid.
    n_iter : int
        How many iterations are done in all, on coarser grids too, when the fit leaves it.
    """

    settings: Settings
    n_iter: int


def plan_levels(settings: Settings, levels: int | str, n_iter: int) -> tuple[Level, ...]:
    """Return the grids of a fit, coarsest first, and when it leaves each.

    The finest gets a tenth of the iterations (with poses 25 %, in 3D 35 %), at least two, and
    coarser ones equal parts of the others.

    Parameters
    ----------
    settings : Settings
        On the grid of the images.
    levels : int or "auto"
        Number of grids; "auto": up to three, as long as no axis that is divided gets shorter than
        12 voxels.
    n_iter : int
        Iterations on all grids together.

    Returns
    -------
    tuple of Level

    Raises
    ------
    ArgumentError
        If the images have too few voxels for so many grids.
    """
    if levels == AUTO:
        n_levels = automatic_levels(settings.space, settings.voxel_size)
    else:
        n_levels = int(levels)
        most = _most_levels(settings.space, settings.voxel_size, _FEWEST_VOXELS)
        if n_levels > most:
            shape = " x ".join(map(str, settings.space))
            raise ArgumentError(
                f"levels must be at most {most} for images of {shape} voxels, or 'auto', "
                f"got {levels}"
            )
    has_poses = settings.has_poses
    share = _FINEST_SHARE_WITH_POSES[settings.n_dims] if has_poses else _FINEST_SHARE
    on_finest = min(n_iter, max(_FEWEST_ON_FINEST, math.ceil(share * n_iter)))
    if n_levels > 1:
        settings = GridSettings.of(settings)
    ends = [round((n_iter - on_finest) * number / (n_levels - 1)) for number in range(1, n_levels)]
    coarser = (coarse_settings(settings, 2**power) for power in range(n_levels - 1, 0, -1))
    grids = zip((*coarser, settings), (*ends, n_iter), strict=True)
    return tuple(Level(some, end) for some, end in grids)


def automatic_levels(space: Sequence[int], voxel_size: Sequence[float]) -> int:
    """Return the number of grids that "auto" stands for, given that of the images."""
    return min(_MOST_AUTOMATIC_LEVELS, _most_levels(space, voxel_size, _FEWEST_AUTOMATIC))


def _most_levels(fine: Sequence[int], voxel_size: Sequence[float], fewest: int) -> int:
    """Return how many grids have at least the fewest voxels along every axis that is divided."""
    count, factor = 1, 2
    while True:
        space, _ = coarse_grid(fine, voxel_size, factor)
        divided = [m for m, n in zip(space, fine, strict=True) if m < n]
        if not divided or min(divided) < fewest:
            return count
        count, factor = count + 1, 2 * factor


def run_levels(
    levels: Sequence[Level],
    first: int,
    seed: int,
    tol: float | None,
    *,
    open_sites: Callable[[Settings], OwnSites],
    open_checkpoints: Callable[[OwnSites, Settings], Checkpoints | None],
    tell: Callable[[Progress], object],
) -> tuple[OwnSites, State]:
    """Fit a model on one grid after the other.

    Parameters
    ----------
    levels : sequence of Level
        Coarsest first.
    first : int
        Number of the grid to begin with, from 0: that of the checkpoint, if there is one.
    seed : int
        Of the starting latents.
    tol : float or None
        As for `Ending`, of each grid by itself.
    open_sites : callable
        From the settings of a grid to sites with the images on it.
    open_checkpoints : callable
        From sites and settings to the checkpoints of the fit there, or None for none.
    tell : callable
        Called with the `Progress` after every iteration.

    Returns
    -------
    sites : OwnSites
        Those of the finest grid, with the latents at the end.
    state : State
    """
    state, latents, poses = None, None, None
    for number in range(first, len(levels)):
        settings = levels[number].settings
        sites = open_sites(settings)
        checkpoints = open_checkpoints(sites, settings)
        fit = Fit(sites, settings)
        if state is not None and latents is not None:
            sites.restore(latents, poses)
            state = fit.arrive(prolonged_state(state.beside(sites.namespace), settings))
        state = run_fit(
            fit,
            seed,
            Ending(levels[number].n_iter, tol),
            tell=_told_of_levels(tell, levels, number),
            checkpoints=checkpoints,
            start=state,
            is_last=number == len(levels) - 1,
        )
        if number == len(levels) - 1:
            return sites, state
        latents, poses = sites.latents, sites.poses if settings.has_poses else None
        sites.close()
        del sites, checkpoints, fit  # which hold images and warps that the next grid needs room for
    raise ValueError(f"first must be the number of a grid, below {len(levels)}, got {first}")


def _told_of_levels(
    tell: Callable[[Progress], object], levels: Sequence[Level], number: int
) -> Callable[[Progress], object]:
    """Return what passes on the progress on one grid as that of the whole fit."""

    def tell_level(progress: Progress) -> None:
        here, n_done = _n_voxels(levels[number]), progress.n_done
        rest, done = 0.0, n_done
        for level in levels[number:]:
            rest += max(0, level.n_iter - done) * _n_voxels(level) / here
            done = max(done, level.n_iter)
        n_levels, n_iter = len(levels), levels[-1].n_iter
        tell(replace(progress, n_iter=n_iter, level=number + 1, n_levels=n_levels, rest=rest))

    return tell_level


def _n_voxels(level: Level) -> int:
    return math.prod(level.settings.space)


def coarse_settings(settings: Settings, factor: float) -> Settings:
    """Return the settings of the same fit on a coarser grid.

    Parameters
    ----------
    settings : Settings
        Of the fine grid.
    factor : float
        How many times longer the sides of voxels are.

    Returns
    -------
    Settings
    """
    space, voxel_size = coarse_grid(settings.space, settings.voxel_size, factor)
    ratio = math.prod(settings.space) / math.prod(space)

    def weighted(penalty: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(ratio * weight for weight in penalty)

    return replace(
        settings,
        space=space,
        voxel_size=voxel_size,
        shape_penalty=weighted(settings.shape_penalty),
        appearance_penalty=weighted(settings.appearance_penalty),
        mean_penalty=weighted(settings.mean_penalty),
        decimation=ratio * settings.decimation,
        estimates_weight=False,
        residual=NONE,  # modes first: what they cannot follow is found on the grid of the images
    )


def prolonged_state(state: State, settings: Settings) -> State:
    """Return a state on a finer grid, with the latents as they are after its turn.

    Parameters
    ----------
    state : State
        On a coarser grid.
    settings : Settings
        Of the finer grid.
    """
    old, space = state.parameters, settings.space
    parameters = replace(
        old,
        mean=prolonged(old.mean, space),
        appearance_basis=_by_columns(old.appearance_basis, space, is_velocity=False),
        shape_basis=_by_columns(old.shape_basis, space, is_velocity=True),
        residual=starting_residual(settings, old.noise_precision),
        warp_version=0,  # from which the fit on the finer grid counts
    )
    energy = Regularisation(settings).basis_energy(parameters)
    parameters = replace(parameters, basis_energy=energy)
    # Where the coarse grid could not be improved any more, the finer one can.
    begins = (*state.level_begins, len(state.objective))
    return replace(state, parameters=parameters, step=1.0, turn=None, level_begins=begins)


def _by_columns(basis: Array, space: tuple[int, ...], *, is_velocity: bool) -> Array:
    """Return a basis on a finer grid, in a file if it is in one."""
    prolong = prolonged_velocities if is_velocity else prolonged
    if not is_mapped(basis):
        return prolong(basis, space)
    finer = empty_mapped((*basis.shape[:2], *space))
    for some in blocks_of(finer):
        finer[some] = prolong(basis[some], space)
        let_go(basis, finer)
    return finer
