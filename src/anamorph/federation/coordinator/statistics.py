"""Statistics across sites: means and covariances of latents by group, from sums over all sites.

Sites are not alike: scanners, protocols and patients differ. Totals over all sites do not tell what
differs between sites from what differs between groups. If a group comes mostly from one site, a
difference of group means is partly, or only, one of that site.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation.coordinator.description import described
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.protocol.privacy import N_PARTS, PrivacyTerms, noise_multiplier
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
    privacy: PrivacyTerms | None = None,
) -> list[GroupStatistics]:
    """Return means and covariances of the latents of images at several sites.

    What differs between sites (scanners, protocols, patients) is part of what differs between
    groups, unless each site has the same share of every group.

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
    privacy : PrivacyTerms, optional
        Of differentially private statistics, as from `privacy_terms`: sites add noise, and latents
        that are longer than a bound are shortened. By default statistics are exact.

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
    holdings = described(transport, sites, timeout).holdings
    federated = FederatedSites(
        transport, model.settings_, name, holdings, is_secure=is_secure, timeout=timeout
    )
    federated.open_model(sites, parameters)
    sums = federated.ask(
        "statistics",
        groups=list(groups),
        group_by=group_by,
        weight_by=weight_by,
        privacy=None if privacy is None else asdict(privacy),
    )
    federated.complete()
    clip, noise = 1.0, 0.0
    if privacy is not None:
        clip, noise = privacy.clip, privacy.clip * _noise(privacy, len(sites), is_secure)
    return [_statistics_of(sums, number, name, clip, noise) for number, name in enumerate(groups)]


def privacy_terms(
    model: ShapeAppearanceModel, epsilon: float, delta: float = 1e-5, clip: float | None = None
) -> PrivacyTerms:
    """Return the terms of differentially private statistics under a model.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    epsilon : float
        Privacy loss: 1 is strong, 10 hardly protects.
    delta : float, default 1e-5
        Probability with which the loss may be larger; below one over the number of images.
    clip : float, optional
        Largest norm of the latents of an image. By default 1.5 times the root mean square that the
        model tells of those it was fitted to: it depends on the model alone.

    Returns
    -------
    PrivacyTerms

    Raises
    ------
    MessageError
        If a number is not positive, or delta not below 1.
    """
    if clip is None:
        clip = 1.5 * float(np.sqrt(np.trace(np.linalg.inv(model.latent_precision_))))
    return PrivacyTerms.checked({"epsilon": epsilon, "delta": delta, "clip": clip})


def _noise(terms: PrivacyTerms, n_sites: int, is_secure: bool) -> float:
    """Return the standard deviation of the noise in a sum of latents, in units of the clip."""
    sensitivity = np.sqrt(N_PARTS) * noise_multiplier(terms.epsilon, terms.delta)
    n_shares = max(1, n_sites - 1) if is_secure else 1
    return float(sensitivity * np.sqrt(n_sites / n_shares))


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
    mean_noise : float, default 0
        Standard deviation of the noise in each number of the mean. If the noise is larger than the
        group, mean and covariance are NaN.
    """

    name: str
    n_images: int
    mean: Float64Array
    covariance: Float64Array
    mean_noise: float = 0.0


def _statistics_of(sums: Sums, group: int, name: str, unit: float, noise: float) -> GroupStatistics:
    """Return the statistics of a group from sums of latents in some unit."""
    weight = sums["weight_sum"][group]
    if noise and weight < 1:  # noise took the place of the group
        weight = np.nan
    mean = unit * sums["latent_sum"][group] / weight
    covariance = unit**2 * sums["latent_scatter"][group] / weight - np.outer(mean, mean)
    n_images = max(0, round(sums["group_size"][group]))
    return GroupStatistics(name, n_images, mean, covariance, noise / weight)


def summarised(groups: Sequence[GroupStatistics]) -> dict[str, dict[str, Any]]:
    """Return the size and the mean of every group, by name, as JSON can hold them."""
    return {
        group.name: {
            "n_images": group.n_images,
            "mean": [None if np.isnan(value) else float(value) for value in group.mean],
            "mean_noise": None if np.isnan(group.mean_noise) else float(group.mean_noise),
        }
        for group in groups
    }


def write_statistics(path: Path, groups: Sequence[GroupStatistics]) -> None:
    """Write a TSV table: for every group its mean, then a row of the covariance for each latent.

    Differentially private statistics also have a row with the noise in the mean.

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
        if group.mean_noise:
            rows["mean_noise"] = np.full(len(latents), group.mean_noise)
        rows |= {f"covariance_{name}": group.covariance[k] for k, name in enumerate(latents)}
        for name, values in rows.items():
            numbers = [f"{value:.9g}" for value in values]
            lines.append("\t".join([group.name, str(group.n_images), name, *numbers]))
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
