"""Sites: whoever holds images. `fitting` publishes parameters to them and asks for sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, Protocol

from anamorph.cohort import Cohort
from anamorph.parameters import Parameters
from anamorph.sums import Sums


class Sites(Protocol):
    """One or many sites that answer as one."""

    def publish(self, parameters: Parameters) -> None:
        """Send the parameters that the next questions are about."""
        ...

    def ask(self, question: str, **arguments: Any) -> Sums:
        """Return the sum of all sites' answers to a question of `sums.FIELDS`."""
        ...


class LocalSites:
    """Cohorts in this process."""

    def __init__(self, cohorts: Sequence[Cohort]) -> None:
        self.cohorts = cohorts

    def publish(self, parameters: Parameters) -> None:
        """Send parameters to every cohort."""
        for cohort in self.cohorts:
            cohort.publish(parameters)

    def ask(self, question: str, **arguments: Any) -> Sums:
        """Return the sum of all cohorts' answers."""
        answers: list[Sums] = [getattr(cohort, question)(**arguments) for cohort in self.cohorts]
        return reduce(add, answers)
