"""Images that stand out: badly explained by the model, or far from all others in their latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.latents import mode_standard_deviations
from anamorph.report.markup import (
    Section,
    format_count,
    format_number,
    format_percent,
    make_paragraph,
    make_table,
)

_MOST_ROWS = 10
_RARE = 0.001  # share of images of the model whose latents are as far from zero
_BAD_FIT = 3.5  # robust standard deviations below the median
_MAD_TO_DEVIATION = 1.4826  # of a Gaussian
_HEADER = ("Image", "Log-likelihood per voxel", "Largest latent", "Images as far out", "Why")


@dataclass(frozen=True)
class Outlier:
    """An image that stands out.

    Attributes
    ----------
    name : str
    fit : float or None
        Log-likelihood per voxel; None where the image is not known.
    latent : int
        The latent that is largest, from 0.
    deviations : float
        Its value, in standard deviations.
    share : float
        Share of images of the model whose latents are as far from zero or farther.
    reasons : tuple of str
    """

    name: str
    fit: float | None
    latent: int
    deviations: float
    share: float
    reasons: tuple[str, ...]


def find_outliers(
    model: ShapeAppearanceModel,
    latents: Float64Array,
    names: Sequence[str],
    fit: Float64Array | None = None,
) -> list[Outlier]:
    """Return the images that stand out, the farthest first.

    Parameters
    ----------
    model : ShapeAppearanceModel
    latents : array of shape (N, K)
    names : N strings
    fit : array of shape (N,), optional
        Log-likelihood per voxel of each image; by default only latents are looked at.

    Returns
    -------
    list of Outlier
    """
    distances = np.einsum("nk,kl,nl->n", latents, model.latent_precision_, latents)
    shares = chi2.sf(distances, latents.shape[1])
    is_far = shares < _RARE
    is_bad = np.zeros(len(latents), bool) if fit is None else _is_bad(fit)
    scaled = latents / mode_standard_deviations(model.latent_precision_)
    found = []
    chosen: list[int] = np.flatnonzero(is_far | is_bad).tolist()
    for n in sorted(chosen, key=lambda n: -distances[n]):
        latent = int(np.abs(scaled[n]).argmax())
        reasons = ("far from the others",) * bool(is_far[n]) + ("badly fitted",) * bool(is_bad[n])
        found.append(
            Outlier(
                names[n],
                None if fit is None else float(fit[n]),
                latent,
                float(scaled[n, latent]),
                float(shares[n]),
                reasons,
            )
        )
    return found


def _is_bad(fit: Float64Array) -> Float64Array:
    median = np.median(fit)
    spread = _MAD_TO_DEVIATION * np.median(np.abs(fit - median))
    return np.asarray(fit < median - _BAD_FIT * max(spread, 1e-6 * abs(median), 1e-12))


def outliers_section(
    model: ShapeAppearanceModel,
    latents: Array,
    names: Sequence[str] | None,
    fit: Float64Array | None,
) -> Section:
    """List the images that stand out."""
    shown_names = [f"image {n}" for n in range(len(latents))] if names is None else list(names)
    found = find_outliers(model, np.asarray(latents, np.float64), shown_names, fit)
    looked_at = format_count(len(latents), "image")
    if not found:
        text = f"None of {looked_at} stands out: no latents are far from zero"
        text += ", and no image is fitted much worse than the others." if fit is not None else "."
        return Section("outliers", "Outliers", make_paragraph(text))
    verb = "stands" if len(found) == 1 else "stand"
    listed = f"; the {_MOST_ROWS} farthest are listed" if len(found) > _MOST_ROWS else ""
    intro = (
        f"Of {looked_at}, {len(found)} {verb} out{listed}: fitted much worse than the median, or "
        f"with latents as far from zero as {format_percent(_RARE)} of the images that the model "
        "draws. Look at them first: a scan gone wrong, another orientation, or a rare case."
    )
    rows = [_row(outlier) for outlier in found[:_MOST_ROWS]]
    return Section("outliers", "Outliers", make_paragraph(intro) + make_table(_HEADER, rows))


def _row(outlier: Outlier) -> tuple[str, ...]:
    share = f"{100 * outlier.share:.1g} %" if outlier.share >= 1e-6 else "below 0.0001 %"
    return (
        outlier.name,
        "n/a" if outlier.fit is None else format_number(outlier.fit),
        f"latent {outlier.latent + 1}: {format_number(outlier.deviations)} s.d.",
        share,
        " and ".join(outlier.reasons),
    )
