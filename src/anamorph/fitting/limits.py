"""Limits on what one image may contribute to sums, so that no image can dominate them.

A federation sets them from what all sites know (`federation.protocol.bounds`), well above what
honest images contribute: where a contribution exceeds its limit it is scaled down, and where it is
not finite it is left out. A fit on one machine sets none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, Float64Array


@dataclass(frozen=True)
class Limits:
    """The most that one image contributes.

    Attributes
    ----------
    latent : float
        Norm of z.
    gradient, hessian : float
        Norms of the fields of derivatives of an image.
    log_likelihood, log_determinant : float
        Absolute values.
    covariance : float
        Largest entry of S_n.
    squares : float
        Sum of squared residuals in a channel.
    errors : float
        Squared errors of prediction over the noise variance.
    most_log_likelihood : float
        The log-likelihood that no image exceeds. By default there is none.
    pose : tuple of float
        Absolute values of the coordinates of a pose. By default images have none.
    """

    latent: float
    gradient: float
    hessian: float
    log_likelihood: float
    log_determinant: float
    covariance: float
    squares: float
    errors: float
    most_log_likelihood: float = math.inf
    pose: tuple[float, ...] = ()


def shrink(values: Array, limit: float) -> Float64Array:
    """Scale down what is too large, image by image, in place.

    Parameters
    ----------
    values : (N, ...)
    limit : float
        Largest norm of the values of an image.

    Returns
    -------
    (N,) float64
        Squared norms of the values of each image, as they are now.
    """
    xp = array_namespace(values)
    rows = values.reshape(len(values), -1)
    squares: Float64Array = xp.einsum("ni,ni->n", rows, rows).astype(np.float64)
    is_broken = ~xp.isfinite(squares)
    rows[is_broken] = 0
    squares[is_broken] = 0
    is_large = squares > limit**2
    rows[is_large] *= (limit / xp.sqrt(squares[is_large]))[:, None].astype(rows.dtype)
    squares[is_large] = limit**2
    return squares


def clipped(values: Float64Array, limit: float | Float64Array) -> Float64Array:
    """Return values between -limit and limit; what is not a number becomes 0.

    Parameters
    ----------
    values : array
    limit : float or array
        One for all, or one for each value of the last axis.
    """
    xp = array_namespace(values)
    numbers: Float64Array = xp.clip(xp.where(xp.isnan(values), 0.0, values), -limit, limit)
    return numbers
