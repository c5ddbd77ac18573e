"""Which device does the work, the processor ("cpu") or a GPU ("cuda"), and where an array is.

Code that works on arrays asks for their namespace (NumPy in memory, CuPy on a GPU), and for the
twin of a module of kernels: the one in `kernels.cuda` of the same name. CuPy and CUDA are imported
only when somebody asks for a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from anamorph.kernels.errors import DeviceError
from anamorph.kernels.threads import one_blas_thread, use_threads

DEVICES = ("cpu", "cuda", "auto")
DEFAULT_MEMORY_BUDGET = 2 * 2**30

# Below so many voxels in all, a fit is over before a GPU pays.
_SMALLEST_WORK = 2**24

# Fits ask for modules some thousand times per second: without the machinery of imports, where an
# interrupt has to wait.
_module = cache(import_module)


def find_gpu() -> Any:
    """Return CuPy, or raise a DeviceError that says why there is no GPU to use."""
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise DeviceError(
            f"device='cuda' needs CuPy, which cannot be imported ({error}): "
            "install anamorph[cuda], or use device='cpu'"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own, whose type cannot be named without it
        raise DeviceError(f"device='cuda' finds no GPU ({error}): use device='cpu'") from None
    if count == 0:
        raise DeviceError("device='cuda' finds no GPU: use device='cpu'")
    return cupy


@dataclass(frozen=True)
class Machine:
    """The device that does the work, and how many threads and bytes it may use.

    Attributes
    ----------
    device : {"cpu", "cuda", "auto"}
        See `chosen_device`.
    n_threads : int, optional
        On the processor; by default as many as there are processors.
    memory_budget : int, optional
        Bytes for batches of images and what is kept of them; 2 GiB by default. On a GPU the most
        bytes to use in all, by default what is free.
    """

    device: str = "cpu"
    n_threads: int | None = None
    memory_budget: int | None = None

    @property
    def budget(self) -> int:
        """Bytes for batches of images in memory."""
        return DEFAULT_MEMORY_BUDGET if self.memory_budget is None else self.memory_budget

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Use the threads of this machine within a ``with`` block, and one thread of BLAS each."""
        with use_threads(self.n_threads), one_blas_thread:
            yield


def chosen_device(name: str, n_voxels: int) -> str:
    """Return "cpu" or "cuda"; "auto" is the GPU where there is one and the work is large enough.

    Parameters
    ----------
    name : {"cpu", "cuda", "auto"}
    n_voxels : int
        Of all images together.

    Returns
    -------
    {"cpu", "cuda"}
    """
    if name == "cuda":
        find_gpu()
        return "cuda"
    if name == "auto" and n_voxels >= _SMALLEST_WORK:
        try:
            find_gpu()
        except DeviceError:
            return "cpu"
        return "cuda"
    return "cpu"


def is_on_device(array: object) -> bool:
    """Tell whether an array is in the memory of a GPU."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def array_namespace(array: object) -> Any:
    """Return the module whose functions make arrays beside this one: numpy or cupy."""
    return sys.modules["cupy"] if is_on_device(array) else np


def fourier_namespace(array: object) -> Any:
    """Return the module that transforms this array: scipy.fft or cupyx.scipy.fft."""
    return _module("cupyx.scipy.fft" if is_on_device(array) else "scipy.fft")


def kernels_for(array: object, module: str) -> Any:
    """Return the module of kernels of that name, or its twin for GPUs if the array is on one."""
    if is_on_device(array):
        floor, _, name = module.removesuffix(".cpu").rpartition(".")
        module = f"{floor.removesuffix('.cpu')}.cuda.{name}"
    return _module(module)


def free_bytes() -> int:
    """Return how much memory of the GPU is free, what CuPy holds for later use included."""
    cupy = sys.modules["cupy"]
    return int(cupy.cuda.Device().mem_info[0] + cupy.get_default_memory_pool().free_bytes())


def to_host(array: Any) -> Any:
    """Return an array as a NumPy array."""
    return array.get() if is_on_device(array) else array


def beside(array: object, values: Any, dtype: Any = None) -> Any:
    """Return values as an array where `array` is (or of that namespace), copied if need be."""
    if is_on_device(array) or array is sys.modules.get("cupy"):
        return sys.modules["cupy"].asarray(values, dtype)
    return np.asarray(to_host(values), dtype)
