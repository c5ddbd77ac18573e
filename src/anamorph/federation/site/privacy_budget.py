"""The privacy budget of a site: what differentially private analyses have cost within a year."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anamorph.federation.protocol.errors import PolicyError
from anamorph.federation.protocol.privacy import (
    PrivacyTerms,
    composed_epsilon,
    noise_multiplier,
)
from anamorph.federation.site.append_only import JsonLines
from anamorph.federation.site.budget import YEAR
from anamorph.federation.site.policy import Policy


@dataclass(frozen=True)
class PrivacySpent:
    """What analyses have cost within the last year.

    Attributes
    ----------
    n_analyses : int
    epsilon : float
        Privacy loss of all together, with probability `delta` more.
    delta : float
    allowed : float
        Largest privacy loss within a year.
    """

    n_analyses: int
    epsilon: float
    delta: float
    allowed: float

    def __str__(self) -> str:
        return (
            f"{self.n_analyses} private analyses within a year, epsilon {self.epsilon:.3g} of "
            f"{self.allowed:g} at delta {self.delta:g}"
        )


class PrivacyBudget:
    """Decides whether a site affords another private analysis.

    Parameters
    ----------
    path : Path
        Read if it exists; the record of analyses of the site, which also names groups.
    policy : Policy
        Sets the limits.
    clock : callable, default `time.time`
        Seconds since 1970 (UTC).
    """

    def __init__(self, path: Path, policy: Policy, clock: Callable[[], float] = time.time) -> None:
        self._lines, self._policy, self._clock = (
            JsonLines(path, "the record of analyses"),
            policy,
            clock,
        )

    def spend(self, terms: PrivacyTerms) -> float:
        """Record an analysis before its answer is made; return the multiplier of its noise.

        Raises
        ------
        PolicyError
            If the analysis alone, or all of a year together, would cost too much.
        """
        policy = self._policy
        for name, given, most in (
            ("epsilon", terms.epsilon, policy.epsilon_per_analysis),
            ("delta", terms.delta, policy.delta),
        ):
            if given > most:
                raise PolicyError(f"this site allows {name} {most:g} of an analysis, got {given:g}")
        multiplier = noise_multiplier(terms.epsilon, terms.delta)
        after = composed_epsilon([*self._multipliers(), multiplier], policy.delta)
        if after > policy.epsilon_per_year * (1 + 1e-3):  # what the calibration leaves open
            raise PolicyError(
                f"with this analysis the privacy loss of a year would be {after:.3g}, and this "
                f"site allows {policy.epsilon_per_year:g}: wait, or ask for a smaller epsilon"
            )
        self._lines.append(
            time=self._clock(),
            multiplier=multiplier,
            epsilon=terms.epsilon,
            delta=terms.delta,
            epsilon_of_year=after,
            allowed=policy.epsilon_per_year,
        )
        return multiplier

    def spent(self) -> PrivacySpent:
        """Return what the analyses of the last year have cost together."""
        multipliers, policy = self._multipliers(), self._policy
        epsilon = composed_epsilon(multipliers, policy.delta) if multipliers else 0.0
        return PrivacySpent(len(multipliers), epsilon, policy.delta, policy.epsilon_per_year)

    def _multipliers(self) -> list[float]:
        first = self._clock() - YEAR
        return [
            line["multiplier"]
            for line in self._lines.read()
            if "multiplier" in line and line["time"] > first
        ]
