"""A GPU made of NumPy, for machines without one: what is used of CuPy and of `numba.cuda`.

Arrays are as strict as CuPy's: they turn into NumPy arrays by ``get`` alone. Kernels run one
thread after the other in Python, so that only the smallest images are of use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np
import scipy.fft


class SimulatedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that pretends to be on a GPU."""

    __array_priority__ = 100

    def __init__(self, host: Any) -> None:
        self.host = np.asarray(host)

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed: use .get()")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        _refuse_host_arrays(inputs)
        out = options.pop("out", None)
        if options.get("where") is not None:
            raise TypeError("where= is not supported")
        if out is not None:
            options["out"] = tuple(_host(item) for item in out)
        result = getattr(ufunc, method)(*map(_host, inputs), **options)
        if out is not None:
            return out[0]
        return tuple(map(_device, result)) if isinstance(result, tuple) else _device(result)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        _refuse_host_arrays(inputs)
        return _device(function(*_host(list(inputs)), **_host(options)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = getattr(self.host, name)
        if not callable(attribute):
            return _device(attribute)
        return lambda *inputs, **options: _device(attribute(*_host(list(inputs)), **_host(options)))

    def __getitem__(self, index: Any) -> Any:
        return _device(self.host[_host(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("a NumPy array cannot be written to a device")
        self.host[_host(index)] = _host(value)

    def __len__(self) -> int:
        return len(self.host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __float__(self) -> float:
        return float(self.host)

    def __int__(self) -> int:
        return int(self.host)

    def __bool__(self) -> bool:
        return bool(self.host)

    def get(self) -> Any:
        """Return a NumPy array."""
        return self.host.copy()

    def set(self, values: Any, stream: Any = None) -> None:
        """Fill the array with what a NumPy array holds."""
        self.host[...] = values


def _refuse_host_arrays(inputs: Any) -> None:
    if any(isinstance(item, np.ndarray) and item.ndim for item in inputs):
        raise TypeError("NumPy arrays and those of a device cannot be mixed")


def _host(value: Any) -> Any:
    if isinstance(value, SimulatedArray):
        return value.host
    if isinstance(value, list | tuple):
        return type(value)(_host(item) for item in value)
    if isinstance(value, dict):
        return {name: _host(item) for name, item in value.items()}
    return value


def _device(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return SimulatedArray(value)
    if isinstance(value, list):
        return [_device(item) for item in value]
    return value


def _asarray(values: Any, dtype: Any = None) -> SimulatedArray:
    """Return values on the device, contiguous there if they come from memory."""
    if isinstance(values, SimulatedArray):
        return SimulatedArray(np.asarray(values.host, dtype))
    return SimulatedArray(np.array(values, dtype, order="C"))


def _namespace(name: str, source: Any) -> ModuleType:
    """Return a module whose functions are those of another one, for simulated arrays."""

    class Namespace(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            value = getattr(source, attribute)
            if isinstance(value, type) or not callable(value):
                return value
            return lambda *inputs, **options: _device(value(*_host(list(inputs)), **_host(options)))

    return Namespace(name)


def install() -> Any:
    """Put the simulated CuPy where the real one would be, and return it."""
    cupy: Any = _namespace("cupy", np)
    cupy.ndarray = SimulatedArray
    cupy.asnumpy = lambda array: array.get()
    cupy.asarray = _asarray
    cupy.linalg = _namespace("cupy.linalg", np.linalg)
    memory = SimpleNamespace(
        mem_info=(2**30, 2**30),
        compute_capability="90",
        synchronize=lambda: None,
    )
    cupy.cuda = SimpleNamespace(
        get_current_stream=lambda: SimpleNamespace(wait_event=lambda event: None),
        Stream=_Stream,
        Device=lambda *_: memory,
        runtime=SimpleNamespace(getDeviceCount=lambda: 1),
        is_available=lambda: True,
        cufft=SimpleNamespace(CUFFT_FORWARD=-1, CUFFT_INVERSE=1),
    )
    cupy.get_default_memory_pool = lambda: SimpleNamespace(
        free_all_blocks=lambda: None, free_bytes=lambda: 0
    )
    sys.modules["cupy"] = cupy
    sys.modules["cupyx"] = ModuleType("cupyx")
    sys.modules["cupyx"].empty_pinned = np.empty  # type: ignore[attr-defined]
    sys.modules["cupyx.scipy"] = ModuleType("cupyx.scipy")
    fourier: Any = _namespace("cupyx.scipy.fft", scipy.fft)
    fourier.get_fft_plan = _Plan
    sys.modules["cupyx.scipy.fft"] = fourier
    real, numba.cuda = numba.cuda if hasattr(numba, "cuda") else None, _THREAD
    sys.modules["numba.cuda"] = _THREAD
    for module in _MODULES:
        import_module(module)
    numba.cuda = real
    launch = sys.modules["anamorph.kernels.cuda.launch"]
    launch.DeviceKernel.prepare = _prepare
    return cupy


def uninstall() -> None:
    """Remove the simulated CuPy, and all that was made of it."""
    from anamorph.geometry.operators import symbol_on_device
    from anamorph.solvers.multigrid import _find_coarse_neighbours

    symbol_on_device.cache_clear()
    _find_coarse_neighbours.cache_clear()
    for name in list(sys.modules):
        if (
            name.partition(".")[0] in ("cupy", "cupyx")
            or name.startswith("numba.cuda")
            or name in _MODULES
        ):
            del sys.modules[name]


class _Stream:
    """A stream, on which all is done at once."""

    def __init__(self, **options: Any) -> None:
        self.record = self.synchronize = lambda: None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class _Plan:
    """A plan of Fourier transforms."""

    def __init__(self, array: Any, *, axes: Any, value_type: str, shape: Any = None) -> None:
        self._axes, self._kind, self._shape = axes, value_type, shape

    def fft(self, source: Any, out: Any, direction: int) -> None:
        """Transform without scaling."""
        if self._kind == "R2C":
            out.host[...] = scipy.fft.rfftn(source.host, axes=self._axes)
        else:
            out.host[...] = scipy.fft.irfftn(
                source.host, s=self._shape, axes=self._axes, norm="forward"
            )


class _Thread(ModuleType):
    """What a kernel sees of the GPU."""

    def __init__(self) -> None:
        super().__init__("numba.cuda")
        self.number = 0
        self.atomic = SimpleNamespace(add=self._add)
        self.extending = SimpleNamespace(intrinsic=self._intrinsic)

    def grid(self, n_axes: int) -> int:
        """Return the number of the thread."""
        return self.number

    def jit(self, **options: Any) -> Any:
        """Leave functions as they are."""
        return lambda function: function

    @staticmethod
    def _intrinsic(operation: Any) -> Any:
        return {"added": np.add, "multiplied": np.multiply}[operation.__name__]

    @staticmethod
    def _add(array: Any, index: Any, value: Any) -> None:
        array[index] += value


_THREAD = _Thread()
_MODULES = [
    f"anamorph.kernels.cuda.{name}"
    for name in [
        "launch",
        "places",
        "warps",
        "steps",
        "spectrum",
        "geodesics",
        "jacobians",
        "derivatives",
        "stencils",
        "smoothing",
        "likelihood_loops",
    ]
]


def _prepare(kernel: Any, n_threads: int, *arguments: Any) -> Any:
    assert 0 < n_threads < 2**31
    for argument in arguments:
        assert isinstance(argument, SimulatedArray | tuple | int | np.float32), type(argument)
        assert not isinstance(argument, SimulatedArray) or argument.flags.c_contiguous
    host = _host(list(arguments))

    def run() -> None:
        # Some threads more than asked for, as in the last block of a real launch.
        with np.errstate(all="ignore"):  # a GPU does not warn
            for number in range(n_threads + 3):
                _THREAD.number = number
                kernel.function(*host)

    return run
