"""Standard output that may break: what is told of the work must not end it."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast


class UnbreakableStream:
    """A text stream that falls silent when it cannot be written to: a closed pipe, a full disk.

    Parameters
    ----------
    stream : text stream or None
        None where the process was started without one.

    Attributes
    ----------
    is_broken : bool
        Whether something could not be written.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Tell whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> int:
        """Write a text, or nothing once the stream is broken."""
        if self._stream is not None:
            try:
                return self._stream.write(text)
            except (OSError, ValueError):  # a ValueError if the stream is closed
                self._fall_silent()
        return len(text)

    def flush(self) -> None:
        """Write out what is waiting."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._fall_silent()

    def _fall_silent(self) -> None:
        """Send what is waiting, and all that follows, to nowhere: Python flushes at its end too."""
        stream, self._stream, self.is_broken = self._stream, None, True
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, cast(TextIO, stream).fileno())
            os.close(nowhere)
        except (OSError, ValueError):  # a stream without a file
            return


def unbreakable(stream: TextIO | None) -> TextIO:
    """Return a stream that falls silent when it breaks."""
    return cast(TextIO, UnbreakableStream(stream))


def print_result(text: str) -> None:
    """Print what a program asked for, or raise an OSError that says that it cannot be."""
    stream = UnbreakableStream(sys.stdout)
    print(text, file=cast(TextIO, stream), flush=True)
    if stream.is_broken:
        raise OSError("the result cannot be written to standard output: is it full, or closed?")


def tell(text: str) -> None:
    """Write a line to standard error, if it can be written to."""
    print(text, file=unbreakable(sys.stderr), flush=True)
