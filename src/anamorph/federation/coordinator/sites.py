"""The sites of a federation as the fit sees them: one question in, one sum over all sites out.

A question is one call if its parameters and its answer fit into one block: the keys for its masks
came with the answers to the question before. A site that does not answer, or cannot continue from
the step of the others, ends the question with a `SitesLostError`; the caller decides what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.mapped import let_go
from anamorph.federation.coordinator.calls import call_sites
from anamorph.federation.coordinator.scales import Scales
from anamorph.federation.coordinator.totals import Total
from anamorph.federation.protocol.answers import AnswerSchema
from anamorph.federation.protocol.errors import SitesLostError, SumOverflowError
from anamorph.federation.protocol.questions import answer_shapes
from anamorph.federation.protocol.transport import Transport
from anamorph.federation.protocol.wire import BLOCK_BYTES, Message
from anamorph.fitting.sums import Move, Sums
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import parameter_arrays

_MOST_ATTEMPTS = 8


class FederatedSites:
    """Sites behind a transport that answer as one (`fitting.sites.Sites`).

    Parameters
    ----------
    transport : Transport
        Connects the sites.
    settings : Settings
        Settings of the fit.
    fit : str
        Name of the fit, the same when it is resumed.
    n_iter : int
        Iterations of the fit; the policy of a site limits them.
    is_secure : bool, default True
        Whether sites mask their sums. The coordinator then sees only totals.
    timeout : float, optional
        Seconds that a site may take for an answer. By default there is no limit.

    Attributes
    ----------
    roster : tuple of str
        Names of the sites that take part.
    step : int
        Number of the last question.
    step_before_turn : int
        The step whose latents are those before the last orthogonalisation.
    keep_from : int
        Oldest step that sites must be able to go back to.
    n_questions, n_calls : int
        How many questions were asked, and how often sites were called.
    """

    def __init__(
        self,
        transport: Transport,
        settings: Settings,
        fit: str,
        n_iter: int,
        *,
        is_secure: bool = True,
        timeout: float | None = None,
    ) -> None:
        self.roster: tuple[str, ...] = ()
        self.step = self.step_before_turn = self.keep_from = 0
        self.n_questions = self.n_calls = 0
        self._transport, self._settings = transport, settings
        self._fit, self._n_iter = fit, n_iter
        self._is_secure, self._timeout = is_secure, timeout
        self._scales = Scales()
        self._keys: dict[str, Message] = {}
        self._parameters: Parameters | None = None
        self._sent: dict[str, NDArray[Any]] = {}
        self._version = 0

    # ---- the roster, and the step to start from

    def join(self, names: Sequence[str]) -> None:
        """Ask the named sites to take part, and make them the roster."""
        self.roster = tuple(sorted(names))
        replies = self._call("join", settings=asdict(self._settings), n_iter=self._n_iter)
        self.step = max([self.step, *(int(reply["step"]) for reply in replies.values())])

    def restore(self, step: int, *, may_encode: bool = False) -> None:
        """Make all sites go back to the latents after a step.

        Parameters
        ----------
        step : int
            0: the beginning, without latents.
        may_encode : bool, default False
            Whether sites without these latents may encode their images with the published
            parameters instead.
        """
        self.step += 1
        self._keep_keys(self._call("restore", step=self.step, to=step, may_encode=may_encode))
        self._sent = {}

    # ---- questions and sums

    def publish(self, parameters: Parameters) -> None:
        """Set the parameters of the next questions. They are sent along with the next one."""
        self._parameters = parameters
        self._version += 1

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Return the sum of all sites' answers to a question."""
        self.step += 1
        self.n_questions += 1
        if move is not None:
            arguments["move"] = vars(move)
            if move.keeps_warps:
                self.step_before_turn = self.step - 1
        schema = AnswerSchema(answer_shapes(question, self._settings, arguments))
        message: Message = {
            "step": self.step,
            "question": question,
            "arguments": arguments,
            "roster": list(self.roster),
            "keep_from": self.keep_from,
            "parameters": self._send_parameters(),
        }
        attempt, n_sites = 0, len(self.roster)
        while True:
            is_last = attempt + 1 == _MOST_ATTEMPTS
            try:
                terms = self._mask_terms(question, schema, attempt)
                total = self._attempt(message | terms, schema)
            except SumOverflowError:
                if is_last:
                    raise
                self._scales.widen(question, schema.field_shapes)
            else:
                sums = total.sums()
                is_coarse = self._is_secure and self._scales.learn(question, total.largest, n_sites)
                if not is_coarse or is_last:
                    return sums
            attempt += 1
            self._keep_keys(self._call("keys", step=self.step, attempt=attempt))

    def _mask_terms(self, question: str, schema: AnswerSchema, attempt: int) -> Message:
        """Return the keys and exponents of an attempt at a question."""
        if not self._is_secure:
            return {"attempt": None, "keys": None, "exponents": None}
        keys = {name: self._keys[name] for name in self.roster}
        exponents = self._scales.exponents(question, schema.shapes)
        return {"attempt": attempt, "keys": keys, "exponents": exponents}

    def _attempt(self, message: Message, schema: AnswerSchema) -> Total:
        """Ask all sites, fetch their answers block by block, and add them up."""
        replies = self._call("ask", **message)
        self._keep_keys(replies)
        wanted = {name: list(shape) for name, shape in schema.shapes.items()}
        wrong = {
            name: f"answered {message['question']} with wrong fields or shapes"
            for name, reply in replies.items()
            if reply.get("fields") != wanted or reply.get("n_blocks") != schema.n_blocks
        }
        if wrong:
            raise SitesLostError(wrong)
        total = Total(schema, len(self.roster), message["exponents"])
        for index in range(schema.n_blocks):
            if index:
                attempt = message["attempt"]
                replies = self._call("block", index=index, step=self.step, attempt=attempt)
            # Popped: they must leave memory before the next blocks arrive.
            total.add_block(index, {name: reply.pop("block") for name, reply in replies.items()})
        return total

    # ---- parameters and keys

    def _send_parameters(self) -> Message | None:
        """Send large arrays that changed in blocks; return the rest for the question to carry."""
        if self._parameters is None:
            return None
        arrays = parameter_arrays(self._parameters)
        changed = {
            name: array for name, array in arrays.items() if self._sent.get(name) is not array
        }
        room, inline = BLOCK_BYTES, {}
        for name in sorted(changed, key=lambda name: changed[name].nbytes):
            room -= changed[name].nbytes
            if room >= 0:
                inline[name] = changed[name]
                continue
            for block in _blocks_of(changed[name]):
                self._call("publish", array=name, **block)
                let_go(changed[name])
        self._sent = arrays
        return {
            "version": self._version,
            "warp_version": self._parameters.warp_version,
            "arrays": inline,
        }

    def _keep_keys(self, replies: Mapping[str, Message]) -> None:
        self._keys = {name: reply["next_key"] for name, reply in replies.items()}

    # ---- calls

    def _call(self, task: str, **facts: Any) -> dict[str, Message]:
        """Give every site of the roster the same task of the fit, and count the call."""
        self.n_calls += 1
        message = {"do": task, "fit": self._fit, **facts}
        return call_sites(self._transport, self.roster, message, self._timeout)


def _blocks_of(array: NDArray[Any]) -> Iterator[Message]:
    """Yield the messages that hold an array in parts of at most a block."""
    flat = np.ascontiguousarray(array).reshape(-1)
    length = BLOCK_BYTES // flat.itemsize
    for start in range(0, len(flat), length):
        yield {"start": start, "values": flat[start : start + length]}
