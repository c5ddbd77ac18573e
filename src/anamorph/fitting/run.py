"""The driver of a fit: start or resume, iterate, show progress, write checkpoints, finish.

It serves one machine, a cluster and a federation, which differ in their sites and in what a
checkpoint holds. A federation calls it again after sites have failed, and takes sites back between
iterations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from anamorph.fitting.em import Fit
from anamorph.fitting.guard import finite_numbers, next_state, warn_of_latents, warn_of_objective
from anamorph.fitting.state import State

logger = logging.getLogger("anamorph")


def duration(seconds: float) -> str:
    """Return e.g. "1.1 ms", "0.42 s", "41 s", "12 min" or "3.2 h"."""
    if 0 < seconds < 0.095:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Progress:
    """Where a fit stands after an iteration.

    Attributes
    ----------
    n_done, n_iter : int
        Iterations done, and to do in all.
    n_images : int
    objective : tuple of float
        After each iteration.
    seconds : tuple of float
        Duration of each iteration.
    level, n_levels : int
        Number of the grid, from 1 for the coarsest, and of all grids; one grid by default.
    rest : float, optional
        How many iterations like the last one the rest amounts to, where grids differ; by default
        the number of those to do.
    """

    n_done: int
    n_iter: int
    n_images: int
    objective: tuple[float, ...]
    seconds: tuple[float, ...]
    level: int = 1
    n_levels: int = 1
    rest: float | None = None

    @property
    def seconds_left(self) -> float:
        """How long the rest will take, if the next iterations are like the last."""
        return self.seconds[-1] * (self.n_iter - self.n_done if self.rest is None else self.rest)

    @property
    def place(self) -> str:
        """Which grid, where there are several: e.g. ", grid 2 of 3", else ""."""
        return f", grid {self.level} of {self.n_levels}" if self.n_levels > 1 else ""

    def __str__(self) -> str:
        return (
            f"Iteration {self.n_done} of {self.n_iter}{self.place}: "
            f"objective {self.objective[-1]:.8g}, "
            f"{self.seconds[-1]:.2g} s, about {duration(self.seconds_left)} left"
        )


def told(
    is_printed: bool, callback: Callable[[Progress], object] | None
) -> Callable[[Progress], None]:
    """Return what to call with the progress after every iteration.

    Parameters
    ----------
    is_printed : bool
        Whether to print it.
    callback : callable, optional
        Called with it as well.
    """

    def tell(progress: Progress) -> None:
        if is_printed:
            print(progress, flush=True)
        if callback is not None:
            callback(progress)

    return tell


@dataclass(frozen=True)
class Ending:
    """When a fit is finished.

    Attributes
    ----------
    n_iter : int
        After so many iterations.
    tol : float or None
        When an iteration changes the objective by no more than this share of its range so far;
        None: only after `n_iter` iterations.
    """

    n_iter: int
    tol: float | None

    def is_reached(self, objective: Sequence[float], begin: int = 0) -> bool:
        """Tell whether a fit with this objective after each iteration is finished.

        Parameters
        ----------
        objective : sequence of float
        begin : int, default 0
            The first iteration on the present grid: those before it had another objective.
        """
        if len(objective) >= self.n_iter:
            return True
        here = objective[begin:]
        if self.tol is None or len(here) < 2:
            return False
        total = max(here) - min(here)
        return abs(here[-1] - here[-2]) <= self.tol * total


class Checkpoints(Protocol):
    """Where a fit keeps its state, to resume from it. As text, the name that messages use."""

    def read(self) -> State | None:
        """Return the state to resume from, with the sites at its latents; None: start anew.

        The latents are those from before the state's turn, where it has one.
        """

    def write(self, state: State) -> None:
        """Keep the state at the start, and after every iteration."""


def run_fit(
    fit: Fit,
    seed: int,
    ending: Ending,
    *,
    tell: Callable[[Progress], object],
    checkpoints: Checkpoints | None = None,
    regroup: Callable[[State], State] | None = None,
    start: State | None = None,
    is_last: bool = True,
) -> State:
    """Fit a model to the images at some sites.

    Parameters
    ----------
    fit : Fit
        Its sites hold the latents at the end.
    seed : int
        Of the starting latents.
    ending : Ending
    tell : callable
        Called with the `Progress` after every iteration.
    checkpoints : Checkpoints, optional
        Resumed from, and written after every iteration.
    regroup : callable, optional
        Called with the state before every iteration. It returns the state to continue from:
        another one if other sites take part from now on.
    start : State, optional
        To start from, with the sites at its latents, instead of resuming or starting anew.
    is_last : bool, default True
        Whether the model is that of this fit, and no finer grid follows.

    Returns
    -------
    State
        At the end of the fit.
    """
    state = start
    if state is None and checkpoints is not None:
        state = checkpoints.read()
    if state is not None and state is not start:
        n_done = len(state.objective)
        logger.info("Resuming from %s, after %d iterations", checkpoints, n_done)
        if ending.is_reached(state.objective, state.level_begins[-1]):
            fit.turn_latents(state)  # no iteration follows that would
    elif state is None:
        with finite_numbers("at the start"):
            state = fit.start(fit.sites.ask("moments"), seed)
        if checkpoints is not None:
            checkpoints.write(state)
    n_done = len(state.objective)
    if is_last and n_done > ending.n_iter:  # a coarser grid only leaves it sooner
        logger.warning(
            "%s was written after iteration %d, and the fit was to end after %d: the model is "
            "the one after %d; remove the checkpoint to start again",
            *(checkpoints, n_done, ending.n_iter, n_done),
        )
    begin = state.level_begins[-1]
    iterations = fit.iterate(state)
    while not ending.is_reached(state.objective, begin):
        regrouped = state if regroup is None else regroup(state)
        if regrouped is not state:
            iterations = fit.iterate(regrouped)
        state = next_state(iterations, len(state.objective) + 1)
        if checkpoints is not None:
            checkpoints.write(state)
        n_done, n_images = len(state.objective), state.latents.n_images
        tell(Progress(n_done, ending.n_iter, n_images, state.objective, state.seconds))
    # Few iterations on a fine grid may change little: a fall is judged by the range of all grids.
    lowest = state.objective[:begin] and (min(state.objective),)
    warn_of_objective((*lowest, *state.objective[begin:]))
    if is_last:
        warn_of_latents(state.latents, fit.settings)
    with finite_numbers("at the end"):
        return fit.finish(state)
