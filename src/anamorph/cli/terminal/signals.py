"""Ctrl-C and SIGTERM: the work is interrupted in order, but within neither imports nor LLVM."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: The exit code of what was interrupted.
INTERRUPTED = 130

_IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
# LLVM calls Python back while it loads a kernel, and crashes if an interrupt ends such a call.
_LLVM = "llvmlite"
_SOON = 0.01  # seconds
_CAN_WAIT = hasattr(signal, "setitimer")  # not on Windows


@contextmanager
def interrupts_in_one_line() -> Iterator[None]:
    """End with one line if an interrupt comes before a command begins, or after it has ended."""
    try:
        yield
    except KeyboardInterrupt:
        _tell_of_interrupt()
        sys.exit(INTERRUPTED)


def handle_signals() -> None:
    """Handle SIGTERM like Ctrl-C from now on."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as for a process in the background
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise a KeyboardInterrupt, but not within an import: it may turn it into another error.

    There, and within LLVM, the interrupt waits until that is done; a second one ends the process at
    once.
    """
    is_waiting = _CAN_WAIT and signal.setitimer(signal.ITIMER_REAL, 0)[0] > 0
    if _may_be_interrupted(frame):
        raise KeyboardInterrupt
    if is_waiting or not _CAN_WAIT:
        _tell_of_interrupt()
        os._exit(INTERRUPTED)
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _SOON)


def _tell_of_interrupt() -> None:
    with suppress(OSError):
        os.write(2, b"error: interrupted\n")


def _may_be_interrupted(frame: FrameType | None) -> bool:
    """Tell whether neither this frame nor one that called it is of an import or of LLVM."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_filename in _IMPORTS or package == _LLVM:
            return False
        frame = frame.f_back
    return True
