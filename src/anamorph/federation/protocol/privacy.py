"""Differential privacy of statistics: how much noise it takes, and what several analyses add up to.

The mechanism is Gaussian. Epsilon and delta come from the accountant of Google's `dp-accounting`
(the extra ``privacy``): privacy loss distributions, which compose without much slack.

Two data sets are neighbours if they differ in one image being counted or left out; how many images
a site has is public. A person with m images at the sites is protected m times less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from anamorph.federation.protocol.errors import FederationError, MessageError

#: Parts of the answer about an image, each of norm at most 1: one, its latents, their products.
N_PARTS = 3

# Of privacy losses, which are rounded up: a coarser grid costs accuracy (1e-6 of epsilon).
_INTERVAL = 1e-3
# Within these the accountant takes about a second.
_RANGES = {"epsilon": (1e-2, 10.0), "delta": (1e-12, 0.1), "clip": (1e-6, 1e6)}


@dataclass(frozen=True)
class PrivacyTerms:
    """What a differentially private analysis asks for.

    Attributes
    ----------
    epsilon : float
        Privacy loss that is not exceeded but with probability `delta`.
    delta : float
        That probability.
    clip : float
        Largest norm of the latents of an image. Longer ones are shortened to it.
    """

    epsilon: float
    delta: float
    clip: float

    @classmethod
    def checked(cls, given: Any) -> PrivacyTerms:
        """Return terms from a message, or raise a MessageError that names what is wrong."""
        if not isinstance(given, Mapping) or set(given) != set(_RANGES):
            raise MessageError(f"privacy must have {', '.join(_RANGES)}, got {given!r}")
        for name, (low, high) in _RANGES.items():
            value = given[name]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not low <= value <= high:
                raise MessageError(
                    f"{name} of an analysis must be a number from {low:g} to {high:g}, "
                    f"got {value!r}"
                )
        return cls(*(float(given[name]) for name in _RANGES))


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the standard deviation of noise, per sensitivity, of one analysis.

    Parameters
    ----------
    epsilon, delta : float

    Returns
    -------
    float
    """
    accounting, accountant = _library()
    guess = accounting.mechanism_calibration.LowerEndpointAndGuess(0.0, 4 / epsilon)
    found = accounting.calibrate_dp_mechanism(
        accountant, accounting.GaussianDpEvent, epsilon, delta, guess, tol=1e-3 / epsilon
    )
    return float(found)


def composed_epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Return the privacy loss of several analyses together.

    Parameters
    ----------
    multipliers : list of float
        Of the noise of each.
    delta : float
        Probability with which the loss may be larger.

    Returns
    -------
    float
        0 of none.
    """
    information = sum(1 / multiplier**2 for multiplier in multipliers)
    if not information:
        return 0.0
    accounting, accountant = _library()
    # Gaussian mechanisms together are one Gaussian mechanism, and one distribution is soon made.
    account = accountant().compose(accounting.GaussianDpEvent(1 / math.sqrt(information)))
    return float(account.get_epsilon(delta))


def _library() -> tuple[Any, Callable[[], Any]]:
    """Return the accounting library and what makes an accountant, or say how to install it."""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
    except ImportError:
        raise FederationError(
            "differential privacy needs dp-accounting: pip install 'anamorph[privacy]'"
        ) from None
    return dp_accounting, partial(PLDAccountant, value_discretization_interval=_INTERVAL)
