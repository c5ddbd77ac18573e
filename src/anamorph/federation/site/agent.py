"""The agent of a site: only it holds images and latents, and only it decides what leaves.

One method takes every message. The coordinator numbers questions as steps. The agent answers the
next step, answers the last one again without applying it again, and refuses any other. Latents are
on the disk of the site after every step that changes them, so a restarted site or a coordinator
that lost an answer can go back to such a step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anamorph.arrays.devices import Machine
from anamorph.federation.masking.masker import Masker
from anamorph.federation.protocol.answers import Answer
from anamorph.federation.protocol.errors import (
    FederationError,
    MessageError,
    PolicyError,
    SiteFailure,
    StaleStepError,
    StorageError,
)
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.questions import check_arguments
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.audit import AuditLog
from anamorph.federation.site.fit import Holdings, SiteFit
from anamorph.federation.site.ledger import Ledger
from anamorph.federation.site.policy import Policy
from anamorph.fitting.sums import ANALYSES, FIELDS
from anamorph.images.collection import ImageCollection
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import settings_from

logger = logging.getLogger("anamorph")


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
        For latents, the ledger and the audit log. Give the same folder after a restart.
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
        if identities is None:
            identities = [f"{name}/{identity}" for identity in images.identities]
        machine = Machine(device, n_threads, memory_budget)
        self._holdings = Holdings(images, identities, columns or {}, policy, machine)
        self._lock = threading.Lock()
        self._fit: SiteFit | None = None
        self._masker = Masker(identity)
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
            except Exception:  # its text may name files, so it stays in the site's log
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

    # ---- joining a fit

    def _describe(self, message: Message) -> Message:
        """Describe the properties of the images that must be the same at all sites."""
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
        """Join a fit: the message has its name, settings and largest number of iterations."""
        name, settings = message["fit"], _checked_settings(message["settings"])
        self.policy.check_images(len(self.images))
        self.policy.check_settings(settings, message["n_iter"])
        given = (settings.likelihood_name, settings.space, settings.n_channels)
        own = self.images.format
        if given != (own.likelihood, own.space, own.n_channels):
            raise MessageError(
                f"images here are {own.likelihood}, {own.space} with {own.n_channels} channels, "
                f"but the fit is for {given[0]}, {given[1]} with {given[2]}"
            )
        if not name.isalnum():
            raise MessageError(f"the name of a fit must be letters and digits, got {name!r}")
        self._ledger.begin(name)
        if self._fit is None or (self._fit.name, self._fit.settings) != (name, settings):
            folder = self.folder / "fits" / name
            self._fit = SiteFit(name, settings, self._holdings, folder)
        self._fit.step = None
        self.audit.write(event="joined", fit=name, n_iter=message["n_iter"])
        return {"step": self._ledger.last_step(name)}

    def _restore(self, message: Message) -> Message:
        """Go back to the latents after a step (0: none), and continue from another step."""
        fit, step, target = self._joined(message), message["step"], message["to"]
        last = self._ledger.last_step(fit.name)
        if step <= last:
            raise StaleStepError(f"step {step} was taken before: this site has reached {last}")
        fit.go_back(target, step, was_there=target <= last, may_encode=message["may_encode"])
        self._ledger.note_step(fit.name, step)
        self.audit.write(event="restored", fit=fit.name, to=target, step=step)
        return {"next_key": self._masker.offer(fit.name, step + 1, 0)}

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
        return {"next_key": self._masker.offer(fit.name, message["step"], message["attempt"])}

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
            self._masker.agree(message, answer, request)
        reply = {
            "fields": {name: list(shape) for name, shape in answer.schema.shapes.items()},
            "n_blocks": answer.schema.n_blocks,
            "block": self._block_of(answer, 0, message, is_masked),
            "next_key": self._masker.offer(fit.name, message["step"] + 1, 0),
        }
        self._record(message, answer, is_masked)
        return reply

    def _answer_once(self, fit: SiteFit, message: Message, request: str) -> Answer:
        """Answer the next question, or repeat the last answer without applying it again."""
        if fit.answer is not None and fit.is_repeated(message["step"], request):
            self._ledger.admit(message, fit.content)
            return fit.answer
        fit.check_next(message["step"])
        self._ledger.count(fit.name, message["question"])
        content = fit.content_of(message["question"], request)
        self._ledger.admit(message, content)
        with self._holdings.machine.threads():
            return fit.answer_next(message, request, content)

    def _block(self, message: Message) -> Message:
        fit, index = self._joined(message), message["index"]
        if fit.answer is None or message["step"] != fit.step:
            raise StaleStepError(f"this site is at step {fit.step}, not {message['step']}")
        n_blocks = fit.answer.schema.n_blocks
        if not 0 <= index < n_blocks:
            raise MessageError(f"the answer has {n_blocks} blocks, but block {index} was asked")
        is_masked = message["attempt"] is not None
        return {"block": self._block_of(fit.answer, index, message, is_masked)}

    def _block_of(
        self, answer: Answer, index: int, message: Message, is_masked: bool
    ) -> NDArray[Any]:
        if is_masked:
            return self._masker.masked_block(answer, index, message["step"], message["attempt"])
        if self.policy.secure_sum:
            raise PolicyError("only masked sums leave this site: ask with secure sum")
        return answer.unmasked_block(index)

    def _record(self, message: Message, answer: Answer, is_masked: bool) -> None:
        self.audit.write(
            event="answered",
            fit=message["fit"],
            step=message["step"],
            question=message["question"],
            fields={name: list(shape) for name, shape in answer.schema.field_shapes.items()},
            n_images=answer.n_images,
            bytes=8 * answer.schema.length,
            masked=is_masked,
            roster=message["roster"],
        )


def _checked_settings(facts: Any) -> Settings:
    try:
        return settings_from(facts)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise MessageError("the settings are not those of a fit of this version") from None
