"""Loops over images around the formulas of a likelihood; every likelihood gets copies of its own.

Numba keeps compiled functions on disk by file and name, and finds what they call among their
globals. A loop is therefore copied for each likelihood: with its formulas among the globals, under
a name that changes when the source of the loop or of a formula does.

Loops evaluate or differentiate: where `gradient` and `hessian` are None, Numba leaves them out.
"""

# ruff: noqa: F821  formulas are among the globals of the copies
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from anamorph.kernels.compile import Array, kernel

Formula = Callable[..., Any]  # compiled by `formula`
_PIECE = 512  # voxels at a time: their classes stay in the first-level cache


def _channels(
    appearance: Array,
    images: Array,
    precision: Array,
    values: Array,
    observed: Array | None,
    gradient: Array | None,
    hessian: Any,  # None with `gradient`
) -> None:
    """Loop over channels that are independent of each other.

    appearance, images, gradient, hessian : (N, C, voxel)
    precision : (C,)
    values, observed : (N, C)
        Sums of what `voxel` returns first, and numbers of observed voxels (None: not counted).
    """
    zero = appearance.dtype.type(0)
    for n in range(images.shape[0]):
        for c in range(images.shape[1]):
            a, f, weight = appearance[n, c], images[n, c], precision[c]
            if gradient is not None:
                g, h = gradient[n, c], hessian[n, c]
            total, count = 0.0, np.int32(0)
            for x in range(f.size):
                is_observed = f[x] == f[x]
                value, slope, curvature = voxel(a[x], f[x] if is_observed else zero, weight)
                total += np.float64(value if is_observed else zero)
                count += np.int32(is_observed)
                if gradient is not None:
                    g[x] = slope if is_observed else zero
                    h[x] = curvature if is_observed else zero
            values[n, c] = total
            if observed is not None:
                observed[n, c] = count


def _classes(
    appearance: Array,
    images: Array,
    loading: float,
    values: Array,
    gradient: Array | None,
    hessian: Any,  # None with `gradient`
) -> None:
    """Loop over voxels that have one of C classes; a voxel is missing as a whole.

    appearance, images, gradient : (N, C, voxel)
    values : (N,)
        ln p(f | a').
    hessian : (N, C (C + 1) / 2, voxel)
        Packed: the diagonal, then row by row.
    """
    n_images, n_classes, n_voxels = images.shape
    odds = np.empty((n_classes, _PIECE), appearance.dtype)
    total, most = np.empty((2, _PIECE), appearance.dtype)
    zero = appearance.dtype.type(0)
    for n in range(n_images):
        values[n] = 0
        for first in range(0, n_voxels, _PIECE):
            last = min(first + _PIECE, n_voxels)
            a, f = appearance[n, :, first:last], images[n, :, first:last]
            is_observed = f[0]
            for x in range(last - first):
                most[x] = a[0, x]
                total[x] = 0
            for c in range(1, n_classes):
                row = a[c]
                for x in range(last - first):
                    most[x] = max(most[x], row[x])
            for c in range(n_classes):
                row, s = a[c], odds[c]
                for x in range(last - first):
                    s[x] = odds_of(row[x], most[x])
                for x in range(last - first):
                    total[x] += s[x]
            value = 0.0
            for x in range(last - first):
                if is_observed[x] == is_observed[x]:
                    value -= np.float64(log_total(total[x]))
            for c in range(n_classes):
                row, label = a[c], f[c]
                for x in range(last - first):
                    term = log_odds(row[x], label[x], most[x])
                    value += np.float64(term if is_observed[x] == is_observed[x] else zero)
            values[n] += value
            if gradient is not None:
                for c in range(n_classes):
                    s, g, h = odds[c], gradient[n, c, first:last], hessian[n, c, first:last]
                    label = f[c]
                    for x in range(last - first):
                        s[x] = s[x] / total[x] if is_observed[x] == is_observed[x] else zero
                    for x in range(last - first):
                        g[x] = slope_of(s[x], label[x]) if label[x] == label[x] else zero
                    for x in range(last - first):
                        h[x] = variance_of(s[x]) + loading if label[x] == label[x] else zero
                pair = n_classes
                for b in range(n_classes):
                    for c in range(b + 1, n_classes):
                        s, other, h = odds[b], odds[c], hessian[n, pair, first:last]
                        for x in range(last - first):
                            h[x] = covariance_of(s[x], other[x])
                        pair += 1


@cache
def channel_loop(voxel: Formula) -> Callable[..., None]:
    """Return the loop of a likelihood whose channels are independent.

    Parameters
    ----------
    voxel : compiled by `formula`
        From a', f and the precision of a channel to what is summed up over voxels, and to the
        gradient and the Hessian of -ln p(f | a').
    """
    return kernel(copy_for(_channels, voxel=voxel))


@cache
def class_loop(**formulas: Formula) -> Callable[..., None]:
    """Return the loop of a likelihood of classes, with its formulas (see `Categorical`)."""
    return kernel(copy_for(_classes, **formulas))


def copy_for(loop: Callable[..., Any], **formulas: Formula) -> Callable[..., Any]:
    """Return a copy of a loop that calls some formulas, under a name of its own."""
    assert isinstance(loop, FunctionType)
    copy = FunctionType(loop.__code__, {**loop.__globals__, **formulas})
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(set(_files(copy))):
        digest.update(path.read_bytes())
    home = _source_of(next(iter(formulas.values()))).__module__.rpartition(".")[2]
    copy.__name__ = copy.__qualname__ = f"{loop.__name__}_{home}_{digest.hexdigest()}"
    return copy


def _files(function: FunctionType) -> Iterator[Path]:
    """Yield the file of a function and those of the functions among its globals that it calls."""
    yield Path(function.__code__.co_filename)
    for name in function.__code__.co_names:
        called = _source_of(function.__globals__.get(name))
        if isinstance(called, FunctionType):
            yield from _files(called)


def _source_of(function: Any) -> Any:
    """Return the function of Python that one was compiled from."""
    return getattr(function, "py_func", function)
