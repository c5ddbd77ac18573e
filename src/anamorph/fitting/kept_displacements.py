"""Displacements that need not be shot again, as long as neither basis nor latents change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anamorph.arrays.typing import Array, Float32Array
from anamorph.model.settings import Settings

#: Stands for a shape basis and for latents: the versions of both.
Key = tuple[int, int]


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
        self._store: Float32Array | None = namespace.empty(shape, np.float32) if fits else None
        self._key: Key | None = None

    @property
    def has_room(self) -> bool:
        """Whether anything can be kept."""
        return self._store is not None

    def get(self, part: slice, key: Key, shoot: Callable[[], Array | None]) -> Array | None:
        """Return the displacements of some images: the kept ones, or those that `shoot` returns.

        Parameters
        ----------
        part : slice
            Of the images.
        key : pair of int
            The basis and the latents that the displacements belong to.
        shoot : callable
            Returns (n, d, *space), in voxels; None if nothing moves. Its result is kept, but used
            only after `close`.
        """
        if self._store is not None and key == self._key:
            return self._store[part]
        displacement = shoot()
        if self._store is not None and displacement is not None:
            self._key = None
            self._store[part] = displacement
        return displacement

    def close(self, key: Key) -> None:
        """Say, after a pass over all images, which basis and latents the displacements are of."""
        self._key = key
