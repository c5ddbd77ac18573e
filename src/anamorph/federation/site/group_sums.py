"""Sums of latents and of their products by group, for means, covariances and regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.errors import MessageError
from anamorph.federation.site.policy import Policy
from anamorph.fitting.sums import ANALYSES, Sums


def group_sums(
    latents: Float64Array,
    columns: Mapping[str, Sequence[str]],
    arguments: Mapping[str, Any],
    policy: Policy,
) -> Sums:
    """Return the weighted sums of latents by group.

    Parameters
    ----------
    latents : (N, K)
    columns : dict
        N values for each column of the site's table of images, by name.
    arguments : dict
        ``groups``: names of groups; ``group_by``: the column that holds them, None for one group
        of all images; ``weight_by``: a column of weights, None for equal weights.
    policy : Policy
        Of the site. It sets the smallest size, and smallest effective size, of a group.

    Returns
    -------
    Sums
        Fields of `sums.ANALYSES["statistics"]`.
    """
    groups = arguments["groups"]
    labels = _column(columns, arguments.get("group_by"), len(latents), groups[0] if groups else "")
    weights = _checked_weights(_column(columns, arguments.get("weight_by"), len(latents), "1"))
    members = np.array([[label == group for label in labels] for group in groups], np.float64)
    shares = members * weights
    for group, is_member, own in zip(groups, members, shares, strict=True):
        policy.check_images(int(is_member.sum()), f"group {group!r} of this site")
        policy.check_images(_effective_size(own), f"by its weights, group {group!r} of this site")
    products = np.einsum("gn,nk,nl->gkl", shares, latents, latents)
    values = (members.sum(axis=1), shares.sum(axis=1), shares @ latents, products)
    return Sums(int(members.sum()), dict(zip(ANALYSES["statistics"], values, strict=True)))


def _effective_size(weights: Float64Array) -> int:
    """Return Kish's effective sample size, (sum w)^2 / sum w^2.

    Where nearly all the weight is on one image, the weighted sums reveal that image.
    """
    squares = float(weights @ weights)
    return int(weights.sum() ** 2 / squares + 1e-6) if squares > 0 else 0


def _column(
    columns: Mapping[str, Sequence[str]], name: str | None, n_images: int, everywhere: str
) -> Sequence[str]:
    if name is None:
        return [everywhere] * n_images
    if name not in columns:
        raise MessageError(
            f"this site lends no column {name!r}; it lends {', '.join(columns) or 'none'}"
        )
    return columns[name]


def _checked_weights(values: Sequence[str]) -> Float64Array:
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        raise MessageError("weights must be numbers, but this site has other values") from None
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise MessageError("weights must be finite and >= 0, but this site has other values")
    return numbers
