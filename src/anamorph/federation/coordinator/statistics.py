"""Statistics across sites: means and covariances of latents by group, from sums over all sites."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.transport import Transport
from anamorph.fitting.sums import Sums
from anamorph.storage.replace import replacing


def federated_statistics(
    model: ShapeAppearanceModel,
    transport: Transport,
    sites: Sequence[str],
    groups: Sequence[str] = ("all",),
    *,
    group_by: str | None = None,
    weight_by: str | None = None,
    is_secure: bool = True,
    timeout: float | None = None,
) -> list[GroupStatistics]:
    """Return means and covariances of the latents of images at several sites.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model. Sites encode their images with it.
    transport : Transport
        Connects the sites.
    sites : list of str
        Names of the sites that take part.
    groups : list of str, default ("all",)
        Names of groups, as they occur in the column `group_by`.
    group_by : str, optional
        Column of the sites' tables that holds the groups. By default all images are one group.
    weight_by : str, optional
        Column of the sites' tables that holds weights. By default all weights are equal.
    is_secure : bool, default True
        Whether sites mask their sums.
    timeout : float, optional
        Seconds that a site may take for an answer. By default there is no limit.

    Returns
    -------
    list of GroupStatistics
        One for each group, in the same order.

    Raises
    ------
    FederationError
        If a site refuses or does not answer.
    """
    parameters = model.generator_.parameters
    digest = hashlib.blake2b(parameters.mean.tobytes(), digest_size=8)
    digest.update(parameters.shape_basis.tobytes())
    name = f"statistics{digest.hexdigest()}"
    federated = FederatedSites(
        transport, model.generator_.settings, name, 0, is_secure=is_secure, timeout=timeout
    )
    federated.join(sites)
    federated.restore(0)
    federated.publish(parameters)
    sums = federated.ask("statistics", groups=list(groups), group_by=group_by, weight_by=weight_by)
    return [_statistics_of(sums, number, group) for number, group in enumerate(groups)]


@dataclass(frozen=True)
class GroupStatistics:
    """Mean and covariance of the latents of a group, over all sites.

    Attributes
    ----------
    name : str
        Name of the group.
    n_images : int
        Its size over all sites.
    mean : (K,)
        Weighted mean of the latents.
    covariance : (K, K)
        Weighted covariance of the latents.
    """

    name: str
    n_images: int
    mean: Float64Array
    covariance: Float64Array


def _statistics_of(sums: Sums, group: int, name: str) -> GroupStatistics:
    weight = sums["weight_sum"][group]
    mean = sums["latent_sum"][group] / weight
    covariance = sums["latent_scatter"][group] / weight - np.outer(mean, mean)
    return GroupStatistics(name, round(sums["group_size"][group]), mean, covariance)


def summarised(groups: Sequence[GroupStatistics]) -> dict[str, dict[str, Any]]:
    """Return the size and the mean of every group, by name, as JSON can hold them."""
    return {
        group.name: {"n_images": group.n_images, "mean": group.mean.tolist()} for group in groups
    }


def write_statistics(path: Path, groups: Sequence[GroupStatistics]) -> None:
    """Write a TSV table: for every group its mean, then a row of the covariance for each latent.

    Parameters
    ----------
    path : Path
        Replaced if it exists.
    groups : list of GroupStatistics
    """
    latents = [f"z{k}" for k in range(1, len(groups[0].mean) + 1)]
    lines = ["\t".join(["group", "n_images", "statistic", *latents])]
    for group in groups:
        rows = {"mean": group.mean}
        rows |= {f"covariance_{name}": group.covariance[k] for k, name in enumerate(latents)}
        for name, values in rows.items():
            numbers = [f"{value:.9g}" for value in values]
            lines.append("\t".join([group.name, str(group.n_images), name, *numbers]))
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
