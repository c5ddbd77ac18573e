"""Sums of latents and of their products by group, for means, covariances and regressions.

Exact sums leave a site if every combination of them, with what was answered before, is about enough
images (`answered_groups`). Differentially private ones leave while the budget lasts
(`privacy_budget`): for them nothing else depends on the data, not even a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.bounds import MOST_WEIGHT
from anamorph.federation.protocol.errors import MessageError, PolicyError
from anamorph.federation.protocol.privacy import PrivacyTerms
from anamorph.federation.site.answered_groups import AnsweredGroups
from anamorph.federation.site.policy import Policy
from anamorph.federation.site.privacy_budget import PrivacyBudget
from anamorph.federation.site.private_sums import private_group_sums
from anamorph.fitting.sums import ANALYSES, Sums


class GroupAnswers:
    """Answers "statistics" about the images of a site, and remembers what was answered.

    Parameters
    ----------
    path : Path
        The record of analyses of the site, of all fits. Read if it exists.
    identities : N texts or numbers
        One for each image.
    columns : dict
        N values for each column of the site's table of images, by name.
    policy : Policy
        Of the site.
    """

    def __init__(
        self,
        path: Path,
        identities: Sequence[int | str],
        columns: Mapping[str, Sequence[str]],
        policy: Policy,
    ) -> None:
        self._columns, self._policy = columns, policy
        self._answered = AnsweredGroups(path, identities, policy)
        self._budget = PrivacyBudget(path, policy)

    def answer(self, latents: Float64Array, arguments: Mapping[str, Any], n_sites: int) -> Sums:
        """Return the weighted sums of latents by group; they are recorded as answered.

        Parameters
        ----------
        latents : (N, K)
        arguments : dict
            ``groups``: names of groups; ``group_by``: the column that holds them, None for one
            group of all images; ``weight_by``: a column of weights, None for equal weights;
            ``privacy``: None for exact sums, or epsilon, delta and clip.
        n_sites : int
            How many sites add up their answers before anybody sees them; 1 without masks.

        Returns
        -------
        Sums
            Fields of `sums.ANALYSES["statistics"]`.
        """
        groups = arguments["groups"]
        if len(set(groups)) < len(groups) or not all(isinstance(name, str) for name in groups):
            raise MessageError(f"groups must be different texts, got {groups!r}")
        labels = self._column(arguments.get("group_by"), len(latents), groups[0] if groups else "")
        if arguments.get("privacy") is not None:
            return self._private(latents, labels, arguments, n_sites)
        if not self._policy.exact_statistics:
            raise PolicyError("this site answers differentially private statistics only")
        weight_by = arguments.get("weight_by")
        weights = _checked_weights(self._column(weight_by, len(latents), "1"))
        members = np.array([[label == group for label in labels] for group in groups], np.float64)
        shares = members.reshape(len(groups), len(latents)) * weights
        self._check_sizes(groups, members, shares)
        self._answered.check(shares)
        self._answered.record(shares)
        products = np.einsum("gn,nk,nl->gkl", shares, latents, latents)
        values = (members.sum(axis=1), shares.sum(axis=1), shares @ latents, products)
        return Sums(int(members.sum()), dict(zip(ANALYSES["statistics"], values, strict=True)))

    def _private(
        self,
        latents: Float64Array,
        labels: Sequence[str],
        arguments: Mapping[str, Any],
        n_sites: int,
    ) -> Sums:
        terms = PrivacyTerms.checked(arguments["privacy"])
        if arguments.get("weight_by") is not None:
            raise MessageError("private statistics have no weights: leave weight_by out")
        multiplier = self._budget.spend(terms)
        groups = arguments["groups"]
        return private_group_sums(latents, labels, groups, terms, multiplier, n_sites)

    def _check_sizes(
        self, groups: Sequence[str], members: Float64Array, shares: Float64Array
    ) -> None:
        """Raise a TooFewImagesError that names a group that is too small by itself."""
        check = self._policy.check_images
        for group, is_member, own in zip(groups, members, shares, strict=True):
            check(int(is_member.sum()), f"group {group!r} of this site")
            check(_effective_size(own), f"by its weights, group {group!r} of this site")

    def _column(self, name: str | None, n_images: int, everywhere: str) -> Sequence[str]:
        if name is None:
            return [everywhere] * n_images
        if name not in self._columns:
            lent = ", ".join(self._columns) or "none"
            raise MessageError(f"this site lends no column {name!r}; it lends {lent}")
        return self._columns[name]


def _effective_size(weights: Float64Array) -> int:
    """Return Kish's effective sample size, (sum w)^2 / sum w^2.

    Where nearly all the weight is on one image, the weighted sums reveal that image.
    """
    squares = float(weights @ weights)
    return int(weights.sum() ** 2 / squares + 1e-6) if squares > 0 else 0


def _checked_weights(values: Sequence[str]) -> Float64Array:
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        raise MessageError("weights must be numbers, but this site has other values") from None
    if not ((numbers >= 0) & (numbers <= MOST_WEIGHT)).all():
        raise MessageError(
            f"weights must be from 0 to {MOST_WEIGHT:g}, but this site has other values"
        )
    return numbers
