"""One fit at one site: its images and latents, and its own copy of the fit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from anamorph.arrays.devices import to_host
from anamorph.federation.protocol.answers import Answer
from anamorph.federation.protocol.binding import concluded_transcript
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.errors import (
    SiteFailure,
    StaleStepError,
    VerificationError,
)
from anamorph.federation.protocol.plan import Plan, regrouped_transcript
from anamorph.federation.protocol.questions import NORMS
from anamorph.federation.site.holdings import Holdings
from anamorph.federation.site.part import Part
from anamorph.federation.site.replica import Question, Replica
from anamorph.federation.site.states import KeptState, StateStore
from anamorph.fitting.em import Fit
from anamorph.fitting.limits import Limits, clipped
from anamorph.fitting.placement import place_cohort
from anamorph.fitting.state import State
from anamorph.fitting.sums import Sums
from anamorph.model.pose_search import search_levels
from anamorph.model.posing import share_within

# The answer depends on the images alone, not on parameters or latents.
_ABOUT_IMAGES_ALONE = ("moments", "border_moments")
# Of what images of a site could have within the template's box, had they no mean pose.
_LEAST_WITHIN = 0.5
# How far an objective may fall: nats per image, and a share of the objective. Honest fits fall less
# than a sixth of that, also on noise.
_FALL_PER_IMAGE, _FALL_OF_OBJECTIVE = 3.0, 1e-4


def most_fall(objective: float, n_images: int) -> float:
    """Return how far an objective of some images may fall before a site stops a fit.

    It does not depend on how far it rose: a site could claim a low log-likelihood at first.
    """
    return _FALL_PER_IMAGE * n_images + _FALL_OF_OBJECTIVE * abs(objective)


class SiteFit(Part):
    """What a site keeps during a fit.

    Parameters
    ----------
    plan : Plan
    holdings : Holdings
        Of the site.
    folder : Path
        For states, and for sums that are too large for memory.

    Attributes
    ----------
    transcript : str
        Digest of all that led to the next question.
    roster : tuple of str
        The sites that take part since the last restore.
    """

    def __init__(self, plan: Plan, holdings: Holdings, folder: Path) -> None:
        super().__init__(plan.settings, plan.agreement)
        self.plan = plan
        self.store = StateStore(folder)
        self.cohort = place_cohort(
            holdings.machine, holdings.images, plan.settings, holdings.identities, scratch=folder
        )
        self._holdings = holdings
        self._replica: Replica | None = None
        self._lacks_latents = False
        self._roster_since = 0
        self._held: KeptState | None = None

    # ---- where the fit stands

    def begin(self, iteration: int, roster: Sequence[str]) -> None:
        """Go back to the state after an iteration, and continue with some sites.

        Parameters
        ----------
        iteration : int
            0: the beginning.
        roster : list of str
            If others took part before, latents are updated first (`Fit.regroup`).

        Raises
        ------
        StaleStepError
            If this site has no such state.
        """
        self.stop()
        plan, roster = self.plan, tuple(sorted(roster))
        kept = self.store.load(iteration, len(self._holdings.images)) if iteration else None
        if iteration and kept is None:
            raise StaleStepError(f"this site has no state after iteration {iteration}")
        self._bounds = Bounds(plan.settings, plan.agreement.largest, kept.norms if kept else None)
        self.transcript = kept.transcript if kept else plan.transcript
        if kept is not None and kept.latents is not None:
            self.cohort.restore(kept.latents, kept.poses)
        self._lacks_latents = kept is not None and kept.latents is None
        self._roster_since = kept.roster_since if kept else 0
        if kept is not None and kept.roster != roster:
            self._roster_since = len(kept.state.objective)
            self.transcript = regrouped_transcript(self.transcript, roster)
        elif self._lacks_latents:
            raise StaleStepError("this site was away: it comes back as a change of the roster")
        if kept is not None and self._lacks_latents and kept.confirmed_for != roster:
            raise StaleStepError(
                "the state that this site was given was confirmed by other sites than these"
            )
        self.roster = roster
        self._replica = Replica(
            plan.settings,
            plan.seed,
            plan.ending,
            lambda fit: _Checkpoints(self, fit, kept),
            self._keep_model,
        )

    def stop(self) -> None:
        """Forget where the fit stands, until a state is restored."""
        if self._replica is not None:
            self._replica.abandon()
        self._replica = self._held = None

    def hold(self, state: State) -> None:
        """Hold a state, and the latents and poses that go with it, if an iteration led to it.

        It is written when witnesses have confirmed the total that led to it: what is written can be
        restored, and analysed.
        """
        if state.turn is None:
            return
        self._check_objective(state.objective)
        latents = to_host(self.cohort.latents_before_turn).copy()
        self._held = KeptState(
            state,
            latents,
            self.transcript,
            dict(self._bounds.norms),
            self.roster,
            self.plan.settings,
            roster_since=self._roster_since,
            poses=self.cohort.poses.copy() if self.plan.settings.has_poses else None,
        )

    def _check_objective(self, objective: Sequence[float]) -> None:
        """Raise a VerificationError if the objective falls as it does in no honest fit.

        It does where a site claims larger latents than it has, to raise what bounds allow later, or
        calls steps a success that are none. The objective is about the images of the roster, so it
        is compared since the roster was the same.
        """
        since = objective[self._roster_since :]
        n_images = self.plan.agreement.n_images(self.roster)
        if max(since) - since[-1] > most_fall(max(since), n_images):
            raise VerificationError(
                f"the objective fell from {max(since):.7g} to {since[-1]:.7g} in iteration "
                f"{len(objective)}: honest fits do not fall so far; a site answers wrong numbers, "
                "or intensities or settings are far from what is usual"
            )

    def keep_held(self) -> None:
        """Write the state that is held, if there is one: the witnesses have confirmed it."""
        if self._held is not None:
            self.store.save(self._held)
            self._held = None

    def _keep_model(self, state: State) -> None:
        """Write the model at the end of the fit, for analyses."""
        settings = replace(
            self.plan.settings,
            prediction_weight=state.prediction_weight,
            independent_share=state.independent_share,
        )
        self.store.save_model(settings, state.parameters)

    # ---- questions

    def question(self) -> Question:
        """Return the question that comes next."""
        if self._replica is None:
            raise StaleStepError("this site does not know where the fit stands: restore a state")
        with self._holdings.machine.threads():
            question = self._replica.next_question()
        if question is None:
            raise StaleStepError("the fit is finished: there are no more questions")
        return question

    def content(self, question: Question) -> str:
        """Return the digest of everything that the answer depends on here."""
        if question.name in _ABOUT_IMAGES_ALONE:
            return question.name
        digest = hashlib.blake2b(question.name.encode(), digest_size=16)
        digest.update(self.transcript.encode())
        digest.update(to_host(self.cohort.latents).tobytes())
        digest.update(self.cohort.poses.tobytes())
        return digest.hexdigest()

    def answer(self, question: Question, limits: Limits) -> Answer:
        """Answer a question, with contributions of images within limits."""
        with self._holdings.machine.threads():
            if question.parameters is not None:
                self.cohort.publish(question.parameters.beside(self.cohort.namespace))
            if self._lacks_latents:
                assert question.parameters is not None
                encoded = self._holdings.encoded(self.plan.settings, question.parameters)
                self.cohort.restore(encoded.latents, encoded.poses)
                self._lacks_latents = False
            arguments = dict(question.arguments)
            if "seed" in arguments:
                arguments["seed"] = self._holdings.seed(arguments["seed"])
            self.cohort.limits = limits
            sums = self.cohort.answer(question.name, question.move, **arguments).in_memory()
        if question.move is not None and question.move.pose is not None:
            self._check_poses()
        schema = self.schema(question)
        if NORMS[0] in schema.shapes:
            norms = zip(NORMS, self.cohort.squared_norms, strict=True)
            fields = {name: np.asarray(value) for name, value in norms}
            sums = Sums(sums.n_images, sums.fields | fields)
        if {name: value.shape for name, value in sums.fields.items()} != schema.field_shapes:
            raise SiteFailure(f"the sums of {question.name} have wrong shapes")
        bounds = self._bounds.of_fields(question.name, limits, schema)
        return Answer(_bounded(sums, bounds), schema)

    def _check_poses(self) -> None:
        """Raise a VerificationError if the images of this site are taken out of the template.

        A site that claims poses far away moves all images by their mean. At voxels that few images
        reach then, totals would be about those few.
        """
        poses, (frame, *_) = self.cohort.poses, search_levels(self.plan.settings)
        centred = frame.composed(-poses.mean(axis=0, keepdims=True), poses)
        if share_within(frame, poses) < _LEAST_WITHIN * share_within(frame, centred):
            raise VerificationError(
                "the mean pose takes half of the images of this site out of the template: a site "
                "answers wrong numbers, or objects are elsewhere in the images of this site than "
                "in those of others; move or crop the images first"
            )

    def give(self, question: Question, total: Sums, decisions: Sequence[bool], fact: bytes) -> None:
        """Give a verified total to the copy of the fit, which runs to its next question.

        Parameters
        ----------
        question : Question
        total : Sums
        decisions : list of bool
            Which steps the coordinator took (`Replica.give`).
        fact : bytes
            The question and the digest of its total, for the transcript.
        """
        assert self._replica is not None
        self.transcript = concluded_transcript(self.transcript, fact, decisions)
        sums = self._bounds.learn(question.name, total, question.parameters)
        with self._holdings.machine.threads():
            self._replica.give(sums, decisions)


class _Checkpoints:
    """Where the copy of a fit begins, and what it keeps (`fitting.run.Checkpoints`)."""

    def __init__(self, site_fit: SiteFit, fit: Fit, kept: KeptState | None) -> None:
        self._site_fit, self._fit, self._kept = site_fit, fit, kept

    def read(self) -> State | None:
        if self._kept is None:
            return None
        if self._kept.roster == self._site_fit.roster:
            return self._kept.state
        return self._fit.regroup(self._kept.state)

    def write(self, state: State) -> None:
        self._site_fit.hold(state)


def _bounded(sums: Sums, bounds: Mapping[str, float]) -> Sums:
    """Return sums that are finite and within bounds, so that each fits its fixed-point range.

    Contributions of images are within bounds already where they could be bounded one by one: large
    sums of derivatives, and nearly all others.
    """
    fields = dict(sums.fields)
    for name, field in fields.items():
        if not isinstance(field, np.memmap):
            limit = sums.n_images * bounds[name]
            fields[name] = clipped(field, limit)
    return Sums(sums.n_images, fields)
