"""Which device does the work: the processor ("cpu"), or the GPU ("cuda") if there is one.

This is about choosing, before there are arrays. Where an array that exists is, is what
`namespaces` says.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anamorph.kernels.errors import DeviceError

DEVICES = ("cpu", "cuda", "auto")

# Below so many voxels in all, a fit is over before a GPU pays.
_SMALLEST_WORK = 2**24


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
