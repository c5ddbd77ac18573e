"""The agent of a site: it alone holds images and latents, and it alone decides what leaves.

One method takes every message. A question is answered in steps, numbered by the coordinator: the
next one is answered, the last one is answered again without being applied again, and any other is
refused. Latents are on the disk of the site after every step that changes them; a coordinator
that lost its way, or a site that was started again, goes back to one of those steps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.federation.protocol.answers import Answer
from anamorph.federation.site.audit import AuditLog
from anamorph.federation.protocol.errors import (
    FederationError,
    MessageError,
    PolicyError,
    SiteFailure,
    StaleStepError,
    StorageError,
)
from anamorph.federation.masking.identity import Identity
from anamorph.federation.site.ledger import Ledger
from anamorph.federation.masking.occasions import Masking
from anamorph.federation.site.policy import Policy
from anamorph.federation.protocol.questions import check_arguments
from anamorph.federation.site.site_fit import SiteFit
from anamorph.federation.protocol.wire import Message
from anamorph.images.collection import ImageCollection
from anamorph.storage.modelfile import settings_from
from anamorph.kernels.threads import one_blas_thread, use_threads
from anamorph.model.settings import Settings
from anamorph.fitting.sums import ANALYSES, FIELDS

logger = logging.getLogger("anamorph")

# Sums of nothing, or of random numbers that know nothing of the images: anyone may see them.
_HARMLESS = ("start_latents", "transform_latents", "keep_displacements")


class SiteAgent:
    """Answers the messages of a coordinator, under the policy of a site.

    Parameters
    ----------
    name : str
        Of the site, as all sites know it.
    images : ImageCollection
        What the site holds, opened as for a fit.
    policy : Policy
    folder : Path
        For latents, the ledger and the audit log; kept between starts.
    identity : Identity
        The key that the site signs with, and the certificates of the others.
    identities : N texts or numbers, optional
        Which no image of any other site has; names with the site's before by default.
    columns : dict, optional
        What the site knows of its images (N values by name), for statistics by group.
    memory_budget, n_threads : int, optional
    device : {"cpu", "cuda", "auto"}
        As in `ShapeAppearanceModel`.
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
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.images = images
        self.policy = policy
        self.folder = folder
        self.audit = AuditLog(folder / "audit.jsonl")
        self._ledger = Ledger(folder / "ledger.jsonl", policy)
        self._identity = identity
        own = [f"{name}/{identity}" for identity in images.identities]
        self._identities = own if identities is None else identities
        self._columns = {} if columns is None else columns
        self._memory_budget, self._n_threads, self._device = memory_budget, n_threads, device
        self._lock = threading.Lock()
        self._fit: SiteFit | None = None
        self._masking = Masking(identity)
        self._tasks: dict[str, Callable[[Message], Message]] = {
            "describe": self._describe,
            "join": self._join,
            "restore": self._restore,
            "publish": self._publish,
            "keys": self._keys,
            "ask": self._ask,
            "block": self._block,
        }

    def handle(self, message: Message) -> Message:
        """Answer a message, or refuse it by the name of an error and one line of text."""
        with self._lock:
            try:
                task = self._tasks.get(message.get("do", ""))
                if task is None:
                    raise MessageError(f"'do' must be one of {', '.join(self._tasks)}")
                return task(message)
            except FederationError as error:
                return self._refuse(message, error)
            except KeyError as error:
                return self._refuse(message, MessageError(f"the message has no {error}"))
            except OSError as error:
                text = f"the disk of this site fails ({error.strerror}): make space"
                return self._refuse(message, StorageError(text))
            except Exception:  # its text may name files of the site: it stays in the site's log
                logger.exception("The agent of %s failed", self.name)
                return self._refuse(message, SiteFailure("the log of this site says why"))

    def _refuse(self, message: Message, error: FederationError) -> Message:
        name = type(error).__name__
        try:
            asked = {key: str(message.get(key)) for key in ("do", "question") if key in message}
            self.audit.write(event="refused", error=name, text=str(error), **asked)
        except StorageError as second:
            error = second
        return {"error": name, "text": str(error)}

    # ---- getting to know each other

    def _describe(self, message: Message) -> Message:
        """Say what kind of images there are: what must be the same at all sites."""
        self.policy.check_images(len(self.images))
        images = self.images
        self.audit.write(event="described")
        return {
            "format": asdict(images.format),
            "voxel_size": None if images.voxel_size is None else list(images.voxel_size),
            "affine": images.affine,
            "pad": images.pad,
            "suffix": images.suffix,
        }

    def _join(self, message: Message) -> Message:
        """Take part in a fit: its name, its settings, how many iterations it may take."""
        name, settings = message["fit"], _settings(message["settings"])
        self.policy.check_images(len(self.images))
        self.policy.check_settings(settings, message["n_iter"])
        given = (settings.likelihood_name, settings.space, settings.n_channels)
        layout = self.images.format
        if given != (layout.likelihood, layout.space, layout.n_channels):
            raise MessageError(
                f"images here are {layout.likelihood}, {layout.space} with {layout.n_channels} "
                f"channels, and the fit is about {given[0]}, {given[1]} with {given[2]}"
            )
        if not name.isalnum():
            raise MessageError(f"the name of a fit must be letters and digits, got {name!r}")
        self._ledger.begin(name)
        if self._fit is None or (self._fit.name, self._fit.settings) != (name, settings):
            self._fit = self._new_fit(name, settings)
        self._fit.step = None
        self.audit.write(event="joined", fit=name, n_iter=message["n_iter"])
        return {"step": self._ledger.last_step(name)}

    def _new_fit(self, name: str, settings: Settings) -> SiteFit:
        folder = self.folder / "fits" / name
        return SiteFit(
            name,
            settings,
            self.images,
            self._identities,
            folder,
            self._memory_budget,
            self._device,
            self._n_threads,
        )

    def _restore(self, message: Message) -> Message:
        """Go back to the latents after a step (0: to none), and count on from another step."""
        fit, step, target = self._joined(message), message["step"], message["to"]
        last = self._ledger.last_step(fit.name)
        if step <= last:
            raise StaleStepError(f"step {step} was taken before: this site has come to {last}")
        fit.go_back(target, step, was_there=target <= last, may_encode=message["may_encode"])
        self._ledger.note_step(fit.name, step)
        self.audit.write(event="restored", fit=fit.name, to=target, step=step)
        return {"next_key": self._masking.offer(fit.name, step + 1, 0)}

    def _joined(self, message: Message) -> SiteFit:
        if self._fit is None or self._fit.name != message["fit"]:
            raise StaleStepError(f"this site has not joined fit {message['fit']}, or was restarted")
        return self._fit

    # ---- questions

    def _publish(self, message: Message) -> Message:
        self._joined(message).take_block(message)
        return {}

    def _keys(self, message: Message) -> Message:
        fit = self._joined(message)
        return {"next_key": self._masking.offer(fit.name, message["step"], message["attempt"])}

    def _ask(self, message: Message) -> Message:
        fit, question, arguments = self._joined(message), message["question"], message["arguments"]
        if question not in FIELDS | ANALYSES:
            raise MessageError(f"there is no question {question!r}")
        self.policy.check_question(question)
        self.policy.check_images(len(self.images))
        is_masked = message["keys"] is not None
        self.policy.check_roster(self.name, message["roster"], is_masked)
        check_arguments(question, fit.settings, arguments)
        fit.take_parameters(message["parameters"])
        request = fit.request(question, arguments)
        answer = self._answer_once(fit, message, request)
        if is_masked:
            self._masking.agree(message, answer, request)
        reply = {
            "fields": {name: list(shape) for name, shape in answer.row.shapes.items()},
            "n_blocks": answer.row.n_blocks,
            "block": self._numbers(answer, 0, is_masked),
            "next_key": self._masking.offer(fit.name, message["step"] + 1, 0),
        }
        self._note(message, answer, is_masked)
        return reply

    def _answer_once(self, fit: SiteFit, message: Message, request: str) -> Answer:
        """Answer the next question, or the last one again without applying it again."""
        if fit.answer is not None and fit.is_repeated(message["step"], request):
            self._admit(fit, message, fit.content)
            return fit.answer
        fit.check_next(message["step"])
        self._count(fit, message["question"])
        self._admit(fit, message, fit.content_of(message["question"], request))
        with use_threads(self._n_threads), one_blas_thread:
            return fit.answer_next(message, request, self._columns, self.policy)

    def _count(self, fit: SiteFit, question: str) -> None:
        """Count what the policy limits."""
        if question in ANALYSES:
            self._ledger.count_analysis(fit.name)
        else:
            self._ledger.count_fit(fit.name)
        if question == "update_latents":
            self._ledger.count_iteration(fit.name)

    def _admit(self, fit: SiteFit, message: Message, content: str) -> None:
        """Note the question down in the ledger, which refuses what would show single sites."""
        is_hidden = message["keys"] is not None and message["question"] not in _HARMLESS
        roster = sorted(message["roster"]) if is_hidden else None
        is_analysis = message["question"] in ANALYSES
        self._ledger.admit(fit.name, message["step"], content, roster, is_analysis=is_analysis)

    def _block(self, message: Message) -> Message:
        fit, index = self._joined(message), message["index"]
        if fit.answer is None or message["step"] != fit.step:
            raise StaleStepError(f"this site is at step {fit.step}, not {message['step']}")
        if not 0 <= index < fit.answer.row.n_blocks:
            raise MessageError(
                f"the answer has {fit.answer.row.n_blocks} blocks, asked was {index}"
            )
        is_masked = message["attempt"] is not None
        if self.policy.secure_sum and not is_masked:
            raise PolicyError("only masked sums leave this site: ask with secure sum")
        if is_masked:
            self._masking.check(message["step"], message["attempt"])
        return {"block": self._numbers(fit.answer, index, is_masked)}

    def _numbers(self, answer: Answer, index: int, is_masked: bool) -> np.ndarray[Any, Any]:
        if is_masked:
            return self._masking.block(answer, index)
        block = np.empty(answer.row.n_numbers(index))
        for piece, values in answer.pieces(index):
            block[piece.here] = values
        return block

    def _note(self, message: Message, answer: Answer, is_masked: bool) -> None:
        self.audit.write(
            event="answered",
            fit=message["fit"],
            step=message["step"],
            question=message["question"],
            fields={name: list(shape) for name, shape in answer.row.field_shapes.items()},
            n_images=answer.n_images,
            bytes=8 * answer.row.length,
            masked=is_masked,
            roster=message["roster"],
        )


def _settings(facts: Any) -> Settings:
    try:
        return settings_from(facts)
    except (AttributeError, KeyError, TypeError):
        raise MessageError("these are not the settings of a fit of this version") from None
