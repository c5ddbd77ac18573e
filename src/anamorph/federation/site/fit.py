"""One fit at one site: its images, its latents, and the step that they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anamorph.arrays.devices import Machine, to_host
from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.answers import Answer, AnswerSchema
from anamorph.federation.protocol.errors import SiteFailure, StaleStepError
from anamorph.federation.protocol.questions import answer_shapes
from anamorph.federation.protocol.wire import Message, pack
from anamorph.federation.site.group_sums import GroupAnswers
from anamorph.federation.site.latent_store import LatentStore
from anamorph.federation.site.policy import Policy
from anamorph.federation.site.published_parameters import PublishedParameters
from anamorph.fitting.placement import place_cohort
from anamorph.fitting.sums import FIELDS, Move, Sums
from anamorph.images.collection import ImageCollection
from anamorph.model.generator import Generator
from anamorph.model.predicting import Predictor
from anamorph.model.settings import Settings

# The answer depends on the images alone, not on parameters or latents.
_ABOUT_IMAGES_ALONE = ("moments",)


@dataclass(frozen=True)
class Holdings:
    """What a site lends to all fits, and what it computes with.

    Attributes
    ----------
    images : ImageCollection
        All N images of the site.
    identities : N texts or numbers
        One for each image, unique over all sites. Starting latents are drawn from them.
    columns : dict
        N values for each column by which analyses may group or weight images.
    policy : Policy
        What may be asked.
    machine : Machine
        Device, threads and memory, as in `ShapeAppearanceModel`.
    """

    images: ImageCollection
    identities: Sequence[int | str]
    columns: Mapping[str, Sequence[str]]
    policy: Policy
    machine: Machine


class SiteFit:
    """What a site keeps during a fit.

    Parameters
    ----------
    name : str
        Name of the fit.
    settings : Settings
        Settings of the fit.
    holdings : Holdings
        Of the site.
    folder : Path
        For latents, and for sums that are too large for memory.

    Attributes
    ----------
    step : int or None
        The step that was answered last. None after a failure, when it is not known.
    answer : Answer or None
        The answer to that step.
    content : str
        Digest of everything that the answer depends on.
    """

    def __init__(self, name: str, settings: Settings, holdings: Holdings, folder: Path) -> None:
        self.name = name
        self.settings = settings
        self.cohort = place_cohort(
            holdings.machine, holdings.images, settings, holdings.identities, scratch=folder
        )
        self.published = PublishedParameters(settings)
        self.step: int | None = None
        self.answer: Answer | None = None
        self.content = ""
        self._holdings, self._store = holdings, LatentStore(folder)
        # One record for all fits and analyses of the site, beside its ledger.
        record = folder.parent.parent / "analyses.jsonl"
        self._groups = GroupAnswers(record, holdings.identities, holdings.columns, holdings.policy)
        self._request = ""
        self._lacks_latents = False

    def go_back(self, target: int, step: int, *, was_there: bool, may_encode: bool) -> None:
        """Go back to the latents after a step, and continue the numbering from another.

        Parameters
        ----------
        target : int
            The step whose latents are restored. 0: none.
        step : int
            The number from which steps continue.
        was_there : bool
            Whether this site had reached the target. A site that was away when a step was taken has
            older latents, which do not belong to it.
        may_encode : bool
            Whether missing latents may be computed by encoding the images, once parameters arrive.
        """
        n_images = len(self._holdings.images)
        latents = self._store.load(target, n_images) if target and was_there else None
        if target and latents is None and not may_encode:
            raise StaleStepError(f"this site has no latents of step {target}")
        if latents is not None:
            self.cohort.restore(latents)
        kept = 0 if latents is None else target
        self._store.drop(before=kept, after=kept)
        self.cohort.withdraw()
        self.published = PublishedParameters(self.settings)
        self.step, self.answer = step, None
        self._lacks_latents = bool(target) and latents is None

    def take_block(self, message: Message) -> None:
        """Take a block of one parameter array, after freeing the array that it replaces."""
        self.cohort.withdraw()
        self.published.take_block(message)

    def take_parameters(self, published: Message | None) -> None:
        """Take the parameters that come with a question, if there are any."""
        if published is None:
            return
        if self.published.take(published):
            self.cohort.publish(self.published.parameters().beside(self.cohort.namespace))

    def request(self, question: str, arguments: Mapping[str, Any]) -> str:
        """Return the digest of a question and the published parameters, the same at all sites."""
        asked = pack({"question": question, "arguments": dict(arguments)})
        return _digest(asked + self.published.digest.encode())

    def is_repeated(self, step: int, request: str) -> bool:
        """Return whether a question repeats the last one."""
        return (step, request) == (self.step, self._request)

    def check_next(self, step: int) -> None:
        """Raise a StaleStepError unless a step is the next one."""
        if self.step is None:
            raise StaleStepError("this site does not know the step of the fit: restore one")
        if step != self.step + 1:
            raise StaleStepError(f"this site is at step {self.step}, but was asked step {step}")

    def content_of(self, question: str, request: str) -> str:
        """Return the digest of everything that the answer to a question depends on here."""
        if question in _ABOUT_IMAGES_ALONE:
            return question
        return request + _digest(to_host(self.cohort.latents).tobytes())

    def answer_next(self, message: Message, request: str, content: str) -> Answer:
        """Answer the next question. Changed latents are on disk before the answer leaves."""
        step, question, arguments = message["step"], message["question"], message["arguments"]
        self.step, self.answer = None, None  # until everything has succeeded
        if self._lacks_latents:
            self.cohort.restore(self._encoded_latents())
        before = self.cohort.latents
        schema = AnswerSchema(answer_shapes(question, self.settings, arguments))
        if question in FIELDS:
            move = arguments.get("move")
            given = {**arguments, "move": None if move is None else Move(**move)}
            sums: Sums = self.cohort.answer(question, **given).in_memory()
        else:
            n_sites = 1 if message["keys"] is None else len(message["roster"])
            sums = self._groups.answer(self._encoded_latents(), arguments, n_sites)
        if {name: value.shape for name, value in sums.fields.items()} != schema.field_shapes:
            raise SiteFailure(f"the sums of {question} have wrong shapes")
        answer = Answer(sums, schema)
        if self.cohort.latents is not before or self._lacks_latents:
            self._store.save(step, to_host(self.cohort.latents))
        self._store.drop(before=message["keep_from"])
        self._lacks_latents = False
        self.step, self.answer, self.content, self._request = step, answer, content, request
        return answer

    def _encoded_latents(self) -> Float64Array:
        """Return the most probable latents (N, K) of the images under the published parameters."""
        generator = Generator(self.settings, self.published.parameters())
        return Predictor(generator, self._holdings.machine).encode(self._holdings.images).latents


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
