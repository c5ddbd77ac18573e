"""A fit from beginning to end: it goes on from its checkpoint, and ends when it is asked to."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anamorph.fitting.em import Fit, State
from anamorph.fitting.progress import Progress
from anamorph.fitting.sites import OwnSites
from anamorph.model.settings import Settings
from anamorph.storage.checkpoint import fit_fingerprint, read_checkpoint, write_checkpoint

logger = logging.getLogger("anamorph")


@dataclass(frozen=True)
class Ending:
    """When a fit is finished.

    Attributes
    ----------
    n_iter : int
        After so many iterations.
    tol : float or None
        When an iteration changes the objective by no more than this share of its range so far.
    """

    n_iter: int
    tol: float | None

    def is_reached(self, objective: Sequence[float]) -> bool:
        """Tell whether a fit whose objective was this after each iteration is finished."""
        if len(objective) >= self.n_iter:
            return True
        if self.tol is None or len(objective) < 2:
            return False
        total = max(objective) - min(objective)
        return abs(objective[-1] - objective[-2]) <= self.tol * total


def run_fit(
    sites: OwnSites,
    settings: Settings,
    seed: int,
    ending: Ending,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    tell: Callable[[Progress], object],
) -> State:
    """Fit a model to the images at some sites, and return where the fit stands at the end.

    Parameters
    ----------
    sites : OwnSites
        They hold the latents at the end.
    settings : Settings
    seed : int
        Of the starting latents.
    ending : Ending
    checkpoint : path, optional
        Written after every iteration, and gone on from if it exists.
    tell : callable
        Called with the `Progress` after every iteration.
    """
    fit = Fit(sites, settings)
    fingerprint = "" if checkpoint is None else fit_fingerprint(settings, seed, sites.digest())
    if checkpoint is not None and os.path.exists(checkpoint):
        state = _resumed(sites, checkpoint, fingerprint, ending)
    else:
        state = fit.start(sites.ask("moments"), seed)
    iterations = fit.iterate(state)
    while not ending.is_reached(state.objective):
        state = next(iterations)
        if checkpoint is not None:
            stored = state.beside(np)
            write_checkpoint(checkpoint, fingerprint, stored, sites.latents_before_turn)
        n_done, n_images = len(state.objective), state.latents.n_images
        tell(Progress(n_done, ending.n_iter, n_images, state.objective, state.seconds))
    return state


def _resumed(
    sites: OwnSites, checkpoint: str | os.PathLike[str], fingerprint: str, ending: Ending
) -> State:
    """Return where a fit stood when its checkpoint was written, with the latents at the sites."""
    state, latents = read_checkpoint(checkpoint, fingerprint)
    state = state.beside(sites.namespace)
    n_done = len(state.objective)
    logger.info("Going on from %s, after %d iterations", checkpoint, n_done)
    if n_done > ending.n_iter:
        logger.warning(
            "%s is from after iteration %d, and the fit was to end after %d: the model "
            "is the one after %d; remove the checkpoint to begin again",
            *(checkpoint, n_done, ending.n_iter, n_done),
        )
    if state.turn is not None and ending.is_reached(state.objective):
        latents = latents @ state.turn.transform.T  # no iteration follows to turn them
    sites.restore(latents)
    return state
