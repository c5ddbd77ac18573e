"""How kernels get onto a GPU: compiled by Numba, kept on disk, launched through CuPy.

Numba's own launcher takes 150 us to look at three arrays, longer than most kernels run. So Numba
only compiles, and CuPy launches, in a tenth of that time. Arrays are contiguous; of their numbers
and of scalars, the type is part of what is compiled: one version for each.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np

if not hasattr(np, "row_stack"):  # which numba-cuda still expects, and NumPy has dropped
    np.row_stack = np.vstack

from numba import cuda, types
from numba.np.numpy_support import from_dtype

from anamorph.kernels.compile import logger

_THREADS_PER_BLOCK = 256

#: Marks a function that kernels call, for one thread.
device_function = cuda.jit(device=True, inline="always")


class DeviceKernel:
    """What one thread of a GPU does, to be called with the number of threads first.

    The threads are numbered by ``cuda.grid(1)``; the last block has some more than asked for.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, n_threads: int, *arguments: Any) -> None:
        if n_threads == 0:
            return
        values: list[Any] = []
        key = tuple(_flatten(argument, values) for argument in arguments)
        launch = self._compiled.get(key)
        if launch is None:
            launch = self._compiled[key] = self._compile(arguments)
        n_blocks = -(-n_threads // _THREADS_PER_BLOCK)
        launch((n_blocks,), (_THREADS_PER_BLOCK,), values)

    def _compile(self, arguments: tuple[Any, ...]) -> Any:
        signature = types.void(*map(_numba_type, arguments))
        capability = cupy.cuda.Device().compute_capability
        name = f"{self.function.__module__}.{self.function.__name__}"
        text = f"{name} {signature} {capability} {_source_digest()}"
        path = _cache_folder() / f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.ptx"
        if not path.exists():
            _say_once()
            version = int(capability[:-1]), int(capability[-1])
            # No fast mathematics: it would take for granted that nothing is NaN.
            code, _ = cuda.compile_ptx(self.function, signature, cc=version)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(code)
            unfinished.replace(path)
        entry = re.search(r"\.entry\s+([\w$]+)\s*\(", path.read_text())
        if entry is None:
            raise RuntimeError(f"{path} holds no kernel: remove it")
        return cupy.RawModule(path=str(path)).get_function(entry.group(1))


def device_kernel(function: Callable[..., None]) -> DeviceKernel:
    """Make a kernel of what one thread does."""
    return DeviceKernel(function)


def _flatten(argument: Any, values: list[Any]) -> Any:
    """Append what Numba's kernels are handed for an argument; return what tells its type."""
    if isinstance(argument, cupy.ndarray):
        if not argument.flags.c_contiguous:
            raise ValueError(f"kernels take contiguous arrays, got strides {argument.strides}")
        values += (0, 0, argument.size, argument.itemsize, argument)
        values += argument.shape
        values += argument.strides
        return argument.dtype.char, argument.ndim
    if isinstance(argument, tuple):
        values += argument
        return len(argument)
    values.append(argument)
    return type(argument)


def _numba_type(argument: Any) -> Any:
    if isinstance(argument, cupy.ndarray):
        return types.Array(from_dtype(argument.dtype), argument.ndim, "C")
    if isinstance(argument, tuple):
        return types.UniTuple(types.int64, len(argument))
    scalars = {int: types.int64, bool: types.boolean, np.float32: types.float32}
    return scalars[type(argument)]


@cache
def _source_digest() -> str:
    """Return a text that changes when any source that kernels may be compiled from does."""
    package = Path(__file__).parents[2]
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted([*package.glob("kernels/**/*.py"), *package.glob("likelihoods/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "anamorph" / "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def _say_once() -> None:
    logger.warning("Compiling kernels for the GPU: once per machine, then read from the cache.")
