"""The penalty of shape begins firm, and relaxes while a model is fitted.

Latents are random when a fit begins, and the first warps follow them. A warp that comes too early
is hard to take back: mean and appearance have adapted to it, and every step from there makes things
worse. Where the penalty of shape L^v is at first many times as large, appearance finds out first
in which ways images differ, and warps follow as the penalty relaxes to the one that was asked for:

    f(n) = f_0^(1 - n / m) for iterations n = 0, ..., m - 1, and 1 from then on.

What relaxing adds to F may be lost again by the step of the shape basis that follows: its gradient
is approximate, and where it had to improve F by itself it would be halved again and again. For the
same reason steps that were halved soon get longer again. F is still never lower than before.

With the same penalty at the end, tissue maps with poses get a higher objective in 8 iterations than
in 60 without (`docs/alignment.md`). Fits without poses are those of the paper.

A constant factor of L^v changes no geodesic: sites need not know of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from anamorph.model.settings import Settings

_FIRMEST = 30.0  # f_0
_FIRST_ROUNDS = 10
_SHARE = 0.9  # of all iterations, after which the penalty is the one that was asked for


@dataclass(frozen=True)
class Relaxation:
    """How firm the penalty of shape is, iteration by iteration.

    Attributes
    ----------
    n_iter : int
        Iterations of the fit on all grids together; 0 by default: the penalty is never firmer.
    """

    n_iter: int = 0

    @classmethod
    def of(cls, settings: Settings, n_iter: int) -> Relaxation:
        """Return that of a fit: of images with poses and without noise, and none of others.

        Poses have explained what is out of place. In images without them, appearance that comes
        first explains it, and the mean shows everything twice. Where noise is estimated, it is
        large at first: penalties are firm by themselves, and relax as residuals get smaller.

        Parameters
        ----------
        settings : Settings
        n_iter : int
            On all grids together.
        """
        is_relaxed = settings.has_poses and not settings.likelihood.has_noise
        return cls(n_iter if is_relaxed else 0)

    def firmness(self, n_done: int) -> float:
        """Return the factor of the penalty in the next iteration.

        Parameters
        ----------
        n_done : int
            Iterations before it, on all grids.
        """
        length = int(_SHARE * self.n_iter)
        return _FIRMEST ** (1 - n_done / length) if n_done < length else 1.0

    @property
    def is_on(self) -> bool:
        """Whether this is anything but the fit of the paper."""
        return self.n_iter > 0

    @property
    def n_first_rounds(self) -> int:
        """How often mean, appearance and latents are updated before there are any warps."""
        return _FIRST_ROUNDS if self.is_on else 0
