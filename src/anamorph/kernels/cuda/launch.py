"""How kernels run on a GPU: Numba compiles them, a cache on disk keeps them, the driver launches.

Numba's own launcher takes 150 us to look at three arrays, longer than most kernels run. Here Numba
only compiles, and the driver receives the arguments in one packed piece. Arrays are contiguous. One
version of a kernel is compiled for each combination of types of numbers and lengths of tuples.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from numba import cuda, types
from numba.np.numpy_support import from_dtype

from anamorph.kernels.compile import logger, source_digest

_THREADS_PER_BLOCK = 256
_MOST_THREADS = 2**31 - _THREADS_PER_BLOCK  #: of a kernel: see `places.divided_quickly`
_MOST_PLACES = 2**32  #: in an array that is handed over flat: see `places.shifted`
# The driver's codes for the address of the packed arguments and for their size.
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2
_SCALARS = {int: "\tq", bool: "\t?", np.float32: "\tf"}
_ARRAYS = {char: "\t" + " " * n for n, char in enumerate("fdFDilq?", 1)}

#: Marks what kernels do for one thread besides a `formula`: counting and memory traffic.
device_function = cuda.jit(device=True, inline="always")


class DeviceKernel:
    """A kernel, compiled from what one thread does; call it with the number of threads first.

    ``cuda.grid(1)`` is the number of a thread; the last block has some more threads than asked for.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._compiled: dict[str, Any] = {}

    def __call__(self, n_threads: int, *arguments: Any) -> None:
        """Launch the kernel without waiting for it."""
        if n_threads:
            self.prepare(n_threads, *arguments)()

    def prepare(self, n_threads: int, *arguments: Any) -> Launch:
        """Return a launch with these arguments, which can be repeated any number of times."""
        if not 0 < n_threads <= _MOST_THREADS:
            raise ValueError(f"a kernel has 1 to {_MOST_THREADS} threads, got {n_threads}")
        values: list[Any] = []
        layout = "".join([_flatten(argument, values) for argument in arguments])
        compiled = self._compiled.get(layout)
        if compiled is None:
            compiled = self._compiled[layout] = self._compile(arguments)
        n_blocks = -(-n_threads // _THREADS_PER_BLOCK)
        return Launch(compiled.ptr, n_blocks, struct.pack(layout, *values), arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> Any:
        signature = types.void(*map(_numba_type, arguments))
        capability = cupy.cuda.Device().compute_capability
        name = f"{self.function.__module__}.{self.function.__name__}"
        text = f"{name} {signature} {capability} {source_digest()}"
        path = _cache_folder() / f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.ptx"
        if not path.exists():
            _say_once()
            version = int(capability[:-1]), int(capability[-1])
            # No fast mathematics: it would assume that nothing is NaN.
            code, _ = cuda.compile_ptx(self.function, signature, cc=version)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(code)
            unfinished.replace(path)
        # Read once: another process may replace the file by its own, with another name inside.
        code = path.read_text()
        entry = re.search(r"\.entry\s+([\w$]+)\s*\(", code)
        if entry is None:
            raise RuntimeError(f"{path} holds no kernel: remove it")
        module = cupy.cuda.function.Module()
        module.load(code.encode())
        return module.get_function(entry.group(1))


class Launch:
    """A kernel with its arguments packed for the driver.

    Packing takes longer than launching, and as long as many kernels run.
    """

    def __init__(self, function: int, n_blocks: int, packed: bytes, arguments: Any) -> None:
        self._arguments = arguments  # keeps the arrays alive
        self._buffer = ctypes.create_string_buffer(packed, len(packed))
        self._size = ctypes.c_size_t(len(packed))
        self._extra = (ctypes.c_void_p * 5)(
            *(_BUFFER_POINTER, ctypes.addressof(self._buffer)),
            *(_BUFFER_SIZE, ctypes.addressof(self._size), 0),
        )
        self._grid = function, n_blocks, 1, 1, _THREADS_PER_BLOCK, 1, 1, 0

    def __call__(self) -> None:
        """Launch the kernel on CuPy's current stream without waiting for it."""
        stream = cupy.cuda.get_current_stream().ptr
        code = _driver().cuLaunchKernel(*self._grid, stream, None, self._extra)
        if code:
            raise RuntimeError(f"the GPU did not take a kernel: CUDA error {code}")


def flattened(array: Any) -> Any:
    """Return a flat view of an array, never a copy: a kernel may write to it."""
    if not array.flags.c_contiguous:
        raise ValueError(f"kernels take contiguous arrays, got strides {array.strides}")
    return array.ravel()


def device_kernel(function: Callable[..., None]) -> DeviceKernel:
    """Turn what one thread does into a kernel."""
    return DeviceKernel(function)


def _flatten(argument: Any, values: list[Any]) -> str:
    """Append what Numba's kernels receive for an argument; return how `struct` packs it.

    `struct` skips white space, which here separates arguments, distinguishes types of arrays, and
    marks where tuples begin and end.
    """
    if isinstance(argument, cupy.ndarray):
        if not argument.flags.c_contiguous:
            raise ValueError(f"kernels take contiguous arrays, got strides {argument.strides}")
        if argument.ndim <= 2 and argument.shape[-1] > _MOST_PLACES:
            raise ValueError(f"a kernel counts up to {_MOST_PLACES} numbers, got {argument.shape}")
        values += (0, 0, argument.size, argument.itemsize, argument.data.ptr)
        values += argument.shape
        values += argument.strides
        return _ARRAYS[argument.dtype.char] + "q" * (5 + 2 * argument.ndim)
    if isinstance(argument, tuple):
        if argument and isinstance(argument[0], int):
            values += argument
            return "\v" + "q" * len(argument) + "\f"
        return "\v" + "".join([_flatten(item, values) for item in argument]) + "\f"
    values.append(argument)
    return _SCALARS[type(argument)]


@cache
def _driver() -> Any:
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    driver.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
    return driver


def _numba_type(argument: Any) -> Any:
    if isinstance(argument, cupy.ndarray):
        return types.Array(from_dtype(argument.dtype), argument.ndim, "C")
    if isinstance(argument, tuple):
        return types.Tuple([_numba_type(item) for item in argument])
    return {int: types.int64, bool: types.boolean, np.float32: types.float32}[type(argument)]


@cache
def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "anamorph" / "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def _say_once() -> None:
    logger.warning(
        "Compiling kernels for the GPU: once per machine for each kind of images and model, then "
        "read from the cache."
    )
