"""One question to all sites, from their keys to a total that each of them has verified.

The coordinator carries messages between sites and adds up masked answers. It checks what the sites
check, so that it can tell which site is at fault. The phases are those of `site.round`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anamorph.federation.masking.blocks import Blocks
from anamorph.federation.masking.checksums import (
    Checksums,
    added_up,
    challenge_of,
    digest_of,
    witnesses_of,
)
from anamorph.federation.masking.field import Residues, add_into
from anamorph.federation.masking.totals import decoded_total
from anamorph.federation.protocol.answers import AnswerSchema
from anamorph.federation.protocol.binding import Binding
from anamorph.federation.protocol.errors import AnswerError, MessageError, SitesLostError
from anamorph.federation.protocol.wire import BLOCK_BYTES, Message
from anamorph.fitting.sums import Sums

#: Gives some sites a task of the fit: messages by name of the site.
Call = Callable[[str, Mapping[str, Message]], dict[str, Message]]


@dataclass
class Round:
    """One question to all sites of a roster.

    Attributes
    ----------
    binding : Binding
        The question.
    schema : AnswerSchema
        Of its answers.
    call : callable
        Gives sites a task of this fit.
    offers : dict
        The key and commitment of every site, by name.
    checksums : dict
        Of every site, signed, by name; empty until the total is there.
    next_offers : dict
        For the next question.
    shown : dict
        Masked answers that go to witnesses with the next message, by name of the witness.
    """

    binding: Binding
    schema: AnswerSchema
    call: Call
    offers: Mapping[str, Message]
    checksums: dict[str, Message] = field(default_factory=dict)
    next_offers: dict[str, Message] = field(default_factory=dict)
    shown: dict[str, dict[str, Residues]] = field(default_factory=dict)
    _total: Blocks | None = None

    def ask(self, message: Message, before: Round | None) -> dict[str, bytes]:
        """Ask all sites; return the verdicts of witnesses of the question before, by name.

        Parameters
        ----------
        message : Message
            The question.
        before : Round or None
            That of the question before, which is settled by the same message.
        """
        last = {"checksums": None} if before is None else {"checksums": before.checksums}
        shown = {} if before is None else before.shown
        replies = self._call("ask", self._with_shown(message | last, shown))
        self._answers = {
            name: {"digest": reply["digest"], "signature": reply["signature"]}
            for name, reply in replies.items()
        }
        return _verdicts_in(replies)

    def add_up(self, verdicts: Mapping[str, bytes]) -> Sums:
        """Fetch masked answers, add them up, and have the total verified by all sites.

        Parameters
        ----------
        verdicts : dict
            On the question before, by name of the witness.

        Returns
        -------
        Sums
            The total.
        """
        masked = {name: Blocks(self.schema) for name in self.binding.roster}
        total = Blocks(self.schema)
        for index in range(self.schema.n_blocks):
            replies = self._call_all(
                "block", index=index, answers=self._answers, verdicts=dict(verdicts)
            )
            total.append(index, self._added(index, replies, masked))
        self._total = total
        for index, block in enumerate(total):
            signed = self._call_all("total", index=index, block=block)
        totals = {
            name: {"number": reply["number"], "signature": reply["signature"]}
            for name, reply in signed.items()
        }
        replies = self._call_all("reveal", totals=totals)
        self.next_offers = {name: reply["offer"] for name, reply in replies.items()}
        self.checksums = {
            name: {"values": reply["values"], "signature": reply["signature"]}
            for name, reply in replies.items()
        }
        numbers = {name: given["number"] for name, given in totals.items()}
        challenge = challenge_of(self.binding.data, total.digest, numbers)
        self._check(challenge, masked, numbers)
        self._show_witnesses(challenge, masked)
        return decoded_total(total, self.schema, self.binding.exponents)

    def settle(self) -> dict[str, bytes]:
        """Have the checksums checked where no question follows; return the verdicts."""
        messages = self._with_shown({"checksums": self.checksums}, self.shown)
        return _verdicts_in(self._call("settle", messages))

    @property
    def fact(self) -> bytes:
        """The question and the digest of its total, for the transcript."""
        assert self._total is not None
        return self.binding.data + self._total.digest

    def _added(
        self, index: int, replies: Mapping[str, Message], masked: Mapping[str, Blocks]
    ) -> Residues:
        """Return the sum of one block of all sites, and keep the parts for the witnesses."""
        wrong, total = {}, None
        for name in self.binding.roster:
            try:
                block = masked[name].append(index, replies[name].get("block"))
            except MessageError as error:
                wrong[name] = f"answered {self.binding.question} with a wrong block: {error}"
                continue
            if total is None:
                total = block.copy()
            else:
                add_into(total, block)
        if wrong or total is None:
            raise SitesLostError(wrong)
        return total

    def _check(
        self, challenge: bytes, masked: Mapping[str, Blocks], numbers: Mapping[str, bytes]
    ) -> None:
        """Raise a SitesLostError that names the sites which do not keep to the protocol."""
        wrong = {}
        for name, blocks in masked.items():
            if digest_of(numbers[name]) != self.offers[name]["commitment"]:
                wrong[name] = "revealed another number than it committed to"
            elif blocks.digest != self._answers[name]["digest"]:
                wrong[name] = "sent another answer than it signed"
            elif list(Checksums.of(challenge, blocks)) != self.checksums[name]["values"]:
                wrong[name] = "signed a checksum that its answer does not have"
        if wrong:
            raise SitesLostError(wrong)
        assert self._total is not None
        given = added_up(self.checksums[name]["values"] for name in self.binding.roster)
        if given != Checksums.of(challenge, self._total):
            raise AnswerError("the checksums of the sites do not add up: memory here is faulty")

    def _show_witnesses(self, challenge: bytes, masked: Mapping[str, Blocks]) -> None:
        """Send the witnesses the masked answers that they are to check, if these are large.

        Small ones go with the next message.
        """
        witnesses = witnesses_of(challenge, self.binding.roster)
        if 8 * self.schema.length * len(masked) <= BLOCK_BYTES and self.schema.n_blocks == 1:
            self.shown = {
                witness: {name: masked[name][0] for name in names}
                for witness, names in witnesses.items()
            }
            return
        most = max((len(names) for names in witnesses.values()), default=0)
        for number in range(most):
            for index in range(self.schema.n_blocks):
                shown = {
                    witness: _shown(names[number], index, masked[names[number]])
                    for witness, names in witnesses.items()
                    if number < len(names)
                }
                self._call("witness", shown)

    def _with_shown(
        self, message: Message, shown: Mapping[str, Mapping[str, Residues]]
    ) -> dict[str, Message]:
        """Return the message for every site: that to a witness has what it is to check."""
        same = message | {"masked": {}}
        return {
            name: message | {"masked": shown[name]} if name in shown else same
            for name in self.binding.roster
        }

    def _call_all(self, task: str, **facts: Any) -> dict[str, Message]:
        return self._call(task, dict.fromkeys(self.binding.roster, facts))

    def _call(self, task: str, messages: Mapping[str, Message]) -> dict[str, Message]:
        step = {"step": self.binding.step}
        same = {id(facts): facts | step for facts in messages.values()}
        return self.call(task, {name: same[id(facts)] for name, facts in messages.items()})


def _shown(name: str, index: int, masked: Blocks) -> Message:
    return {"site": name, "index": index, "block": masked[index]}


def _verdicts_in(replies: Mapping[str, Message]) -> dict[str, bytes]:
    """Return the verdicts in some replies: only witnesses send one."""
    verdicts = {name: reply.get("verdict") for name, reply in replies.items()}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}
