"""Where an array is: in the memory of the machine (NumPy), or on the device, a GPU (CuPy).

Code that works on arrays asks for their namespace, and for the twin of a module of kernels: the
one in `kernels.cuda` of the same name. CuPy and CUDA are imported only when somebody asks for a
GPU; `devices` chooses between processor and GPU.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np


def is_on_device(array: object) -> bool:
    """Tell whether an array is in the memory of a GPU."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def array_namespace(array: object) -> Any:
    """Return the module whose functions make arrays beside this one: numpy or cupy."""
    return sys.modules["cupy"] if is_on_device(array) else np


def fourier_namespace(array: object) -> Any:
    """Return the module that transforms this array: scipy.fft or cupyx.scipy.fft."""
    return import_module("cupyx.scipy.fft" if is_on_device(array) else "scipy.fft")


def kernels_for(array: object, module: str) -> Any:
    """Return the module of kernels of that name, or its twin for GPUs if the array is on one."""
    if is_on_device(array):
        floor, _, name = module.removesuffix(".cpu").rpartition(".")
        module = f"{floor.removesuffix('.cpu')}.cuda.{name}"
    return import_module(module)


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
