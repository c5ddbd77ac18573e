"""A fit across sites from beginning to end: sites that fail come back, or the fit stops cleanly.

The state after each iteration is the ground to stand on. When a site fails, all go back to it:
with the same sites the iteration is done again and gives the same numbers; with others, latents
take a step first (`Fit.regroup`), so that no two totals are of the same thing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation.coordinator.checkpoint import Standing, read_standing, write_standing
from anamorph.federation.coordinator.description import Description, described
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.errors import (
    AnswerError,
    FederationError,
    RosterError,
    SitesLostError,
)
from anamorph.federation.protocol.roster import LEAST_SITES
from anamorph.federation.protocol.transport import Transport
from anamorph.fitting.em import Fit, State
from anamorph.fitting.progress import Progress
from anamorph.fitting.run import Ending
from anamorph.model.checks import checked_seed
from anamorph.model.settings import LatentLayout, Settings, checked_settings
from anamorph.storage.modelfile import Origin

logger = logging.getLogger("anamorph")

_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Terms:
    """How a fit across sites is run.

    Attributes
    ----------
    is_secure : bool
        Whether sites mask their sums, which takes at least three of them.
    timeout : float or None
        Seconds that a site may take for an answer.
    patience : float
        Seconds to wait for a site that failed.
    retries : int
        How often an iteration is begun again with the same sites.
    may_go_on_without : bool
        Whether to go on without a site that does not come back, and to take it back when it does.
    roster_changes : int
        How often the sites of the fit may change.
    """

    is_secure: bool = True
    timeout: float | None = None
    patience: float = 60.0
    retries: int = 3
    may_go_on_without: bool = False
    roster_changes: int = 2


@dataclass(frozen=True)
class FederatedResult:
    """What came of a fit across sites, besides the model.

    Attributes
    ----------
    roster : tuple of str
        The sites at the end.
    notes : tuple of str
        Which sites left and came, and when; empty where all stayed.
    n_questions, n_calls : int
        How many were asked, and how often sites were called.
    """

    roster: tuple[str, ...]
    notes: tuple[str, ...]
    n_questions: int
    n_calls: int


def federated_fit(
    model: ShapeAppearanceModel,
    transport: Transport,
    sites: Sequence[str],
    terms: Terms | None = None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> FederatedResult:
    """Fit a model to the images of several sites, none of which leave them.

    Parameters
    ----------
    model : ShapeAppearanceModel
        Its arguments say what to fit; it has no `latents_` afterwards, which sites keep.
    transport : Transport
    sites : list of str
        The sites that take part.
    terms : Terms, optional
    checkpoint : path, optional
        Written after every iteration, and gone on from if it exists.
    callback : callable, optional
        Called with the `Progress` after every iteration.

    Raises
    ------
    SitesLostError
        If a site does not answer and the fit may not go on without it. The same call goes on from
        the checkpoint.
    FederationError
        What a site refuses by.
    """
    terms = terms or Terms()
    if terms.is_secure and len(sites) < LEAST_SITES:
        raise RosterError(f"a masked sum needs at least {LEAST_SITES} sites, got {len(sites)}")
    description = _described(transport, sites, terms)
    arguments = model.get_params(deep=False) | {"likelihood": description.format.likelihood}
    settings = checked_settings(arguments, description.format, sys.maxsize, description.voxel_size)
    run = _Run(model, transport, tuple(sorted(sites)), terms, settings, checkpoint, callback)
    standing = run.to_the_end()
    _set_fitted(model, description, settings, standing.state)
    return FederatedResult(
        standing.roster, standing.notes, run.sites.n_questions, run.sites.n_calls
    )


class _Run:
    """The course of a fit: where it stands, and what to do about sites that fail."""

    def __init__(
        self,
        model: ShapeAppearanceModel,
        transport: Transport,
        names: tuple[str, ...],
        terms: Terms,
        settings: Settings,
        checkpoint: str | os.PathLike[str] | None,
        callback: Callable[[Progress], object] | None,
    ) -> None:
        self._model, self._transport, self._names = model, transport, names
        self._terms, self._checkpoint, self._callback = terms, checkpoint, callback
        self._seed = checked_seed(model.random_state)
        self._name = _fit_name(settings, self._seed)
        self.sites = FederatedSites(
            transport,
            settings,
            self._name,
            model.n_iter,
            is_secure=terms.is_secure,
            timeout=terms.timeout,
        )
        self._fit = Fit(self.sites, settings)
        self._n_failures = 0

    def to_the_end(self) -> Standing:
        """Iterate until the model has what it asks for."""
        standing, iterations = self._begin()
        ending = Ending(self._model.n_iter, self._model.tol)
        while not ending.is_reached(standing.state.objective):
            standing, iterations = self._with_those_who_returned(standing, iterations)
            try:
                state = next(iterations)
            except (SitesLostError, AnswerError) as error:
                standing, iterations = self._recover(standing, error)
                continue
            self._n_failures = 0
            standing = replace(standing, state=state, step=self.sites.step_before_turn)
            if self._checkpoint is not None:
                write_standing(self._checkpoint, self._name, standing)
            self.sites.keep_from = standing.step
            self._tell(state)
        return standing

    def _begin(self) -> tuple[Standing, Iterator[State]]:
        """Go on from the checkpoint, or start."""
        if self._checkpoint is not None and os.path.exists(self._checkpoint):
            standing = read_standing(self._checkpoint, self._name)
            logger.info("Going on after %d iterations", len(standing.state.objective))
            self.sites.keep_from = standing.step
            try:
                return self._stand_on(standing, standing.roster)
            except (SitesLostError, AnswerError) as error:
                return self._recover(standing, error)
        while True:
            try:
                return self._start()
            except (SitesLostError, AnswerError) as error:
                if self._given_up(self._names, error):
                    raise

    def _start(self) -> tuple[Standing, Iterator[State]]:
        self.sites.join(self._names)
        self.sites.restore(0)
        moments = self.sites.ask("moments")
        _check_components(self._model, moments.n_images)
        state = self._fit.start(moments, self._seed)
        self.sites.keep_from = self.sites.step
        return Standing(state, self.sites.step, self._names), self._fit.iterate(state)

    # ---- when sites fail

    def _stand_on(
        self, standing: Standing, roster: Sequence[str]
    ) -> tuple[Standing, Iterator[State]]:
        """Go back to where a fit stood, with the same sites or with others."""
        self.sites.join(roster)
        if set(roster) == set(standing.roster):
            self.sites.restore(standing.step)
            return standing, self._fit.iterate(standing.state)
        if standing.state.objective:
            self.sites.restore(standing.step, may_encode=True)
            state = self._fit.regroup(standing.state)
        else:  # latents are random numbers yet: others are as good
            self.sites.restore(0)
            parameters = standing.state.parameters
            state = self._fit.start_from(parameters.mean, parameters.noise_precision, self._seed)
        note = self._note(standing, roster)
        logger.warning("%s", note)
        standing = Standing(
            state,
            self.sites.step,
            self.sites.roster,
            (*standing.notes, note),
            standing.n_roster_changes + 1,
        )
        return standing, self._fit.iterate(state)

    def _recover(
        self, standing: Standing, error: FederationError
    ) -> tuple[Standing, Iterator[State]]:
        """Begin the iteration again with the same sites if they come back, or without them."""
        missing: set[str] = set()
        while True:
            missing |= self._given_up(standing.roster, error)
            roster = [name for name in standing.roster if name not in missing]
            if missing:
                self._check_may_go_on(standing, roster, error)
            try:
                found = self._stand_on(standing, roster)
            except (SitesLostError, AnswerError) as another:
                error = another
                continue
            if missing:
                self._n_failures = 0
            return found

    def _given_up(self, names: Sequence[str], error: FederationError) -> set[str]:
        """Wait until sites can be reached again; return those that are given up."""
        self._n_failures += 1
        logger.warning("%s", error)
        until = time.monotonic() + self._terms.patience
        while not set(names) <= set(self._transport.names) and time.monotonic() < until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        missing = set(names) - set(self._transport.names)
        if self._n_failures > self._terms.retries:
            if not isinstance(error, SitesLostError):
                raise error
            missing |= set(error.reasons) & set(names)
        return missing

    def _check_may_go_on(
        self, standing: Standing, roster: Sequence[str], error: FederationError
    ) -> None:
        least = LEAST_SITES if self._terms.is_secure else 1
        has_changes = standing.n_roster_changes < self._terms.roster_changes
        if not self._terms.may_go_on_without or len(roster) < least or not has_changes:
            raise error

    def _with_those_who_returned(
        self, standing: Standing, iterations: Iterator[State]
    ) -> tuple[Standing, Iterator[State]]:
        """Take sites back that can be reached again; go on as before if that fails."""
        away = set(self._names) - set(standing.roster)
        returned = away & set(self._transport.names)
        if not returned or standing.n_roster_changes >= self._terms.roster_changes:
            return standing, iterations
        try:
            return self._stand_on(standing, [*standing.roster, *returned])
        except (SitesLostError, AnswerError) as error:
            logger.warning("%s cannot come back yet: %s", ", ".join(sorted(returned)), error)
            return self._recover(standing, error)

    def _note(self, standing: Standing, roster: Sequence[str]) -> str:
        left = sorted(set(standing.roster) - set(roster))
        came = sorted(set(roster) - set(standing.roster))
        changes = [f"without {name}" for name in left] + [f"with {name} again" for name in came]
        return f"after iteration {len(standing.state.objective)}: on {', '.join(changes)}"

    def _tell(self, state: State) -> None:
        progress = Progress(
            len(state.objective),
            self._model.n_iter,
            state.latents.n_images,
            state.objective,
            state.seconds,
        )
        if self._model.verbose:
            print(progress, flush=True)
        if self._callback is not None:
            self._callback(progress)


def _described(transport: Transport, sites: Sequence[str], terms: Terms) -> Description:
    """Ask the sites that are there what kind of images they hold: all must say the same."""
    present = [name for name in sites if name in transport.names] or sites
    try:
        return described(transport, present, terms.timeout)
    except SitesLostError as error:
        others = [name for name in present if name not in error.reasons]
        if not others:
            raise
        return described(transport, others, terms.timeout)


def _fit_name(settings: Settings, seed: int) -> str:
    """Return a name for a fit, the same whenever it is asked for again."""
    facts = json.dumps([asdict(settings), seed])
    return hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()


def _check_components(model: ShapeAppearanceModel, n_images: int) -> None:
    n_latents = LatentLayout.named(model.latents, model.n_components).n_latents
    if n_latents > n_images - 1:
        raise ValueError(
            f"n_components must be at most the number of images less one, got {n_latents} for "
            f"{n_images} images at all sites"
        )


def _set_fitted(
    model: ShapeAppearanceModel, description: Description, settings: Settings, state: State
) -> None:
    origin = Origin(
        state.latents.n_images,
        description.affine,
        description.pad,
        state.seconds,
        description.suffix,
    )
    model._set_fitted(description.format, settings, state.parameters, list(state.objective), origin)
