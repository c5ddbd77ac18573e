"""Images that a GPU reads: all of them sent once, or some at a time while it works on others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

import numpy as np

from anamorph.arrays.batches import split_evenly
from anamorph.arrays.devices import find_gpu
from anamorph.arrays.typing import ReadableImages

_BYTES_AT_ONCE = 2**28  # that are sent while all images move to the GPU


class ImagesOnDevice:
    """Images that are on the GPU when they are read.

    If all of them fit, they are sent there once. If not, this class reads and sends the images
    that followed last time while the GPU works on the present ones, through memory that the GPU
    reads by itself.

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
        for part in split_evenly(slice(0, len(self)), _BYTES_AT_ONCE // max(1, first.nbytes)):
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
