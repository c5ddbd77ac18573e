"""The progress of a fit: what is shown to people after every iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def duration(seconds: float) -> str:
    """Return e.g. "1.1 ms", "0.42 s", "41 s", "12 min" or "3.2 h"."""
    if 0 < seconds < 0.095:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Progress:
    """Where a fit stands after an iteration.

    Attributes
    ----------
    n_done, n_iter : int
        Iterations done, and to do in all.
    n_images : int
    objective : tuple of float
        After each iteration.
    seconds : tuple of float
        Duration of each iteration.
    """

    n_done: int
    n_iter: int
    n_images: int
    objective: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def seconds_left(self) -> float:
        """How long the rest will take, if the next iterations are like the last."""
        return self.seconds[-1] * (self.n_iter - self.n_done)

    def __str__(self) -> str:
        return (
            f"Iteration {self.n_done} of {self.n_iter}: objective {self.objective[-1]:.8g}, "
            f"{self.seconds[-1]:.2g} s, about {duration(self.seconds_left)} left"
        )


def told(
    is_printed: bool, callback: Callable[[Progress], object] | None
) -> Callable[[Progress], None]:
    """Return what to call with the progress after every iteration.

    Parameters
    ----------
    is_printed : bool
        Whether to print it.
    callback : callable, optional
        Called with it as well.
    """

    def tell(progress: Progress) -> None:
        if is_printed:
            print(progress, flush=True)
        if callback is not None:
            callback(progress)

    return tell
