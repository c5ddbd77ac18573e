"""Parameters in a few numbers, to compare those of two parties that may differ by rounding.

A *summary* (sums and norms) shows two honest parties that their fits have come apart. A *sketch*
(random projections, under a seed that the one who wants to know has drawn) also shows it of a party
that cheats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import Float64Array

#: Share of the norm of an array by which rounding may change it in the course of a fit.
TOLERANCE = 1e-3
_N_PROJECTIONS = 16
_CHUNK = 2**18


def summary(arrays: Mapping[str, NDArray[Any]]) -> Float64Array:
    """Return the sum, the norm and the sum of alternating signs of each array, (n, 3)."""
    rows = []
    for name in sorted(arrays):
        total = alternating = squares = 0.0
        flat = arrays[name].reshape(-1)
        for first in range(0, len(flat), _CHUNK):
            part = flat[first : first + _CHUNK].astype(np.float64)
            total += float(part.sum())
            alternating += float(part[::2].sum() - part[1::2].sum())
            squares += float(np.einsum("i,i->", part, part))
        rows.append([total, squares**0.5, alternating])
    return np.array(rows)


def digest_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of arrays, to the last bit."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def differ(arrays: Mapping[str, NDArray[Any]], given: Float64Array) -> bool:
    """Tell whether arrays differ by more than rounding from those that a summary is of.

    Parameters
    ----------
    arrays : dict of arrays
    given : array
        Any, from somebody else.
    """
    own, sizes = summary(arrays), np.array([arrays[name].size for name in sorted(arrays)])
    if given.shape != own.shape or not np.isfinite(given).all():
        return True
    norms = np.maximum(own[:, 1], 1e-6)
    sums = norms * np.sqrt(np.maximum(sizes, 1))  # no sum exceeds this
    scale = np.stack([sums, norms, sums], axis=1)
    return bool((np.abs(own - given) > TOLERANCE * scale).any())


def sketch(arrays: Mapping[str, NDArray[Any]], seed: bytes) -> Float64Array:
    """Return random projections of each array, (n, 16), and its norm in front, (n, 17)."""
    generator = np.random.default_rng(np.frombuffer(seed, np.uint32))
    rows = []
    for name in sorted(arrays):
        flat = arrays[name].reshape(-1)
        row = np.zeros(1 + _N_PROJECTIONS)
        for first in range(0, len(flat), _CHUNK // _N_PROJECTIONS):
            part = flat[first : first + _CHUNK // _N_PROJECTIONS].astype(np.float64)
            row[0] += part @ part
            row[1:] += generator.standard_normal((_N_PROJECTIONS, len(part))) @ part
        rows.append([row[0] ** 0.5, *row[1:]])
    return np.array(rows)


def sketches_differ(own: Float64Array, given: Float64Array) -> bool:
    """Tell whether two sketches under one seed are of arrays that differ by more than rounding.

    A projection of a difference d is normal with standard deviation |d|: where |d| is ten times the
    tolerance, all sixteen are below it by chance with a probability of 3e-18.
    """
    if given.shape != own.shape or not np.isfinite(given).all():
        return True
    norms = np.maximum(own[:, :1], 1e-6)
    return bool((np.abs(own - given) > TOLERANCE * norms).any())
