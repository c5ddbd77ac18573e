"""Analyses across sites: means and covariances of latents by group, from sums over all sites."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.transport import Transport
from anamorph.fitting.sums import Sums
from anamorph.storage.replace import replacing

Float64Array = NDArray[np.float64]


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
        Fitted; sites find the latents of their images under it.
    transport : Transport
    sites : list of str
    groups : list of str
        Names of groups, as they are in the column `group_by`.
    group_by, weight_by : str, optional
        Columns that sites know of their images; by default one group, and equal weights.
    is_secure : bool
        Whether sites mask their sums.
    timeout : float, optional
        Seconds that a site may take for an answer.
    """
    parameters = model.generator_.parameters
    digest = hashlib.blake2b(parameters.mean.tobytes(), digest_size=8)
    digest.update(parameters.shape_basis.tobytes())
    name = f"statistics{digest.hexdigest()}"
    several = FederatedSites(
        transport, model.settings_, name, 0, is_secure=is_secure, timeout=timeout
    )
    several.join(sites)
    several.restore(0)
    several.publish(parameters)
    sums = several.ask("statistics", groups=list(groups), group_by=group_by, weight_by=weight_by)
    return group_statistics(sums, groups)


@dataclass(frozen=True)
class GroupStatistics:
    """What sums over all sites say about a group.

    Attributes
    ----------
    name : str
    n_images : int
    mean : (K,)
        Weighted mean of the latents.
    covariance : (K, K)
        Weighted covariance of the latents.
    """

    name: str
    n_images: int
    mean: Float64Array
    covariance: Float64Array


def group_statistics(sums: Sums, groups: Sequence[str]) -> list[GroupStatistics]:
    """Return means and covariances from the sums over all sites."""
    found = []
    for g, name in enumerate(groups):
        weight = sums["weight_sum"][g]
        mean = sums["latent_sum"][g] / weight
        covariance = sums["latent_scatter"][g] / weight - np.outer(mean, mean)
        found.append(GroupStatistics(name, round(sums["group_size"][g]), mean, covariance))
    return found


def summary(groups: Sequence[GroupStatistics]) -> dict[str, dict[str, Any]]:
    """Return the size and the mean of every group, by name."""
    return {
        group.name: {"n_images": group.n_images, "mean": group.mean.tolist()} for group in groups
    }


def write_statistics(path: Path, groups: Sequence[GroupStatistics]) -> None:
    """Write a table: for every group the mean, then a row of the covariance for each latent."""
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
