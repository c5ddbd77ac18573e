"""The progress of a fit: a spinner, then a bar; plain lines if there is no terminal."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar

from anamorph.cli.terminal.messages import Messages
from anamorph.fitting.run import duration

if TYPE_CHECKING:
    from anamorph.fitting.run import Progress


class FitDisplay:
    """Shows the progress of a fit within a ``with`` block.

    Parameters
    ----------
    messages : Messages
        Where lines go if there is no terminal.
    """

    def __init__(self, messages: Messages) -> None:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        place = f"iteration {progress.n_done}/{progress.n_iter}"
        place = f"{name}, {place}" if name else place.capitalize()
        if not self._is_live:
            self._messages.say(f"{place}: {describe_progress(progress)}")
            return
        self._bar.update(
            self._task,
            description=place,
            completed=progress.n_done,
            total=progress.n_iter,
            facts=describe_progress(progress),
        )


def describe_progress(progress: Progress) -> str:
    """Return the objective, seconds per image and time left, in words."""
    per_image = progress.seconds[-1] / progress.n_images
    return (
        f"objective {progress.objective[-1]:.8g}, {per_image:.2g} s/image, "
        f"{duration(progress.seconds_left)} left"
    )
