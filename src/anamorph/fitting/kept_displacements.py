"""Displacements that need not be shot again, as long as neither basis nor latents change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.model.settings import Settings

Array = NDArray[np.floating]


class KeptDisplacements:
    """Displacements of all images for one pair of shape basis and latents, if memory allows.

    Parameters
    ----------
    namespace : module
        numpy, or cupy to keep them on a GPU.
    n_images : int
        N.
    settings : Settings
    budget : int
        The most bytes to take: nothing is kept if (N, d, *space) numbers need more.
    """

    def __init__(self, namespace: Any, n_images: int, settings: Settings, budget: int) -> None:
        shape = (n_images, settings.n_dims, *settings.space)
        fits = 4 * math.prod(shape) <= budget and settings.layout.n_shape > 0
        self._store: NDArray[np.float32] | None = None
        if fits:
            self._store = namespace.empty(shape, np.float32)
        self._key: tuple[int, int] | None = None

    @property
    def has_room(self) -> bool:
        """Whether anything can be kept."""
        return self._store is not None

    def get(self, part: slice, key: tuple[int, int]) -> Array | None:
        """Return what is kept of some images, None if it is not what `key` stands for."""
        return self._store[part] if self._store is not None and key == self._key else None

    def put(self, part: slice, displacement: Array) -> None:
        """Keep the displacements of some images: of no use until `close` says what they are."""
        if self._store is not None:
            self._key = None
            self._store[part] = displacement

    def close(self, key: tuple[int, int]) -> None:
        """Say, after a pass over all images, which basis and latents the displacements are of."""
        self._key = key
