"""How far a fit is: what is shown after every iteration."""

from __future__ import annotations

from dataclasses import dataclass


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
        That each iteration took.
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
            f"{self.seconds[-1]:.2g} s, about {self.seconds_left:.0f} s left"
        )
