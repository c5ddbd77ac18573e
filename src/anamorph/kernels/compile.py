"""How kernels are compiled: once per machine, cached on disk, and never in silence."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

Array = NDArray[np.floating]
IntArray = NDArray[np.integer]
Shape = tuple[int, ...]

logger = logging.getLogger("anamorph")

# Sums may be reordered and products fused, which lets loops vectorise. NaN and infinity keep their
# meaning: NaN marks missing data.
_FAST_MATH = {"contract", "reassoc", "nsz", "arcp"}
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _FAST_MATH}


def sources() -> list[Path]:
    """Return the files that kernels may be compiled from, for either target."""
    package = Path(__file__).parents[1]
    return sorted([*package.glob("kernels/**/*.py"), *package.glob("likelihoods/**/*.py")])


@cache
def source_digest(*folders: str) -> str:
    """Return a text that changes when a source does: any, or any in folders of these names."""
    digest = hashlib.blake2b(digest_size=12)
    for path in sources():
        if not folders or path.parent.name in folders:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop over voxels. It runs without the interpreter lock and is cached on disk."""
    compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
    # Numba's cache notices a change in the file of the kernel alone, not in those of its formulas.
    file = compiled._cache._cache_file
    file._source_stamp = file._source_stamp, source_digest("kernels", "formulas", "cpu")
    return compiled


def formula(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the arithmetic of one voxel, or what kernels for processors do with a row of them.

    Formulas of one voxel take and return numbers, and serve kernels of either target. The source is
    inlined: a kernel for GPUs compiles it with its own options, without the fast mathematics of
    processors, which Numba would take there as a promise that nothing is NaN.
    """
    return numba.njit(inline="always", **_OPTIONS)(function)


def per_segment(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the arithmetic of a few voxels, with branches, to be inlined into kernels.

    The machine code is inlined, where `formula` inlines the source: the function then borrows
    arrays, and Numba does not count references to them at each call.
    """
    return numba.njit(forceinline=True, **_OPTIONS)(function)


class _CompilationNotice(event.Listener):
    """Says once per process that kernels are being compiled, when the cache did not have them."""

    def __init__(self) -> None:
        self.is_said = False

    def on_start(self, event: Any) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if not self.is_said and module.startswith("anamorph."):
            self.is_said = True
            logger.warning(
                "Compiling numerical kernels: once per machine for each kind of images and model, "
                "then read from the cache."
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say when a compilation ends."""


event.register("numba:compile", _CompilationNotice())
