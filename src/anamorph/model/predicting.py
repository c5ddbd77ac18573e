"""Predictions of a fitted model for many images: part by part, by threads or on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from anamorph.arrays.batches import BatchPlanner, usable_gpu_bytes
from anamorph.arrays.devices import Machine, chosen_device, to_host
from anamorph.arrays.mapped import empty_mapped
from anamorph.arrays.typing import Array, BoolArray, Float32Array, Float64Array, ReadableImages
from anamorph.model.bending import bend
from anamorph.model.encoding import Encoded, encode
from anamorph.model.finding import located, located_at, with_poses
from anamorph.model.generator import Generator, encoding_bytes, where_held
from anamorph.model.posing import PosedGenerator
from anamorph.model.posterior import Posterior, expect_images, find_posterior
from anamorph.model.progress import ImageCounter
from anamorph.model.residuals import residual_bytes

Result = TypeVar("Result")
Filled = TypeVar("Filled", Float32Array, Float64Array)

_SHARE_ON_GPU = 0.75  # the rest is for derivatives with respect to all latents at once


@dataclass(frozen=True)
class Predictor:
    """A generator with a place to work: images go in and come out as NumPy arrays.

    Attributes
    ----------
    generator : Generator
        With parameters in memory.
    machine : Machine
        Its memory budget is for the images that are worked on at a time, besides the model and
        what is returned.
    """

    generator: Generator
    machine: Machine

    def in_parts(self, task: Callable[[Generator, slice], Result], n_images: int) -> list[Result]:
        """Return what a task makes of each part of some images.

        Parameters
        ----------
        task : callable
            Given the generator, whose parameters are on the device that does the work, and the
            slice of the images to work on.
        n_images : int

        Returns
        -------
        list
            One result per part, in the order of the images.
        """
        settings, machine, generator = self.generator.settings, self.machine, self.generator
        on_gpu = chosen_device(machine.device, n_images * math.prod(settings.space)) == "cuda"
        budget = machine.budget
        if on_gpu:
            generator = generator.on_gpu
            usable = usable_gpu_bytes(machine.memory_budget) - generator.parameters.n_bytes
            budget = int(_SHARE_ON_GPU * max(0, usable))
        needed = encoding_bytes(settings)
        if settings.has_residuals:  # found in turns with latents
            needed += residual_bytes(settings)
        planner = BatchPlanner(needed, budget, on_gpu)
        counter = ImageCounter(n_images)

        def run_task(part: slice) -> Result:
            result = task(generator, part)
            counter.add(part.stop - part.start)
            return result

        with machine.threads():
            return planner.run(run_task, n_images)

    def encode(
        self,
        images: ReadableImages,
        *,
        second_start: bool = False,
        exact_curvature: bool = True,
    ) -> Encoded:
        """Return the latents and the log evidence of images, and what finding them cost.

        Parameters
        ----------
        images : ReadableImages
        second_start : bool
            Whether to start from the second best place, and not from the best, as by default.
        exact_curvature : bool
            As for `encoding.encode`; True by default.
        """

        def encode_part(generator: Generator, part: slice) -> Encoded:
            observed = generator.own(images.read(part))
            here = _located(generator, observed)
            encoded = encode(
                here, observed, second_start=second_start, exact_curvature=exact_curvature
            )
            if isinstance(here, PosedGenerator):
                encoded = with_poses(here, observed, encoded)
            return encoded.to_host()

        parts = self.in_parts(encode_part, len(images))
        return Encoded.joined(parts)

    def poses(self, images: ReadableImages) -> Float64Array:
        """Return the poses of images, (N, P)."""

        def find(generator: Generator, part: slice) -> Float64Array:
            here = _located(generator, generator.own(images.read(part)))
            n_images = part.stop - part.start
            return here.poses if isinstance(here, PosedGenerator) else np.zeros((n_images, 0))

        n_coordinates = self.generator.settings.frame.n_coordinates
        return self._filled(np.empty((len(images), n_coordinates)), find)

    def bend(self, images: ReadableImages, encoded: Encoded) -> Encoded:
        """Return encodings with residual velocities, and with the latents that go with these.

        Parameters
        ----------
        images : ReadableImages
        encoded : Encoded
            Without residual warps. The evidence stays as it is.
        """
        settings, parameters = self.generator.settings, self.generator.parameters
        latents = encoded.latents.copy()
        velocity = empty_mapped((len(images), settings.n_dims, *settings.space))

        def bend_part(generator: Generator, part: slice) -> Array:
            noisy = replace(generator, parameters=generator.parameters.with_residuals())
            observed, some = generator.own(images.read(part)), generator.own(encoded.latents[part])
            poses = None if encoded.poses is None else encoded.poses[part]
            found, residual = bend(noisy, observed, some, parameters.residual_precision, poses)
            latents[part] = to_host(found)
            return residual

        return replace(encoded, residuals=self._filled(velocity, bend_part), latents=latents)

    def reconstruct(self, images: ReadableImages) -> Float32Array:
        """Return images as the model explains them, where they are, (N, C, *space)."""

        def explain(generator: Generator, part: slice) -> Array:
            observed = generator.own(images.read(part))
            here = _located(generator, observed)
            latents = encode(here, observed).latents
            expected = here.expected_images(latents)
            return _in_own_intensities(here, observed, expected, latents)[0]

        return self._filled(self._empty_images(len(images)), explain)

    def expected_images(
        self,
        latents: Float64Array,
        *,
        warped: bool = True,
        coloured: bool = True,
        poses: Float64Array | None = None,
        residuals: Array | None = None,
    ) -> Float32Array:
        """Return the images that latents stand for, (N, C, *space).

        Parameters
        ----------
        latents : array of shape (N, K)
        warped : bool
            Whether latents change shape; they do by default.
        coloured : bool
            Whether they change appearance; they do by default.
        poses : array of shape (N, P), optional
            By default images are those of the template's pose.
        residuals : array of shape (N, d, *space), optional
            Residual velocities; none by default.
        """

        def expect(generator: Generator, part: slice) -> Array:
            some, here = generator.own(latents[part]), _at(generator, poses, part, residuals)
            return here.expected_images(some, warped=warped, coloured=coloured)

        return self._filled(self._empty_images(len(latents)), expect)

    def log_likelihood(
        self, images: ReadableImages, latents: Float64Array, poses: Float64Array | None = None
    ) -> Float64Array:
        """Return ln p(f | z) of images and their latents (N, K), (N,).

        Poses (N, P) are found, given the latents, where images have poses and none are given.
        """

        def evaluate(generator: Generator, part: slice) -> Float64Array:
            some, observed = generator.own(latents[part]), generator.own(images.read(part))
            here = _at(generator, poses, part)
            if generator.settings.has_poses and poses is None:
                here = located_at(generator, observed, some)
            displacement = generator.unfolded_displacement(some)
            return here.log_likelihood(generator.appearance(some), displacement, observed)

        return self._filled(np.empty(len(images)), evaluate)

    def misfit(self, images: ReadableImages, encoded: Encoded) -> Float64Array:
        """Return squared residuals of encoded images and numbers of voxels observed, (2, C)."""

        def sum_part(generator: Generator, part: slice) -> Float64Array:
            some, observed = generator.own(encoded.latents[part]), generator.own(images.read(part))
            here = _at(generator, encoded.poses, part)
            displacement = here.displacement(some)
            sums = here.misfit(observed, here.appearance(some), displacement)
            return np.stack([to_host(values.sum(axis=0)) for values in sums])

        total: Float64Array = np.sum(self.in_parts(sum_part, len(images)), axis=0)
        return total

    def displacement(
        self,
        latents: Float64Array,
        poses: Float64Array | None = None,
        *,
        inverse: bool = False,
        residuals: Array | None = None,
    ) -> Float32Array:
        """Return the displacements of the warps of latents (N, K), (N, d, *space), in voxels.

        With poses (N, P), voxels are those of the images, and displacements end in the template.

        Parameters
        ----------
        latents : array of shape (N, K)
        poses : array of shape (N, P), optional
            None by default.
        inverse : bool
            Whether to return those of the inverses; False by default.
        residuals : array of shape (N, d, *space), optional
            Residual velocities; none by default.
        """
        settings = self.generator.settings
        shape = (len(latents), settings.n_dims, *settings.space)
        if settings.layout.n_shape == 0 and poses is None:
            return np.zeros(shape, np.float32)

        def shoot_part(generator: Generator, part: slice) -> Array | None:
            some = generator.own(latents[part])
            placing = _at(generator, poses, part, residuals)
            if inverse:
                return placing.placed_inverse(placing.inverse_displacement(some))
            return placing.placed(placing.unfolded_displacement(some))

        return self._filled(np.empty(shape, np.float32), shoot_part)

    def are_held(self, latents: Float64Array, residuals: Array | None = None) -> BoolArray:
        """Tell which latents (N, K) have warps that shooting can hold, (N,): see `where_held`.

        Parameters
        ----------
        latents : array of shape (N, K)
        residuals : array of shape (N, d, *space), optional
            Residual velocities; none by default.
        """

        def look(generator: Generator, part: slice) -> Float64Array:
            here, some = _at(generator, None, part, residuals), generator.own(latents[part])
            return where_held(here.log_prior(some), here.displacement(some))

        held: BoolArray = np.isfinite(self._filled(np.empty(len(latents)), look))
        return held

    def posterior(
        self, images: ReadableImages, *, fitted: bool = False, exact_curvature: bool = True
    ) -> Posterior:
        """Return what is known of the latents of images.

        Parameters
        ----------
        images : ReadableImages
        fitted, exact_curvature : bool
            As for `find_posterior`.
        """

        def find(generator: Generator, part: slice) -> Posterior:
            observed = generator.own(images.read(part))
            here = _located(generator, observed)
            found = find_posterior(here, observed, fitted=fitted, exact_curvature=exact_curvature)
            return Posterior(to_host(found.latents), to_host(found.covariance))

        parts = self.in_parts(find, len(images))
        return Posterior(
            np.concatenate([part.latents for part in parts]),
            np.concatenate([part.covariance for part in parts]),
        )

    def posterior_images(self, posterior: Posterior) -> Float32Array:
        """Return the images that are expected under a posterior, (N, C, *space)."""

        def expect(generator: Generator, part: slice) -> Array:
            latents, covariance = posterior.latents[part], posterior.covariance[part]
            some = Posterior(generator.own(latents), generator.own(covariance))
            return expect_images(generator, some)[0]

        return self._filled(self._empty_images(len(posterior.latents)), expect)

    def impute(self, images: ReadableImages) -> tuple[Float32Array, Float32Array]:
        """Return images with their NaN filled in, and standard deviations of what was filled in.

        Both are (N, C, *space). What is filled in is what the model expects there, over all latents
        that the image may have. Its deviation is that of a voxel, noise included; it is 0 where
        the image was observed.
        """
        deviations = self._empty_images(len(images))
        noise_variance = 1 / self.generator.parameters.noise_precision

        def fill(generator: Generator, part: slice) -> Array:
            observed = generator.own(images.read(part))
            is_missing, here = np.isnan(observed), _located(generator, observed)
            posterior = find_posterior(here, observed, exact_curvature=False)
            expected, variance = expect_images(here, posterior)
            variance = generator.settings.likelihood.variance(
                expected, variance, generator.own(noise_variance)
            )
            expected, gain = _in_own_intensities(here, observed, expected, posterior.latents)
            deviations[part] = to_host(np.where(is_missing, np.sqrt(variance) / gain, 0))
            return np.where(is_missing, expected, observed)

        return self._filled(self._empty_images(len(images)), fill), deviations

    def _empty_images(self, n_images: int) -> Float32Array:
        return np.empty((n_images, *self.generator.parameters.mean.shape), np.float32)

    def _filled(self, out: Filled, task: Callable[[Generator, slice], Array | None]) -> Filled:
        """Return an array (N, ...), filled part by part with what a task returns."""

        def fill(generator: Generator, part: slice) -> None:
            out[part] = to_host(task(generator, part))

        self.in_parts(fill, len(out))
        return out


def _in_own_intensities(
    generator: Generator, images: Array, expected: Array, latents: Float64Array
) -> tuple[Array, Array | float]:
    """Return expected images as bright as the images themselves, and by how much they were more."""
    if not generator.settings.matches_intensities:
        return expected, 1.0
    displacement = generator.unfolded_displacement(latents)
    return generator.in_own_intensities(images, expected, displacement)


def _located(generator: Generator, images: Array) -> Generator:
    """Return what a model says of images (N, C, *space), at their poses if they have any."""
    return located(generator, images) if generator.settings.has_poses else generator


def _at(
    generator: Generator,
    poses: Float64Array | None,
    part: slice,
    residuals: Array | None = None,
) -> Generator:
    """Return what a model says of some images with given poses and residual velocities, if any."""
    bent = generator.bent(None if residuals is None else residuals[part])
    return bent if poses is None else PosedGenerator.of(bent, poses[part])
