"""What a fitted model says of many images: a part of them at a time, by threads or on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.devices import chosen_device
from anamorph.arrays.namespaces import to_host
from anamorph.arrays.readable import ReadableImages
from anamorph.kernels.threads import one_blas_thread, run_parallel, use_threads
from anamorph.model.encoding import Encoded, encode
from anamorph.model.generator import Generator

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]
Result = TypeVar("Result")

_IMAGES_PER_PART = 64
_IMAGES_ON_DEVICE = 2**14


def image_parts(n_images: int, n_values: int, on_device: bool = False) -> list[slice]:
    """Split images so that threads have something to share, and memory is bounded.

    Parameters
    ----------
    n_images : int
    n_values : int
        Numbers that one image consists of: channels times voxels.
    on_device : bool
        Whether they are worked on by a GPU, which needs many at a time.
    """
    image_bytes = 4 * 32 * n_values
    budget, most = (2**32, _IMAGES_ON_DEVICE) if on_device else (2**27, _IMAGES_PER_PART)
    most = int(np.clip(budget // image_bytes, 1, most))
    return [slice(first, min(first + most, n_images)) for first in range(0, n_images, most)]


@dataclass(frozen=True)
class Predictor:
    """A generator with a place to work: images go in and come out as NumPy arrays.

    Attributes
    ----------
    generator : Generator
        With parameters in memory.
    device : {"cpu", "cuda", "auto"}
    n_threads : int or None
        On the CPU; None: as many as there are processors.
    """

    generator: Generator
    device: str
    n_threads: int | None

    def in_parts(self, task: Callable[[Generator, slice], Result], n_images: int) -> list[Result]:
        """Return what a task makes of each part of some images.

        Parameters
        ----------
        task : callable
            Given the generator, whose parameters are on the device that is chosen, and which
            images to work on.
        n_images : int
        """
        n_voxels = n_images * math.prod(self.generator.settings.space)
        n_values = self.generator.parameters.mean.size
        if chosen_device(self.device, n_voxels) == "cuda":
            generator = self.generator.on_gpu
            parts = image_parts(n_images, n_values, on_device=True)
            return [task(generator, part) for part in parts]
        with use_threads(self.n_threads), one_blas_thread:
            parts = image_parts(n_images, n_values)
            return run_parallel(lambda part: task(self.generator, part), parts)

    def encode(self, images: ReadableImages) -> Encoded:
        """Return the latents and the log evidence of images, and what finding them cost."""

        def encode_part(generator: Generator, part: slice) -> Encoded:
            return encode(generator, generator.own(images.read(part))).to_host()

        parts = self.in_parts(encode_part, len(images))
        return Encoded(
            np.concatenate([part.latents for part in parts]),
            np.concatenate([part.log_evidence for part in parts]),
            np.concatenate([part.n_shootings for part in parts]),
        )

    def expected_images(
        self, latents: Float64Array, *, warped: bool = True, coloured: bool = True
    ) -> Array:
        """Return what latents (N, K) stand for, (N, C, *space).

        Parameters
        ----------
        latents : array of shape (N, K)
        warped : bool
            Whether latents change shape.
        coloured : bool
            Whether they change appearance.
        """

        def expect(generator: Generator, part: slice) -> Array:
            some = generator.own(latents[part])
            expected = generator.expected_images(some, warped=warped, coloured=coloured)
            return cast(Array, to_host(expected))

        return np.concatenate(self.in_parts(expect, len(latents)))

    def log_likelihood(self, images: ReadableImages, latents: Float64Array) -> Float64Array:
        """Return ln p(f | z) of images and their latents (N, K), (N,)."""

        def evaluate(generator: Generator, part: slice) -> Float64Array:
            some, observed = generator.own(latents[part]), generator.own(images.read(part))
            displacement = generator.displacement(some)
            values = generator.log_likelihood(generator.appearance(some), displacement, observed)
            return cast(Float64Array, to_host(values))

        return np.concatenate(self.in_parts(evaluate, len(images)))

    def displacement(self, latents: Float64Array) -> Array:
        """Return the displacements of the warps of latents (N, K), (N, d, *space), in voxels."""
        settings = self.generator.settings
        if settings.layout.n_shape == 0:
            return np.zeros((len(latents), settings.n_dims, *settings.space), np.float32)

        def shoot_part(generator: Generator, part: slice) -> Array:
            return cast(Array, to_host(generator.displacement(generator.own(latents[part]))))

        return np.concatenate(self.in_parts(shoot_part, len(latents)))

    def impute(self, images: ReadableImages) -> NDArray[np.float32]:
        """Return images (N, C, *space) with their NaN filled by what the model expects there."""
        filled = np.empty((len(images), *self.generator.parameters.mean.shape), np.float32)

        def fill(generator: Generator, part: slice) -> None:
            observed = generator.own(images.read(part))
            latents = encode(generator, observed).latents
            expected = generator.expected_images(latents)
            filled[part] = to_host(np.where(np.isnan(observed), expected, observed))

        self.in_parts(fill, len(images))
        return filled
