"""One question at one site, from its key to the verified total.

The site goes through these phases in order, each once; a message out of order is refused.

    offer     a fresh key, and a commitment to a random number, signed
    seal      the answer is masked, and the site signs its hash
    release   masked blocks leave when all sites have signed hashes of theirs
    total     the total comes back; the site signs its digest and reveals its number
    reveal    all have signed the same digest, and their numbers give the challenge:
              the site signs checksums of its masked answer
    witness   if it is drawn, it compares masked answers of others with hashes and checksums
    settle    the checksums add up to those of the total, which the site then computes with
    accept    the witnesses have signed that all is well: the next answer may leave
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from anamorph.federation.masking.blocks import Blocks
from anamorph.federation.masking.checksums import (
    Checksums,
    added_up,
    challenge_of,
    digest_of,
    witnesses_of,
)
from anamorph.federation.masking.field import Residues
from anamorph.federation.masking.pairwise import MaskKey, PairwiseMasks
from anamorph.federation.masking.totals import decoded_total, encoded_blocks
from anamorph.federation.protocol.answers import Answer, AnswerSchema
from anamorph.federation.protocol.binding import Binding, statement
from anamorph.federation.protocol.errors import (
    MessageError,
    SignatureError,
    StaleStepError,
    VerificationError,
)
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.wire import Message
from anamorph.fitting.sums import Sums


class Offer:
    """A key and a commitment of this site for one question, used at most once.

    Parameters
    ----------
    identity : Identity
    fit : str
    step : int
    """

    def __init__(self, identity: Identity, fit: str, step: int) -> None:
        self.fit, self.step = fit, step
        self.key, self.number = MaskKey(), secrets.token_bytes(32)
        commitment = digest_of(self.number)
        facts = (fit, step, self.key.public, commitment)
        self.message: Message = {
            "key": self.key.public,
            "commitment": commitment,
            "signature": identity.sign(statement("key", identity.name, *facts)),
        }


def check_offer(identity: Identity, name: str, fit: str, step: int, offer: Message) -> None:
    """Raise a SignatureError unless a site offers its key for this question."""
    facts = (fit, step, offer["key"], offer["commitment"])
    identity.verify(name, statement("key", name, *facts), offer["signature"])


class Round:
    """One question at one site.

    Parameters
    ----------
    identity : Identity
        Of this site.
    binding : Binding
        The question.
    schema : AnswerSchema
        Of its answer.
    offer : Offer
        What this site offered for it.
    offers : dict
        What all sites of the roster offered, by name.

    Raises
    ------
    SignatureError
        If an offer is missing, not signed by its site, or not the one that this site made.
    """

    def __init__(
        self,
        identity: Identity,
        binding: Binding,
        schema: AnswerSchema,
        offer: Offer,
        offers: Mapping[str, Message],
    ) -> None:
        if offers.keys() != set(binding.roster):
            raise SignatureError("there must be a key of every site on the roster, and no other")
        if (offer.fit, offer.step) != (binding.fit, binding.step):
            raise StaleStepError(f"no key was offered for step {binding.step}")
        if offers[identity.name] != offer.message:
            raise SignatureError("the key that comes back is not the one that this site offered")
        for name, given in offers.items():
            check_offer(identity, name, binding.fit, binding.step, given)
        self.binding, self.schema = binding, schema
        self._identity, self._offer, self._offers = identity, offer, offers
        self._phase = "seal"
        self._masked, self._total = Blocks(schema), Blocks(schema)
        self._answers: Mapping[str, Message] = {}
        self._numbers: dict[str, bytes] = {}
        self._witnessed: dict[str, tuple[Blocks, Checksums]] = {}
        self._challenge = b""

    # ---- phases, in order

    def seal(self, answer: Answer) -> Message:
        """Mask the answer and keep it; return its signed hash. Masks are made here, and once."""
        self._enter("seal", then="release")
        masks = self._agree()
        for index, block in enumerate(encoded_blocks(answer, self.binding.exponents)):
            masks.mask(block)
            self._masked.append(index, block)
        digest = self._masked.digest
        return {"digest": digest, "signature": self._sign("answer", digest)}

    def release(self, index: int, answers: Mapping[str, Message]) -> Residues:
        """Return a masked block, once all sites have signed hashes of their masked answers."""
        if self._phase == "release":
            self._check_names(answers)
            for name, answer in answers.items():
                self._verify(name, "answer", answer["signature"], answer["digest"])
            if answers[self._identity.name]["digest"] != self._masked.digest:
                raise VerificationError("the hash that comes back is not that of this site")
            self._answers = answers
            self._phase = "total"
        elif self._phase != "total":
            raise self._out_of_order("release")
        elif answers != self._answers:
            raise VerificationError("other hashes of masked answers came with a later block")
        return self._masked[index]

    def take_total(self, index: int, block: object) -> Message:
        """Take a block of the total; after the last, sign its digest and reveal the number."""
        if self._phase != "total":
            raise self._out_of_order("total")
        self._total.append(index, block)
        if not self._total.is_complete:
            return {}
        self._phase = "reveal"
        signature = self._sign("total", self._total.digest)
        return {"number": self._offer.number, "signature": signature}

    def reveal(self, totals: Mapping[str, Message]) -> Message:
        """Check that all sites saw the same total, and sign checksums of the masked answer."""
        self._enter("reveal", then="settle")
        self._check_names(totals)
        for name, given in totals.items():
            try:
                self._verify(name, "total", given["signature"], self._total.digest)
            except SignatureError:
                raise VerificationError(f"{name} was shown another total than this site") from None
            if digest_of(given["number"]) != self._offers[name]["commitment"]:
                raise VerificationError(f"{name} revealed another number than it committed to")
            self._numbers[name] = given["number"]
        self._challenge = challenge_of(self.binding.data, self._total.digest, self._numbers)
        own = self._identity.name
        self._witnessed = {
            name: (Blocks(self.schema), Checksums(self._challenge))
            for name in witnesses_of(self._challenge, self.binding.roster).get(own, ())
        }
        values = Checksums.of(self._challenge, self._masked)
        return {
            "values": list(values),
            "signature": self._sign("checksums", self._challenge, *values),
        }

    def witness(self, name: str, index: int, block: object) -> None:
        """Take a block of another site's masked answer, as a witness."""
        if self._phase != "settle":
            raise self._out_of_order("witness")
        if name not in self._witnessed:
            raise MessageError(f"this site is not drawn as a witness to {name}")
        blocks, checksums = self._witnessed[name]
        checksums.add(blocks.append(index, block))

    def settle(self, checksums: Mapping[str, Message]) -> bytes | None:
        """Check that checksums add up; return the signed verdict of a witness, None of others."""
        self._enter("settle", then="accept")
        self._check_names(checksums)
        for name, given in checksums.items():
            try:
                self._verify(
                    name, "checksums", given["signature"], self._challenge, *given["values"]
                )
            except SignatureError:
                raise VerificationError(
                    f"{name} was shown other random numbers than this site, or signed other "
                    "checksums"
                ) from None
        total = Checksums.of(self._challenge, self._total)
        if added_up(given["values"] for given in checksums.values()) != total:
            raise VerificationError(
                "the total is not the sum of the answers that the sites have signed"
            )
        for name, (blocks, own) in self._witnessed.items():
            if not blocks.is_complete:
                raise VerificationError(f"the masked answer of {name} was not shown to its witness")
            if blocks.digest != self._answers[name]["digest"]:
                raise VerificationError(f"the masked answer of {name} is not the one it signed")
            if own.values != tuple(checksums[name]["values"]):
                raise VerificationError(f"{name} signed a checksum that its answer does not have")
        return self._sign("verdict", self._challenge) if self._witnessed else None

    def total(self) -> Sums:
        """Return the total, once its checksums are right."""
        if self._phase not in ("accept", "done"):
            raise self._out_of_order("use the total")
        return decoded_total(self._total, self.schema, self.binding.exponents)

    def accept(self, verdicts: Mapping[str, bytes]) -> None:
        """Check that all witnesses have signed that all is well, before anything else leaves."""
        self._enter("accept", then="done")
        for name in witnesses_of(self._challenge, self.binding.roster):
            if name not in verdicts:
                raise VerificationError(f"the verdict of {name}, which was drawn, is missing")
            self._verify(name, "verdict", verdicts[name], self._challenge)

    @property
    def is_accepted(self) -> bool:
        """Whether the witnesses have confirmed the total."""
        return self._phase == "done"

    @property
    def witnessed(self) -> list[str]:
        """Names of the sites that this one is a witness to."""
        return sorted(self._witnessed)

    @property
    def total_digest(self) -> bytes:
        """Digest of the total."""
        return self._total.digest

    @property
    def answer_digest(self) -> bytes:
        """Digest of the masked answer of this site."""
        return self._masked.digest

    # ---- how

    def _agree(self) -> PairwiseMasks:
        if not self.binding.is_masked:
            return PairwiseMasks([], self.binding.data)
        own = self._identity.name
        others = {name: given["key"] for name, given in self._offers.items() if name != own}
        return self._offer.key.agree(own, others, self.binding.data)

    def _enter(self, phase: str, then: str) -> None:
        if self._phase != phase:
            raise self._out_of_order(phase)
        self._phase = then

    def _out_of_order(self, phase: str) -> StaleStepError:
        return StaleStepError(
            f"{phase} is out of order at step {self.binding.step}: this site waits to {self._phase}"
        )

    def _check_names(self, given: Mapping[str, Any]) -> None:
        if given.keys() != set(self.binding.roster):
            raise VerificationError("a message must come from every site on the roster, once")

    def _sign(self, kind: str, *facts: str | int | bytes) -> bytes:
        return self._identity.sign(self.binding.statement(kind, self._identity.name, *facts))

    def _verify(self, name: str, kind: str, signature: bytes, *facts: str | int | bytes) -> None:
        statement = self.binding.statement(kind, name, *facts)
        self._identity.verify(name, statement, signature)
