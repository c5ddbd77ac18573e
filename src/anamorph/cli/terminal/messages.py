"""The output of commands: text and progress for people, one JSON object for programs.

Standard output may break, a closed pipe or a full disk: what is told of the work must not end it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from anamorph.fitting.run import Progress

_logger = logging.getLogger("anamorph")
_LONGEST_LINE = 1000  # of a table that goes to a file or a pipe
_MOST_NAMED = 3  # files
_FEW, _SHARES = 20, 4  # images that need no lines of progress, and how many lines others get


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


def counted(number: int, thing: str) -> str:
    """Return a number with its noun, e.g. "1 image" or "3 images"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


class Messages:
    """The output of one command.

    Text goes to standard output, or to standard error if standard output is for JSON.

    Parameters
    ----------
    command : str
        Name of the command, the first entry of the JSON object.
    quiet : bool
        Whether to print only what was asked for.
    as_json : bool
        Whether to end with a JSON object on standard output.
    """

    def __init__(self, command: str, quiet: bool, as_json: bool) -> None:
        from rich.console import Console

        stream = unbreakable(sys.stderr if as_json else sys.stdout)
        self.console: Console = Console(file=stream, quiet=quiet)
        self.as_json = as_json
        self._result: dict[str, Any] = {"command": command}
        self._is_finished = False

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def show(self, thing: RenderableType) -> None:
        """Print a table, unless the JSON object holds the same."""
        if not self.as_json:
            self.console.print(thing)

    def answer(self, thing: RenderableType) -> None:
        """Print what was asked for, even if quiet, unless the JSON object holds the same.

        Lines are not wrapped in files and pipes.
        """
        from rich.console import Console

        if not self.as_json:
            console = Console()
            if not console.is_terminal:
                console.width = _LONGEST_LINE
            console.print(thing)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that work is in progress: a spinner on a terminal, a line elsewhere."""
        if not self.console.is_terminal:
            self.say(text)
            yield
            return
        with self.console.status(text):
            yield

    @contextmanager
    def counting(self, text: str) -> Iterator[None]:
        """Show how many images are predicted: a bar on a terminal, a few lines elsewhere."""
        from anamorph.model.progress import progress_told

        if self.console.is_terminal and not self.console.quiet:
            with self._bar(text) as listener, progress_told(listener):
                yield
            return
        self.say(text)
        next_share = [1]

        def tell(n_done: int, n_all: int) -> None:
            if n_all >= _FEW and n_done * _SHARES >= next_share[0] * n_all:
                next_share[0] = n_done * _SHARES // n_all + 1
                self.say(f"{n_done} of {n_all} images")

        with progress_told(tell):
            yield

    @contextmanager
    def _bar(self, text: str) -> Iterator[Callable[[int, int], object]]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(text, total=None)
            yield lambda n_done, n_all: bar.update(task, completed=n_done, total=n_all)

    def result(self, **facts: Any) -> None:
        """Add to the JSON object."""
        self._result |= facts

    def finish(self) -> None:
        """Print the JSON object, where one is wanted; the first call counts."""
        if self.as_json and not self._is_finished:
            print_result(json.dumps(self._result))
        self._is_finished = True

    def wrote(self, *paths: Path, look_at: Path | None = None) -> None:
        """Print which files were written, and add them to the JSON object.

        Parameters
        ----------
        *paths : Path
        look_at : Path, optional
            The file to open first, named even if there are many; none by default.
        """
        self.result(files=[str(path) for path in paths])
        if len(paths) <= _MOST_NAMED:
            self.say(f"Wrote {', '.join(map(str, paths))}")
        else:
            hint = "" if look_at is None else f"; look at {look_at}"
            self.say(f"Wrote {len(paths)} files to {paths[0].parent}{hint}")


class _LogToMessages(logging.Handler):
    """Prints warnings of the numerical core as messages of the command."""

    def __init__(self, messages: Messages) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        from anamorph.cli.terminal.errors import in_flags

        text = in_flags(record.getMessage())
        if text not in self._said:  # images may be opened, and checked, more than once
            self._messages.say(text)
        self._said.add(text)


@contextmanager
def talking(command: str, quiet: bool, as_json: bool) -> Iterator[Messages]:
    """Yield the messages of a command, and print its JSON object when it has succeeded."""
    messages = Messages(command, quiet, as_json)
    handler = _LogToMessages(messages)
    _logger.addHandler(handler)
    try:
        yield messages
    finally:
        _logger.removeHandler(handler)
    messages.finish()


class FitDisplay:
    """Shows the progress of a fit within a ``with`` block: a bar, or lines without a terminal.

    Parameters
    ----------
    messages : Messages
        Where lines go if there is no terminal.
    """

    def __init__(self, messages: Messages) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        self._messages = messages
        self._is_live = messages.console.is_terminal and not messages.console.quiet
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}"),
            console=messages.console,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._bar.add_task("", total=None, facts="")

    def __enter__(self) -> FitDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, text: str) -> None:
        """Show what happens before the first iteration."""
        if self._is_live:
            self._bar.update(self._task, description=text)
        else:
            self._messages.say(text)

    def advance(self, progress: Progress) -> None:
        """Show the progress after an iteration."""
        self.advance_named("", progress)

    def advance_named(self, name: str, progress: Progress) -> None:
        """Show the progress of one of several fits after an iteration."""
        from anamorph.fitting.run import duration

        place = f"iteration {progress.n_done}/{progress.n_iter}{progress.place}"
        place = f"{name}, {place}" if name else place.capitalize()
        facts = (
            f"objective {progress.objective[-1]:.8g}, "
            f"{progress.seconds[-1] / progress.n_images:.2g} s/image, "
            f"{duration(progress.seconds_left)} left"
        )
        if not self._is_live:
            self._messages.say(f"{place}: {facts}")
            return
        self._bar.update(
            self._task,
            description=place,
            completed=progress.n_done,
            total=progress.n_iter,
            facts=facts,
        )
