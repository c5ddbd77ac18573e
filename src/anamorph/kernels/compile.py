"""How kernels are compiled: once per machine, cached on disk, and never in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

Array = NDArray[np.floating]
IntArray = NDArray[np.integer]
Shape = tuple[int, ...]

logger = logging.getLogger("anamorph")

# Sums may be reordered and products fused, so that loops vectorise; NaN and infinity keep their
# meaning, since NaN marks missing data.
_FAST_MATH = {"contract", "reassoc", "nsz", "arcp"}
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _FAST_MATH}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop over voxels. It runs without the interpreter lock and is cached on disk."""
    compiled: Callable[..., Any] = numba.njit(cache=True, **_OPTIONS)(function)
    return compiled


def per_voxel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the arithmetic of one voxel (or one row of voxels), to be inlined into kernels."""
    compiled: Callable[..., Any] = numba.njit(inline="always", **_OPTIONS)(function)
    return compiled


def per_segment(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the arithmetic of a few voxels, with branches, to be inlined into kernels.

    The machine code is inlined, where `per_voxel` inlines the source: arrays are then lent to the
    function, and not counted as used once more for each call.
    """
    compiled: Callable[..., Any] = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


class _CompilationNotice(event.Listener):
    """Says once per process that kernels are being compiled, when the cache did not have them."""

    def __init__(self) -> None:
        self.told = False

    def on_start(self, event: Any) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if not self.told and module.startswith("anamorph."):
            self.told = True
            logger.warning(
                "Compiling numerical kernels: once per machine, then read from the cache."
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say when a compilation ends."""


event.register("numba:compile", _CompilationNotice())
