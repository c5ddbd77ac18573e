"""The transport over NVFLARE: messages go as bytes, five times as fast as its arrays."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.context import set_call_context

from anamorph.federation.protocol.errors import (
    NAMED,
    FederationError,
    MessageError,
    SitesLostError,
)
from anamorph.federation.protocol.transport import Replies
from anamorph.federation.protocol.wire import Message, pack, unpack

_FOREVER = 7 * 24 * 3600.0
# A site may compute for hours, but replies to a pulse at once. One that does not reply within the
# patience is gone.
_PULSE, _PATIENCE = 3.0, 12.0
_INTRODUCTION = 60.0  # seconds that sites may take to introduce themselves
_MUCH_GARBAGE = 2**20  # bytes


class CollabTransport:
    """A `Transport` to the sites of the job that runs in this process.

    It must be made within the coordinator's program, whose context its threads share.
    """

    def __init__(self) -> None:
        self._context = collab.context
        self._sites = {proxy.name: proxy for proxy in self._context.clients}
        # Threads that call a dead site block until the job ends, so there must be spare ones.
        self._threads = ThreadPoolExecutor(8 * len(self._sites))
        self._garbage = Garbage()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites of the job, without those that are gone."""
        return tuple(sorted(self._sites))

    def call(self, messages: Mapping[str, Message], timeout: float | None) -> Replies:
        """Send each site its message, all at once, and wait for the answers (`Transport.call`)."""
        self._garbage.collect()
        seconds = _FOREVER if timeout is None else timeout
        until = time.monotonic() + seconds
        replies = Replies()
        calls: dict[str, Future[Any]] = {}
        # The message is usually the same for all sites.
        packed = {id(message): pack(message) for message in messages.values()}
        self._garbage.add(sum(map(len, packed.values())))
        for name, message in messages.items():
            if name in self._sites:
                calls[name] = self._begin(name, "answer", seconds, message=packed[id(message)])
            else:
                replies.failures[name] = "it is not part of this job"
        while calls:
            wait(calls.values(), _PULSE, return_when="FIRST_EXCEPTION")
            if self._context.is_aborted():  # by NVFLARE, because a process of the job died
                replies.failures.update(dict.fromkeys(calls, "the job was aborted"))
                break
            for name in [name for name, call in calls.items() if call.done()]:
                self._garbage.add(_add_reply(replies, name, calls.pop(name)))
            if calls and time.monotonic() >= until:
                replies.failures.update(dict.fromkeys(calls, f"no answer in {seconds:g} s"))
                break
            for name in self._silent_sites(list(calls)):
                replies.failures[name] = "it is gone"
                del calls[name], self._sites[name]
        return replies

    def introduce_sites(self, notices: Mapping[str, list[str]]) -> None:
        """Let all sites of the job show each other that they are the ones they were before.

        Parameters
        ----------
        notices : dict
            Lines that a site should know, by name.

        Raises
        ------
        SitesLostError
            If a site does not answer.
        FederationError
            The refusal of a site, with its name.
        """
        shown = self._call_all("introduce", {name: {} for name in self._sites})
        message = {"introductions": shown, "time": time.time()}
        packed = {
            name: {"message": pack(message | {"notices": notices.get(name, [])})} for name in shown
        }
        self._call_all("meet", packed)

    def _call_all(
        self, method: str, arguments: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Message]:
        """Call a method of every site; return what each answers, or raise its refusal."""
        replies = Replies()
        calls = {
            name: self._begin(name, method, _INTRODUCTION, **given)
            for name, given in arguments.items()
        }
        wait(calls.values(), _INTRODUCTION)
        for name, call in calls.items():
            if call.done():
                _add_reply(replies, name, call)
            else:
                replies.failures[name] = f"no answer in {_INTRODUCTION:g} s"
        if replies.failures:
            raise SitesLostError(replies.failures)
        for name, answer in replies.answers.items():
            if "error" in answer:
                kind = NAMED.get(str(answer["error"]), FederationError)
                raise kind(f"{name} refuses: {answer.get('text')}")
        return replies.answers

    def _silent_sites(self, names: list[str]) -> list[str]:
        """Return which of some sites do not reply to a pulse."""
        pulses = {name: self._begin(name, "is_here", _PATIENCE) for name in names}
        wait(pulses.values(), _PATIENCE)
        return [name for name, pulse in pulses.items() if not pulse.done() or pulse.exception()]

    def _begin(self, name: str, method: str, timeout: float, **arguments: Any) -> Future[Any]:
        def call() -> Any:
            set_call_context(self._context)
            return getattr(self._sites[name](timeout=timeout), method)(**arguments)

        return self._threads.submit(call)


def _add_reply(replies: Replies, name: str, call: Future[Any]) -> int:
    """Add the outcome of a call to the replies; return how many bytes were answered."""
    try:
        answer = call.result()
        replies.answers[name] = unpack(answer)
        return len(answer)
    except MessageError as error:
        replies.failures[name] = str(error)
    except Exception as error:  # whatever NVFLARE raises, the site did not answer
        replies.failures[name] = " ".join(str(error).split())
    return 0


class Garbage:
    """Counts the bytes of handled messages, and collects them when there are many.

    NVFLARE's objects around a message form reference cycles. Python collects these only after many
    new objects, however large they are, and a dozen messages of 64 MB would pile up.
    """

    def __init__(self) -> None:
        gc.freeze()  # later collections need not scan the objects that exist now
        self._n_bytes = 0

    def add(self, n_bytes: int) -> None:
        """Count a message of some bytes that is no longer needed."""
        self._n_bytes += n_bytes

    def collect(self) -> None:
        """Collect garbage if the messages since the last time were large."""
        if self._n_bytes > _MUCH_GARBAGE:
            gc.collect()
            self._n_bytes = 0
