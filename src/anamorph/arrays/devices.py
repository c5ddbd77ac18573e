"""Computing on a GPU: whether there is one, whether a fit fits it, and how images get there."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from anamorph.arrays.namespaces import free_bytes
from anamorph.arrays.readable import ReadableImages
from anamorph.kernels.errors import DeviceError
from anamorph.model.settings import Settings

DEVICES = ("cpu", "cuda", "auto")

# Below so many voxels in all, a fit is over before a GPU pays.
_SMALLEST_WORK = 2**24
_GIBIBYTE = 2**30
# What the libraries of the GPU and pieces of memory that do not fit together may take.
_USABLE_SHARE = 0.85
_SOLVER_BYTES = 3 * 2**30


def find_gpu() -> Any:
    """Return CuPy, or raise an error that says why there is no GPU to use."""
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


@dataclass(frozen=True)
class MemoryPlan:
    """What of a GPU's memory is for what, in bytes.

    Attributes
    ----------
    are_images_resident : bool
        Whether all images stay on the GPU, or are sent there whenever they are needed.
    are_sums_resident : bool
        Whether sums for all columns of a basis stay there, or are solved with some at a time.
    working_bytes : int
        For batches of images, and displacements that are kept.
    """

    are_images_resident: bool
    are_sums_resident: bool
    working_bytes: int


def plan_memory(settings: Settings, n_images: int, budget: int | None = None) -> MemoryPlan:
    """Say how a fit will use the memory of the GPU, or raise an error if it is too small.

    Parameters
    ----------
    settings : Settings
    n_images : int
    budget : int, optional
        The most bytes to use; by default what is free.
    """
    find_gpu()
    usable = int(_USABLE_SHARE * free_bytes())
    if budget is not None:
        usable = min(usable, budget)
    s, layout = settings, settings.layout
    n_voxels = math.prod(s.space)
    parameters = 4 * n_voxels * (
        s.n_channels * (1 + layout.n_appearance) + s.n_dims * layout.n_shape
    )  # fmt: skip
    sums = 8 * n_voxels * max(
        layout.n_shape * (s.n_dims + s.n_shape_hessian),
        layout.n_appearance * (s.n_channels + s.n_hessian),
    )  # fmt: skip
    one_image = 4 * n_voxels * (64 + 4 * s.n_channels * layout.n_latents)
    # Old and new parameters, their momenta and the step between them; sums in float64, and again
    # in float32 and side by side while they are solved with.
    at_least = 5 * parameters + min(_SOLVER_BYTES, 2 * sums)
    are_sums_resident = at_least + 2 * sums + one_image <= usable
    model = at_least + (2 * sums if are_sums_resident else 0)
    needed = model + one_image
    if needed > usable:
        raise DeviceError(
            f"the fit needs {needed / _GIBIBYTE:.2f} GiB of the GPU, of which "
            f"{usable / _GIBIBYTE:.2f} GiB can be used: lower n_components, use coarser images, "
            "or device='cpu'"
        )
    images = 4 * n_images * n_voxels * s.n_channels
    left = usable - model
    are_resident = images + one_image <= left // 2
    return MemoryPlan(are_resident, are_sums_resident, left - images if are_resident else left)


class ImagesOnDevice:
    """Images of which some are on the GPU when they are read.

    If they fit they are sent there once. If not, while some are worked on, those that followed
    them last time are read and sent, through memory that the GPU reads by itself.

    Parameters
    ----------
    images : ReadableImages
    are_resident : bool
        Whether all of them fit.
    """

    def __init__(self, images: ReadableImages, are_resident: bool) -> None:
        self.namespace = find_gpu()
        self._images = images
        self._resident = self._send_all() if are_resident else None
        self._follower: dict[tuple[int, int], slice] = {}
        self._last: slice | None = None
        self._ahead: tuple[slice, Future[Any]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anamorph-images")

    def __len__(self) -> int:
        return len(self._images)

    def read(self, part: slice) -> Any:
        """Return images (n, C, *space) on the GPU."""
        if self._resident is not None:
            return self._resident[part]
        if self._last is not None:
            self._follower[self._last.start, self._last.stop] = part
        self._last = part
        if self._ahead is not None and self._ahead[0] == part:
            images, has_arrived = self._ahead[1].result()
        else:
            images, has_arrived = self._send(part)
        follower = self._follower.get((part.start, part.stop))
        self._ahead = None
        if follower is not None:
            self._ahead = follower, self._thread.submit(self._send, follower)
        self.namespace.cuda.get_current_stream().wait_event(has_arrived)
        return images

    def _send_all(self) -> Any:
        first = self._images.read(slice(0, 1))
        resident = self.namespace.empty((len(self), *first.shape[1:]), np.float32)
        step = max(1, 2**28 // max(1, first.nbytes))
        for start in range(0, len(self), step):
            part = slice(start, min(start + step, len(self)))
            resident[part] = self.namespace.asarray(self._images.read(part))
        return resident

    def _send(self, part: slice) -> tuple[Any, Any]:
        """Send images on a stream of their own; return them, and the event of their arrival."""
        cupy = self.namespace
        images = self._images.read(part)
        pinned = import_module("cupyx").empty_pinned(images.shape, np.float32)
        pinned[...] = images
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            on_device = cupy.empty(images.shape, np.float32)
            on_device.set(pinned, stream=stream)
            has_arrived = stream.record()
        stream.synchronize()  # in the thread that sends: the pinned memory may go now
        return on_device, has_arrived
