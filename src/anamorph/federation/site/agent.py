"""The agent of a site: only it holds images and latents, and only it decides what leaves.

One method takes every message. Messages have an exact form (`protocol.schemas`), questions come in
the order of the algorithm (`replica`), each goes through the phases of a `Round`, and a total is
used only when it is verified. The coordinator numbers questions as steps, which only grow. After
any failure it restores the state after an iteration, and continues with a new step.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.arrays.devices import Machine
from anamorph.federation.protocol.agreement import Agreement, signed_holdings, verified_agreement
from anamorph.federation.protocol.binding import Binding
from anamorph.federation.protocol.bounds import check_exponents
from anamorph.federation.protocol.errors import (
    FederationError,
    MessageError,
    SiteFailure,
    StaleStepError,
    StorageError,
    VerificationError,
)
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.plan import Plan
from anamorph.federation.protocol.questions import check_arguments
from anamorph.federation.protocol.schemas import check_message
from anamorph.federation.protocol.sketches import differ
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.analysis import SiteAnalysis, find_model
from anamorph.federation.site.asked import Asked
from anamorph.federation.site.audit import AuditLog
from anamorph.federation.site.fit import SiteFit
from anamorph.federation.site.holdings import Holdings
from anamorph.federation.site.ledger import Ledger
from anamorph.federation.site.part import Part
from anamorph.federation.site.policy import Policy
from anamorph.federation.site.replica import Question
from anamorph.federation.site.returning import ReturningState, signed_sketch
from anamorph.federation.site.round import Offer, Round
from anamorph.fitting.run import Ending
from anamorph.images.collection import ImageCollection
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import parameter_arrays, settings_from

logger = logging.getLogger("anamorph")

_IMAGES_AT_A_TIME = 64
_SECRET_BYTES = 32
_LONGEST_TEXT = 1000  # of a refusal, which may repeat what was sent
_ANALYSIS = "analysis"  # the plan of all analyses: none can take the name of a fit
# What happens to honest fits: it does not count as a refusal.
_FAULTS = (StaleStepError, StorageError, SiteFailure)


class SiteAgent:
    """Answers the messages of a coordinator, under the policy of a site.

    Parameters
    ----------
    name : str
        Name of the site, the same at all sites.
    images : ImageCollection
        All N images of the site, opened as for a fit.
    policy : Policy
        What may be asked.
    folder : Path
        For states of fits, the ledger, the audit log and the secret of the site. Give the same
        folder after a restart.
    identity : Identity
        The key that the site signs with, and the certificates of all sites.
    identities : N texts or numbers, optional
        One for each image, unique over all sites. By default the identities of `images`, prefixed
        with the name of the site.
    columns : dict, optional
        N values for each column by which analyses may group or weight images. By default none.
    memory_budget : int, optional
        Bytes for a batch of images. By default as in `ShapeAppearanceModel`.
    n_threads : int, optional
        By default all processors.
    device : {"cpu", "cuda", "auto"}, default "cpu"
    secret : bytes, optional
        Starting latents are drawn with it. By default it is drawn at random the first time, and
        kept in the folder. Empty: latents are drawn as by a fit on one machine, and anybody who
        knows the identities of the images knows them.
    """

    def __init__(
        self,
        name: str,
        images: ImageCollection,
        policy: Policy,
        folder: Path,
        identity: Identity,
        *,
        identities: Sequence[int | str] | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        memory_budget: int | None = None,
        n_threads: int | None = None,
        device: str = "cpu",
        secret: bytes | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.images = images
        self.policy = policy
        self.folder = folder
        self.identity = identity
        self.audit = AuditLog(folder / "audit.jsonl")
        self._ledger = Ledger(folder / "ledger.jsonl", policy)
        if identities is None:
            identities = [f"{name}/{identity}" for identity in images.identities]
        machine = Machine(device, n_threads, memory_budget)
        secret = _kept_secret(folder / "secret") if secret is None else secret
        self._holdings = Holdings(images, identities, secret, columns or {}, policy, machine)
        self._exponent: int | None = None
        self._lock = threading.Lock()
        self._fit: SiteFit | None = None
        self._analysis: SiteAnalysis | None = None
        self._returning: ReturningState | None = None
        self._offer: Offer | None = None
        self._asked: Asked | None = None
        self._tasks: dict[str, Callable[[Message], Message]] = {
            "describe": self._describe,
            "join": self._join,
            "restore": self._restore,
            "sketch": self._sketch,
            "adopt": self._adopt,
            "adopted": self._adopted,
            "confirm": self._confirm,
            "open": self._open,
            "ask": self._ask,
            "block": self._block,
            "total": self._total,
            "reveal": self._reveal,
            "witness": self._witness,
            "settle": self._settle,
            "keep": self._keep,
        }

    def handle(self, message: Message) -> Message:
        """Answer a message, or refuse it.

        Parameters
        ----------
        message : dict
            ``do`` names the task; what else it holds depends on the task.

        Returns
        -------
        dict
            The answer, or the name of an ``error`` and one line of ``text``.
        """
        with self._lock:
            try:
                self._ledger.check_refusals()
                check_message(message)
                return self._tasks[message["do"]](message)
            except VerificationError as error:
                return self._stop(message, error)
            except FederationError as error:
                return self._refuse(message, error)
            except OSError as error:
                text = f"the disk of this site fails ({error.strerror}): make space"
                return self._refuse(message, StorageError(text))
            except Exception:  # its text may name files, so it stays in the site's log
                logger.exception("The agent of %s failed", self.name)
                return self._refuse(message, SiteFailure("the log of this site says why"))

    def _refuse(self, message: Message, error: FederationError) -> Message:
        """Forget the question, so that only a restored state leads on; log and tell the error."""
        if isinstance(error, SiteFailure) and error.__cause__ is not None:
            logger.error("The agent of %s failed", self.name, exc_info=error.__cause__)
        self._forget_question()
        name = type(error).__name__
        try:
            if not isinstance(error, _FAULTS):
                self._ledger.note_refusal()
            asked = {
                key: str(message[key])[:100]
                for key in ("do", "fit", "step", "question")
                if key in message
            }
            text = str(error)[:_LONGEST_TEXT]
            self.audit.write(event="refused", error=name, text=text, **asked)
        except StorageError as second:
            name, text = type(second).__name__, str(second)
        return {"error": name, "text": text}

    def _stop(self, message: Message, error: VerificationError) -> Message:
        """Stop a fit for good: what could not be verified is not tried again."""
        fit = message.get("fit")
        logger.error("%s stops fit %s: %s", self.name, fit, error)
        try:
            if self._fit is not None and fit == self._fit.plan.name:
                self._fit.stop()
                self._fit = None
            if isinstance(fit, str):
                self._ledger.stop(fit, str(error))
            self.audit.write(event="stopped", fit=str(fit), text=str(error))
        except FederationError as second:
            return self._refuse(message, second)
        return self._refuse(message, error)

    def _forget_question(self) -> None:
        self._asked = self._offer = None
        if self._fit is not None:
            self._fit.stop()

    # ---- joining a fit

    def _describe(self, message: Message) -> Message:
        """Describe the properties of the images that sites must agree on."""
        self.policy.check_images(len(self.images))
        images = self.images
        held = signed_holdings(self.identity, len(images), self._intensity_exponent())
        self.audit.write(event="described", n_images=len(images), exponent=held["exponent"])
        return {
            "format": asdict(images.format),
            "voxel_size": None if images.voxel_size is None else list(images.voxel_size),
            "affine": images.affine,
            "pad": images.pad,
            "suffix": images.suffix,
            "holdings": held,
        }

    def _intensity_exponent(self) -> int:
        """Return e such that four times every intensity is below 2^e, coarse on purpose."""
        if self._exponent is None:
            images, largest = self.images, 1.0
            likelihood = LIKELIHOODS[images.format.likelihood]
            if not math.isfinite(likelihood.value_range[1]):
                largest = max(
                    _largest_magnitude(images.read(slice(first, first + _IMAGES_AT_A_TIME)))
                    for first in range(0, len(images), _IMAGES_AT_A_TIME)
                )
            self._exponent = math.frexp(4 * max(largest, 1e-30))[1]
        return self._exponent

    def _join(self, message: Message) -> Message:
        """Join a fit, whose plan is in the message."""
        name, settings = message["fit"], _checked_settings(message["settings"])
        self.policy.check_images(len(self.images))
        self.policy.check_settings(settings, message["n_iter"])
        self._check_format(settings)
        agreement = self._agreed(message["holdings"])
        self._check_numbers(agreement.counts, settings, message["n_iter"])
        ending = Ending(message["n_iter"], message["tol"])
        plan = Plan(name, settings, message["seed"], ending, agreement)
        self._ledger.begin(name, dict(agreement.counts), message["n_iter"], plan.fixed)
        self._forget_question()
        if self._fit is None or self._fit.plan != plan:
            self._returning = None  # it has the form of another fit
            self._fit = SiteFit(plan, self._holdings, self.folder / "fits" / name)
        self.audit.write(
            event="joined",
            fit=name,
            n_iter=message["n_iter"],
            settings=plan.transcript,
            images=dict(agreement.counts),
        )
        return {
            "step": self._ledger.last_step(name),
            "iterations": self._fit.store.iterations(),
        }

    def _check_numbers(
        self, counts: Mapping[str, int], settings: Settings, n_iterations: int
    ) -> None:
        """Refuse a fit that tells too much about so many images at some sites."""
        self.policy.check_counts(counts)
        n_images, n_latents = sum(counts.values()), settings.layout.n_latents
        self.policy.check_total(n_images, n_latents)
        self.policy.check_weighted_sums(n_images, n_latents, n_iterations)

    def _agreed(self, holdings: Mapping[str, Message]) -> Agreement:
        """Return the agreement, if it says of this site what is true."""
        own = holdings.get(self.name)
        truth = {"n_images": len(self.images), "exponent": self._intensity_exponent()}
        if own is None or {name: own[name] for name in truth} != truth:
            raise MessageError("the images of this site are not those that were agreed on")
        return verified_agreement(self.identity, holdings)

    def _check_format(self, settings: Settings) -> None:
        given = (settings.likelihood_name, settings.space, settings.n_channels)
        own = self.images.format
        if given != (own.likelihood, own.space, own.n_channels):
            raise MessageError(
                f"images here are {own.likelihood}, {own.space} with {own.n_channels} channels, "
                f"but the fit is for {given[0]}, {given[1]} with {given[2]}"
            )

    def _restore(self, message: Message) -> Message:
        """Go back to the state after an iteration (0: the beginning), with some sites."""
        fit, step, roster = self._joined(message), message["step"], message["roster"]
        plan, counts = fit.plan, fit.plan.agreement.counts
        self._check_roster(roster, counts)
        # Sites that agreed and are not asked do not hide anybody.
        asked = {name: counts[name] for name in roster}
        self._check_numbers(asked, plan.settings, plan.ending.n_iter)
        self._forget_question()
        self._ledger.take_step(fit.plan.name, step)
        fit.begin(message["iteration"], roster)
        self.audit.write(
            event="restored",
            fit=fit.plan.name,
            iteration=message["iteration"],
            step=step,
            roster=list(fit.roster),
        )
        return {"offer": self._next_offer(fit.plan.name, step + 1)}

    def _joined(self, message: Message) -> SiteFit:
        if self._fit is None or self._fit.plan.name != message["fit"]:
            raise StaleStepError(f"this site has not joined fit {message['fit']}, or was restarted")
        return self._fit

    def _check_roster(self, roster: list[str], counts: Mapping[str, int]) -> None:
        strangers = sorted(set(roster) - counts.keys())
        if strangers:
            raise MessageError(f"{', '.join(strangers)} did not agree on this fit from the start")
        self.policy.check_roster(self.name, roster, is_masked=self.policy.secure_sum)
        self.identity.check_roster(roster)

    def _next_offer(self, fit: str, step: int) -> Message:
        self._offer = Offer(self.identity, fit, step)
        return self._offer.message

    # ---- coming back to a fit

    def _sketch(self, message: Message) -> Message:
        """Sign a sketch of the own state, for a site that was away."""
        fit, iteration = self._joined(message), message["iteration"]
        kept = fit.store.load(iteration, len(self.images))
        if kept is None:
            raise StaleStepError(f"this site has no state after iteration {iteration}")
        self.audit.write(event="sketched", fit=message["fit"], iteration=iteration)
        return signed_sketch(self.identity, message["fit"], kept, message["nonce"])

    def _adopt(self, message: Message) -> Message:
        fit = self._joined(message)
        if self._returning is None:
            self._returning = ReturningState(fit.plan.settings)
        self._returning.take_block(message["array"], message["start"], message["values"])
        return {}

    def _adopted(self, message: Message) -> Message:
        fit, iteration = self._joined(message), message["iteration"]
        if self._returning is None:
            raise StaleStepError("no state was sent to this site")
        nonce = self._returning.complete(message["facts"], iteration)
        own = fit.store.load(iteration, len(self.images))
        if own is not None and own.is_own and own.transcript == message["facts"]["transcript"]:
            raise MessageError("this site has that state itself, and takes no other for it")
        return {"nonce": nonce}

    def _confirm(self, message: Message) -> Message:
        fit, returning = self._joined(message), self._returning
        if returning is None:
            raise StaleStepError("no state was sent to this site")
        self._returning = None
        self._check_roster(message["roster"], fit.plan.agreement.counts)
        self._ledger.take_step(fit.plan.name, message["step"])
        kept = returning.confirmed(
            self.identity, fit.plan.name, message["roster"], message["sketches"]
        )
        self._ledger.adopt(fit.plan.name)
        fit.store.save(kept)
        self.audit.write(event="adopted", fit=fit.plan.name, iteration=len(kept.state.objective))
        return {}

    # ---- analyses

    def _open(self, message: Message) -> Message:
        """Open a model that this site has computed, for an analysis."""
        name, roster = message["fit"], message["roster"]
        self.policy.check_question("statistics")
        self.policy.check_images(len(self.images))
        agreement = self._agreed(message["holdings"])
        self._check_roster(roster, agreement.counts)
        self.policy.check_counts({name: agreement.counts[name] for name in roster})
        settings, parameters, fit = find_model(self.folder / "fits", message["summary"])
        self._forget_question()
        self._ledger.begin(name, dict(agreement.counts), None, _ANALYSIS)
        last = self._ledger.last_step(name)
        step = max(message["step"], last + 1)
        self._ledger.take_step(name, step)
        self._analysis = SiteAnalysis(
            name,
            settings,
            parameters,
            message["summary"],
            fit,
            agreement,
            roster,
            self._holdings,
            self.folder / "analyses.jsonl",
        )
        self.audit.write(event="opened", fit=name, roster=roster, step=step)
        return {"step": step, "offer": self._next_offer(name, step + 1)}

    # ---- questions

    def _ask(self, message: Message) -> Message:
        """Answer the next question: mask the answer, and return its signed hash."""
        part = self._part(message)
        roster = tuple(message["roster"])
        self.policy.check_question(message["question"])
        self.policy.check_roster(self.name, list(roster), message["is_masked"])
        self.identity.check_roster(roster)
        if roster != part.roster:
            raise StaleStepError(f"this site is asked with {', '.join(part.roster)} since restored")
        verdict = self._conclude(message)
        question = self._expected(part, message)
        limits = part.limits(question)
        check_exponents(message["exponents"], part.exponents(question, limits))
        binding = Binding(
            message["fit"],
            message["step"],
            question.name,
            roster,
            message["is_masked"],
            part.transcript,
            message["exponents"],
        )
        if self._offer is None:
            raise StaleStepError(f"no key was offered for step {message['step']}")
        current = Round(
            self.identity, binding, part.schema(question), self._offer, message["offers"]
        )
        self._offer = None
        self._ledger.admit(
            message["fit"], message["step"], question.name, roster, part.content(question)
        )
        sealed = current.seal(part.answer(question, limits))
        earlier = self._asked
        before = None if earlier is None or earlier.round.is_accepted else earlier.round
        self._asked = Asked(part, question, limits, current, before)
        return {**sealed, "verdict": verdict}

    def _part(self, message: Message) -> Part:
        """Return the fit or analysis that a message is about."""
        analysis = self._analysis
        if analysis is not None and analysis.name == message["fit"]:
            check_arguments(message["arguments"])
            analysis.take_arguments(message["arguments"], message["is_masked"])
            return analysis
        if not isinstance(message["arguments"], dict) or message["arguments"]:
            raise MessageError("questions of a fit take no arguments: sites know what they are")
        return self._joined(message)

    def _expected(self, part: Part, message: Message) -> Question:
        """Return the question that comes next here, if it is the one that is asked."""
        question = part.question()
        if question.name != message["question"]:
            raise VerificationError(
                f"{message['question']} is asked, but {question.name} comes next in this fit"
            )
        given = message["summary"]
        if question.parameters is None or given is None:
            return question
        if differ(parameter_arrays(question.parameters), given):
            raise VerificationError(
                "the parameters of the coordinator are not those that follow from the totals"
            )
        return question

    def _conclude(self, message: Message) -> bytes | None:
        """Check the checksums of the question before, if any, and use its total."""
        asked = self._asked
        if asked is None or asked.is_given:
            return None
        if message["checksums"] is None:
            raise StaleStepError("the checksums of the question before are missing")
        verdict = self._settled(asked, message)
        asked.give(message["decisions"])
        return verdict

    def _settled(self, asked: Asked, message: Message) -> bytes | None:
        """Check the checksums of a question; return the verdict of this site if it is a witness."""
        verdict = asked.settle(message["checksums"], message["masked"])
        if verdict is not None:
            self._note("witnessed", asked, of=asked.round.witnessed)
        return verdict

    def _block(self, message: Message) -> Message:
        """Send a masked block, after the witnesses of the question before have confirmed."""
        asked = self._current(message)
        asked.accept_before(message["verdicts"])
        index = message["index"]
        block = asked.round.release(index, message["answers"])
        if index == 0:
            self._record(asked)
        else:
            self._note("sent", asked, block=index)
        return {"block": block}

    def _total(self, message: Message) -> Message:
        """Take a block of the total; after the last, sign what has arrived."""
        asked = self._current(message)
        reply = asked.round.take_total(message["index"], message["block"])
        if reply:
            self._note("signed", asked, total=asked.digest)
        return reply

    def _reveal(self, message: Message) -> Message:
        """Check that all saw the same total; sign checksums, and offer the next key."""
        asked = self._current(message)
        reply = asked.round.reveal(message["totals"])
        return {**reply, "offer": self._next_offer(message["fit"], message["step"] + 1)}

    def _witness(self, message: Message) -> Message:
        asked = self._current(message)
        asked.round.witness(message["site"], message["index"], message["block"])
        return {}

    def _settle(self, message: Message) -> Message:
        """Check the checksums of the last question of an iteration or analysis."""
        return {"verdict": self._settled(self._current(message), message)}

    def _keep(self, message: Message) -> Message:
        """Use the total of the last question, which completes an iteration or analysis."""
        asked = self._current(message)
        asked.round.accept(message["verdicts"])
        asked.give(message["decisions"])
        self._note("verified", asked, total=asked.digest)
        iterations = [] if self._fit is None else self._fit.store.iterations()
        return {"iterations": iterations}

    def _current(self, message: Message) -> Asked:
        asked = self._asked
        if asked is None or (message["fit"], message["step"]) != asked.place:
            raise StaleStepError(f"this site does not work on step {message['step']}")
        return asked

    def _note(self, event: str, asked: Asked, **facts: Any) -> None:
        """Write a line about a phase of a question, before what it is about leaves."""
        fit, step = asked.place
        self.audit.write(event=event, fit=fit, step=step, **facts)

    def _record(self, asked: Asked) -> None:
        schema, binding = asked.round.schema, asked.round.binding
        self.audit.write(
            event="answered",
            fit=binding.fit,
            step=binding.step,
            question=binding.question,
            fields={name: list(shape) for name, shape in schema.field_shapes.items()},
            n_images=len(self.images),
            bytes=8 * schema.length,
            masked=binding.is_masked,
            roster=list(binding.roster),
            transcript=binding.transcript,
            parameters=asked.parameters_digest,
            answer=asked.round.answer_digest.hex(),
        )


def _checked_settings(facts: Any) -> Settings:
    try:
        return settings_from(facts)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise MessageError("the settings are not those of a fit of this version") from None


def _largest_magnitude(images: Any) -> float:
    if np.isinf(images).any():
        raise MessageError("images here have infinite values: what is missing is NaN")
    finite = np.abs(images[np.isfinite(images)])
    return float(finite.max()) if finite.size else 0.0


def _kept_secret(path: Path) -> bytes:
    """Return the secret of the site, drawn when it is needed for the first time."""
    if not path.exists() or path.stat().st_size < _SECRET_BYTES:
        file = os.open(path, os.O_CREAT | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(secrets.token_bytes(_SECRET_BYTES))
            stream.flush()
            os.fsync(file)
    return path.read_bytes()
