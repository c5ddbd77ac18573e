"""A fit across sites: if sites fail, it waits for them, continues without them, or stops cleanly.

The driver of every fit (`fitting.run`) iterates and keeps the state after each iteration. When a
site fails, the driver is called again and resumes from that state: with the same sites the
iteration is repeated and gives the same numbers; with others, see `checkpoint`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation.coordinator.checkpoint import (
    FederatedCheckpoints,
    Standing,
    read_holdings,
)
from anamorph.federation.coordinator.description import Description, described
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.errors import AnswerError, FederationError, SitesLostError
from anamorph.federation.protocol.plan import Plan
from anamorph.federation.protocol.roster import LEAST_SITES, check_enough_sites
from anamorph.federation.protocol.transport import Transport
from anamorph.federation.protocol.wire import Message
from anamorph.fitting.em import Fit
from anamorph.fitting.run import Ending, Progress, run_fit, told
from anamorph.fitting.state import State
from anamorph.model.checks import ArgumentError, checked_seed
from anamorph.model.settings import checked_settings
from anamorph.storage.checkpoint import fit_fingerprint

logger = logging.getLogger("anamorph")

_SECONDS_BETWEEN_LOOKS = 0.5
# What may be over when the iteration is repeated, perhaps without a site.
_FAILURES = (SitesLostError, AnswerError)


@dataclass(frozen=True)
class Terms:
    """What a fit across sites does when they fail, and whether they mask their sums.

    Attributes
    ----------
    is_secure : bool
        Whether sites mask their sums, which takes at least three of them; they do by default.
    timeout : float or None
        Seconds that a site may take for an answer; by default any time.
    patience : float
        Seconds to wait for a site that failed, 60 by default.
    retries : int
        How often an iteration is repeated with the same sites, 3 by default.
    may_go_on_without : bool
        Whether to continue without a site that does not come back, and to take it back when it
        does; by default the fit stops.
    roster_changes : int
        How often the sites of the fit may change, 2 by default.
    """

    is_secure: bool = True
    timeout: float | None = None
    patience: float = 60.0
    retries: int = 3
    may_go_on_without: bool = False
    roster_changes: int = 2


@dataclass(frozen=True)
class FederatedResult:
    """The result of a fit across sites, besides the model.

    Attributes
    ----------
    roster : tuple of str
        The sites at the end.
    notes : tuple of str
        Which sites left and came back, and when; empty where all stayed.
    n_questions, n_calls : int
        Number of questions, and of calls of all sites that they took.
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
        Its arguments say what to fit. It has no `latents_` afterwards: sites keep them.
    transport : Transport
        How to reach the sites.
    sites : list of str
        The sites that take part.
    terms : Terms, optional
    checkpoint : path, optional
        Written after every iteration, and resumed from if it exists.
    callback : callable, optional
        Called with the `Progress` after every iteration.

    Returns
    -------
    FederatedResult
        The model is fitted in place.

    Raises
    ------
    SitesLostError
        If a site does not answer and the fit may not continue without it. The same call resumes
        from the checkpoint.
    FederationError
        The refusal of a site, with its name.
    """
    check_levels(model)
    terms = terms or Terms()
    if terms.is_secure:
        check_enough_sites(len(sites))
    names = tuple(sorted(sites))
    description = _described(transport, names, terms)
    arguments = model.get_params(deep=False) | {"likelihood": description.format.likelihood}
    settings = checked_settings(arguments, description.format, sys.maxsize, description.voxel_size)
    if settings.has_residuals:
        raise ArgumentError(
            f"residual must be 'none' across sites, got {settings.residual!r}: residual warps are "
            "learnt on one machine"
        )
    seed = checked_seed(model.random_state)
    name = fit_fingerprint(settings, seed, n_bytes=8)  # the same whenever the fit is resumed
    holdings = _agreed_holdings(description, names, checkpoint)
    federated = FederatedSites(
        transport, settings, name, holdings, is_secure=terms.is_secure, timeout=terms.timeout
    )
    ending = Ending(model.n_iter, model.tol)
    fit = Fit(federated, settings, federated.judge)
    plan = Plan(name, settings, seed, ending, federated.agreement)
    checkpoints = FederatedCheckpoints(fit, federated, plan, checkpoint)
    attendance = _Attendance(transport, names, terms, checkpoints)
    tell = told(model.verbose, callback)

    def tell_of_success(progress: Progress) -> None:
        attendance.forgive()
        tell(progress)

    while True:
        try:
            state = run_fit(
                fit,
                seed,
                ending,
                tell=tell_of_success,
                checkpoints=checkpoints,
                regroup=attendance.take_back,
            )
            federated.complete()
            break
        except _FAILURES as error:
            attendance.recover(error)
    model._take(state, settings, description)
    standing = checkpoints.standing
    assert standing is not None
    return FederatedResult(
        standing.roster, standing.notes, federated.n_questions, federated.n_calls
    )


def check_levels(model: ShapeAppearanceModel) -> None:
    """Raise an ArgumentError unless a model is fitted on one grid: sites agree on no others."""
    if model.levels != 1:
        raise ArgumentError(
            f"levels must be 1 in a federation, whose sites agree on one grid, got {model.levels!r}"
        )


@dataclass
class _Attendance:
    """Which sites take part: it waits for sites that fail, gives them up, and takes them back.

    Attributes
    ----------
    transport : Transport
    names : tuple of str
        All sites of the fit.
    terms : Terms
    checkpoints : FederatedCheckpoints
    n_failures : int
        How often an iteration failed in a row.
    failing : tuple of str
        The roster with which it failed; empty before the first time.
    missing : set of str
        Those of them that are given up.
    unable : set of str
        Sites that could not come back, and are not asked again before an iteration is done.
    """

    transport: Transport
    names: tuple[str, ...]
    terms: Terms
    checkpoints: FederatedCheckpoints
    n_failures: int = 0
    failing: tuple[str, ...] = ()
    missing: set[str] = field(default_factory=set)
    unable: set[str] = field(default_factory=set)

    def forgive(self) -> None:
        """Count failures from 0 again, after an iteration that was finished."""
        self.n_failures, self.unable = 0, set()

    def recover(self, error: FederationError) -> None:
        """Choose the sites to resume with: the same ones if they come back, or those that are left.

        Raises
        ------
        FederationError
            The one given, if the fit may not continue.
        """
        standing = self.checkpoints.standing
        roster = self.names if standing is None else standing.roster
        if roster != self.failing:
            self.failing, self.missing, self.n_failures = roster, set(), 0
        self.missing |= self._given_up([n for n in roster if n not in self.missing], error)
        left = tuple(name for name in roster if name not in self.missing)
        if self.missing and not self._may_continue(standing, left):
            raise error
        self.checkpoints.roster = left

    def take_back(self, state: State) -> State:
        """Return the state with sites that can be reached again, where there are any."""
        standing = self.checkpoints.standing
        if standing is None:  # all sites are there before the first iteration
            return state
        returned = (set(self.names) - set(standing.roster)) & set(self.transport.names)
        returned -= self.unable
        if not returned or len(standing.notes) >= self.terms.roster_changes:
            return state
        try:
            return self.checkpoints.resume_with([*standing.roster, *returned])
        except _FAILURES as error:
            logger.warning("%s cannot come back yet: %s", ", ".join(sorted(returned)), error)
            self.unable = returned
            raise

    def _given_up(self, names: Sequence[str], error: FederationError) -> set[str]:
        """Wait until sites can be reached again; return those that are given up."""
        self.n_failures += 1
        logger.warning("%s", error)
        until = time.monotonic() + self.terms.patience
        while not set(names) <= set(self.transport.names) and time.monotonic() < until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        missing = set(names) - set(self.transport.names)
        if self.n_failures > self.terms.retries:
            if not isinstance(error, SitesLostError):
                raise error
            missing |= set(error.reasons) & set(names)
        return missing

    def _may_continue(self, standing: Standing | None, left: Sequence[str]) -> bool:
        """Tell whether the fit may continue with the sites that are left."""
        least = LEAST_SITES if self.terms.is_secure else 1
        return (
            standing is not None
            and self.terms.may_go_on_without
            and len(left) >= least
            and len(standing.notes) < self.terms.roster_changes
        )


def _agreed_holdings(
    description: Description, names: Sequence[str], checkpoint: str | os.PathLike[str] | None
) -> dict[str, Message]:
    """Return what all sites of the fit signed about their images, now or when it began.

    Raises
    ------
    SitesLostError
        If a site is missing at the beginning: what it holds must be agreed on.
    """
    holdings = dict(description.holdings)
    if checkpoint is not None and os.path.exists(checkpoint):
        known = read_holdings(checkpoint) | holdings
        return {name: held for name, held in known.items() if name in names}
    missing = set(names) - holdings.keys()
    if missing:
        raise SitesLostError(dict.fromkeys(missing, "it must be there when the fit begins"))
    return holdings


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
