"""Images and latents that live at one site, and the questions they answer with sums.

Each question of `sums.FIELDS` is a method of `Cohort`. Images are read in parts of a batch, which
threads share; what a part contributes to a sum over images is collected for the batch, and added
up by matrix products in float64.

Shooting is what costs most, so displacements are kept while memory allows. Three shootings per
image and iteration remain: for the trial of the new shape basis (which serves the appearance basis
and the latents' derivatives too), for the trial of the new latents, and, since centring moves all
latents, for the mean (which serves the next shape derivatives too: orthogonalisation changes no
Wv z). Without memory to keep them there are five.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.column_sums import SumInMemory, SumOnDisk, is_large
from anamorph.arrays.devices import ImagesOnDevice, chosen_device, plan_memory
from anamorph.arrays.namespaces import beside, to_host
from anamorph.arrays.readable import ReadableImages
from anamorph.fitting.kept_displacements import KeptDisplacements
from anamorph.fitting.sums import FIELDS, Sums
from anamorph.images.files import FileImages
from anamorph.images.kept import KeptImages, can_be_kept
from anamorph.kernels.threads import n_threads, run_parallel, slabs
from anamorph.latents import starting_latents
from anamorph.likelihoods import Derivatives
from anamorph.model.encoding import improve, propose
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]

DEFAULT_MEMORY_BUDGET = 2 * 2**30
_MOST_IMAGES_PER_BATCH = 512
_MOST_IMAGES_PER_PART = 64
_MOST_IMAGES_ON_DEVICE = 2**14
_BATCH_BYTES_ON_DEVICE = 2**33


class Cohort:
    """The images of one site, their latents, and what the site answers.

    Parameters
    ----------
    images : ReadableImages
    settings : Settings
    identities : sequence of int or str
        One per image, different from all others at all sites.
    memory_budget : int, optional
        Bytes for batches of images and kept displacements (not for the model itself).
    start : (N, K), optional
        Latents to start from.
    scratch : Path, optional
        Folder for sums that are too large for memory; all are in memory by default.
    has_room_for_sums : bool
        Whether sums for all columns of a basis stay on the GPU, if images are there.
    """

    def __init__(
        self,
        images: ReadableImages,
        settings: Settings,
        identities: Sequence[int | str],
        memory_budget: int | None = None,
        start: Float64Array | None = None,
        scratch: Path | None = None,
        has_room_for_sums: bool = True,
    ) -> None:
        self.images = images
        self.settings = settings
        self.identities = identities
        self.namespace = _namespace_of(images)
        self.latents: Float64Array = self.namespace.zeros((len(images), settings.layout.n_latents))
        self._budget = DEFAULT_MEMORY_BUDGET if memory_budget is None else memory_budget
        self.latents_before_turn = self.latents
        self._start = start
        self._scratch = scratch
        self._has_room_for_sums = has_room_for_sums
        self._latents_version = 0
        self._displacements = KeptDisplacements(
            self.namespace, len(images), settings, self._budget // 2
        )
        self._proposal: _LatentProposal | None = None
        self._generator: Generator | None = None

    @classmethod
    def placed(
        cls,
        device: str,
        images: ReadableImages,
        settings: Settings,
        identities: Sequence[int | str],
        memory_budget: int | None = None,
        start: Float64Array | None = None,
        scratch: Path | None = None,
    ) -> Cohort:
        """Return a cohort in memory or on the GPU.

        Parameters
        ----------
        device : {"cpu", "cuda", "auto"}
            See `chosen_device`.
        images, settings, identities, memory_budget, start, scratch
            Of the cohort.
        """
        n_voxels = len(images) * math.prod(settings.space)
        if chosen_device(device, n_voxels) == "cpu":
            shape = (settings.n_channels, *settings.space)
            budget = DEFAULT_MEMORY_BUDGET if memory_budget is None else memory_budget
            if isinstance(images, FileImages) and can_be_kept(len(images), shape, budget):
                images = KeptImages(images, shape)
            return cls(images, settings, identities, memory_budget, start, scratch)
        plan = plan_memory(settings, len(images), memory_budget)
        on_device = ImagesOnDevice(images, plan.are_images_resident)
        return cls(
            on_device,
            settings,
            identities,
            plan.working_bytes,
            start,
            scratch,
            has_room_for_sums=plan.are_sums_resident,
        )

    # ---- parameters and latents

    def publish(self, parameters: Parameters) -> None:
        """Take note of the parameters that the next questions are about."""
        self._generator = Generator(self.settings, parameters)

    def withdraw(self) -> None:
        """Let go of the published parameters, before others take their place in memory."""
        self._generator = None

    def start_latents(self, seed: int) -> Sums:
        """Start from the given latents, or from some drawn by seed and identity."""
        if self._start is None:
            n_latents = self.settings.layout.n_latents
            self._set_latents(starting_latents(seed, self.identities, n_latents))
        else:
            self._set_latents(self._start)
        return self._answer("start_latents", *self._latent_moments())

    def restore(self, latents: Float64Array) -> None:
        """Take up latents (N, K) from a checkpoint."""
        self._set_latents(latents)

    def digest(self) -> str:
        """Return a short text that stands for the images, in their order, and the given start."""
        digest = hashlib.blake2b(digest_size=16)
        for batch in self._batches():
            digest.update(to_host(self.images.read(batch)).tobytes())
        if self._start is not None:
            digest.update(self._start.tobytes())
        return digest.hexdigest()

    def transform_latents(self, matrix: Float64Array, shift: Float64Array) -> Sums:
        """Take every z to M z + shift."""
        self._set_latents(self.latents @ self._own(matrix.T) + self._own(shift))
        return self._answer("transform_latents")

    # ---- questions about images

    def moments(self) -> Sums:
        """Sum up the images voxel by voxel."""
        settings = self.settings
        count, total = self.namespace.zeros((2, settings.n_channels, *settings.space))
        squares = self.namespace.zeros(settings.n_channels)
        for batch in self._batches():
            images = self.images.read(batch).astype(np.float64)
            observed = ~np.isnan(images)
            images = np.where(observed, images, 0)
            count += observed.sum(axis=0)
            total += images.sum(axis=0)
            squares += np.square(images).sum(axis=(0, *range(2, images.ndim)))
        return self._answer("moments", count, total, squares)

    def shape_derivatives(self, transform: Float64Array | None = None) -> Sums:
        """Differentiate with respect to the shape basis, after taking z to T z.

        The published bases must be those that go with T z, so that no warp changes.
        """
        if transform is not None:
            self.latents_before_turn = self.latents
            self.latents = self.latents @ self._own(transform.T)
        settings, generator = self.settings, self._current()
        return self._derivative_sums(
            "shape_derivatives",
            self.latents[:, settings.layout.shape],
            (settings.n_dims, settings.n_shape_hessian),
            generator.shape_derivatives,
        )

    def keep_displacements(self) -> Sums:
        """Shoot every image, if there is memory to keep what comes of it."""
        if self._displacements.has_room:
            for batch in self._batches():
                run_parallel(self._displacement, self._parts(batch))
            self._displacements.close(self._warp_key())
        return self._answer("keep_displacements")

    def appearance_derivatives(self) -> Sums:
        """Differentiate with respect to the appearance basis."""
        settings = self.settings
        return self._derivative_sums(
            "appearance_derivatives",
            self.latents[:, settings.layout.appearance],
            (settings.n_channels, settings.n_hessian),
            lambda _, derivatives: (derivatives.gradient, derivatives.hessian),
        )

    def mean_derivatives(self, shift: Float64Array) -> Sums:
        """Differentiate with respect to the mean, after taking z to z + shift."""
        self._set_latents(self.latents + self._own(shift))
        settings = self.settings
        return self._derivative_sums(
            "mean_derivatives",
            self.namespace.ones((len(self.latents), 1)),
            (settings.n_channels, settings.n_hessian),
            lambda _, derivatives: (derivatives.gradient, derivatives.hessian),
        )

    def propose_latents(self) -> Sums:
        """Find a Gauss-Newton step for the latents of every image, and keep it."""
        generator = self._current()
        step, values = np.empty_like(self.latents), self.namespace.empty(len(self.latents))

        def propose_part(part: slice) -> tuple[Float64Array, Float64Array]:
            images, displacement = self.images.read(part), self._displacement(part)
            proposal = propose(generator, images, self.latents[part], displacement)
            step[part], values[part] = proposal.step, proposal.log_likelihood
            return proposal.covariance.sum(axis=0), proposal.log_determinant.sum()

        sums = [
            some
            for batch in self._batches()
            for some in run_parallel(propose_part, self._parts(batch))
        ]
        self._displacements.close(self._warp_key())
        self._proposal = _LatentProposal(
            step,
            values,
            covariance_sum=to_host(sum(covariance for covariance, _ in sums)),
            log_determinant_sum=float(sum(log_determinant for _, log_determinant in sums)),
        )
        return self._answer("propose_latents", values.sum())

    def update_latents(self) -> Sums:
        """Take the proposed steps, halved for each image until they do no harm."""
        proposal, generator = self._proposal, self._current()
        if proposal is None:
            raise RuntimeError("update_latents must follow propose_latents")
        xp = self.namespace
        latents, values = xp.empty_like(self.latents), xp.empty(len(self.latents))
        improved = xp.empty(len(latents), bool)
        squares, observed = xp.zeros((2, len(latents), self.settings.n_channels))
        likelihood = self.settings.likelihood

        def update_part(part: slice) -> None:
            images = self.images.read(part)
            encoding, improved[part] = improve(
                generator,
                images,
                self.latents[part],
                proposal.step[part],
                proposal.log_likelihood[part],
            )
            latents[part], values[part] = encoding.latents, encoding.log_likelihood
            if likelihood.has_noise:
                appearance = generator.appearance(encoding.latents)
                warped = generator.warp(appearance, encoding.displacement)
                squares[part], observed[part] = likelihood.residual_sums(warped, images)

        for batch in self._batches():
            run_parallel(update_part, self._parts(batch))
        self._proposal = None
        self._set_latents(latents)
        return self._answer(
            "update_latents",
            values.sum(),
            *self._latent_moments(),
            proposal.covariance_sum,
            proposal.log_determinant_sum,
            squares.sum(axis=0),
            observed.sum(axis=0),
            np.sum(~improved),
        )

    # ---- how questions are answered

    def _derivative_sums(
        self,
        question: str,
        weights: Float64Array,
        sizes: tuple[int, int],
        chain_rule: Callable[[Array, Derivatives], tuple[Array, Array]],
    ) -> Sums:
        """Sum up gradients weighted by z and Hessians weighted by z^2, for each column of z.

        Parameters
        ----------
        weights : (N, columns)
            The z of the columns.
        sizes : pair of int
            Numbers per voxel of the gradient and the packed Hessian of an image.
        chain_rule : function
            From the appearance of some images, and derivatives with respect to it, to the
            gradients and Hessians to be summed.
        """
        generator, space = self._current(), self.settings.space
        n_columns = weights.shape[1]
        gradient, hessian = (
            self._new_sum(name, (n_columns, size, *space))
            for name, size in zip(("gradient", "hessian"), sizes, strict=True)
        )
        values = self.namespace.empty(len(self.latents))
        for batch in self._batches():
            n_images = batch.stop - batch.start if n_columns else 0
            fields = [self.namespace.empty((n_images, size, *space), np.float32) for size in sizes]

            def differentiate(part: slice) -> None:
                images, displacement = self.images.read(part), self._displacement(part)
                appearance = generator.appearance(self.latents[part])
                if not n_columns:
                    values[part] = generator.log_likelihood(appearance, displacement, images)
                    return
                derivatives = generator.derivatives(appearance, displacement, images)
                values[part] = derivatives.log_likelihood
                here = slice(part.start - batch.start, part.stop - batch.start)  # noqa: B023
                fields[0][here], fields[1][here] = chain_rule(appearance, derivatives)  # noqa: B023

            run_parallel(differentiate, self._parts(batch))
            if n_columns:
                gradient.add_products(weights[batch], fields[0])
                hessian.add_products(weights[batch] ** 2, fields[1])
        self._displacements.close(self._warp_key())
        return self._answer(question, values.sum(), gradient.array(), hessian.array())

    def _new_sum(self, name: str, shape: tuple[int, ...]) -> SumInMemory | SumOnDisk:
        if self._scratch is not None and self.namespace is np and is_large(math.prod(shape)):
            return SumOnDisk(self._scratch / f"{name}.float32", shape)
        is_of_a_basis = shape[0] > 1
        leaves_device = is_of_a_basis and not self._has_room_for_sums
        return SumInMemory(np if leaves_device else self.namespace, shape)

    def _current(self) -> Generator:
        if self._generator is None:
            raise RuntimeError("parameters must be published before questions are asked")
        return self._generator

    def _warp_key(self) -> tuple[int, int]:
        return self._current().parameters.warp_version, self._latents_version

    def _displacement(self, part: slice) -> Array | None:
        """Return the displacements of some images, kept from before or shot now."""
        kept = self._displacements.get(part, self._warp_key())
        if kept is not None:
            return kept
        displacement = self._current().displacement(self.latents[part])
        if displacement is not None:
            self._displacements.put(part, displacement)
        return displacement

    def _own(self, matrix: Float64Array) -> Float64Array:
        """Return a matrix where the latents are."""
        own: Float64Array = beside(self.latents, matrix)
        return own

    def _set_latents(self, latents: Float64Array) -> None:
        self.latents = self._own(latents)
        self._latents_version += 1

    def _latent_moments(self) -> tuple[Float64Array, Float64Array]:
        return self.latents.sum(axis=0), self.latents.T @ self.latents

    def _batches(self) -> Iterator[slice]:
        """Yield slices of images whose work fits into half of the memory budget."""
        s = self.settings
        numbers_per_voxel = (
            4 * s.n_channels + 3 * s.n_hessian + s.n_channels * s.n_dims
            + 6 * s.n_dims + s.n_shape_hessian
        )  # fmt: skip
        image_bytes = 4 * math.prod(s.space) * numbers_per_voxel
        budget, most = self._budget // 2, _MOST_IMAGES_PER_BATCH
        if self.namespace is not np:
            budget, most = min(budget, _BATCH_BYTES_ON_DEVICE), _MOST_IMAGES_ON_DEVICE
        most = min(max(1, budget // image_bytes), most)
        for start, stop in slabs(len(self.images), -(-len(self.images) // most)):
            yield slice(start, stop)

    def _parts(self, batch: slice) -> list[slice]:
        """Split a batch into parts for threads to share; a GPU takes it whole."""
        if self.namespace is not np:
            return [batch]
        size = batch.stop - batch.start
        bounds = slabs(size, max(n_threads(), -(-size // _MOST_IMAGES_PER_PART)))
        return [slice(batch.start + first, batch.start + last) for first, last in bounds]

    def _answer(self, question: str, *values: ArrayLike) -> Sums:
        """Return named sums; those that are images stay where they are, small ones do not."""
        arrays: list[Float64Array] = [
            cast(Float64Array, value)
            if np.ndim(value) > 2
            else np.asarray(to_host(value), dtype=np.float64)
            for value in values
        ]
        return Sums(len(self.images), dict(zip(FIELDS[question], arrays, strict=True)))


@dataclass(frozen=True)
class _LatentProposal:
    """Proposed steps (N, K), the log-likelihoods (N,) they start from, and sums over images."""

    step: Float64Array
    log_likelihood: Float64Array
    covariance_sum: Float64Array
    log_determinant_sum: float


def _namespace_of(images: ReadableImages) -> Any:
    """Return the module that makes arrays where images are read to."""
    return images.namespace if isinstance(images, ImagesOnDevice) else np
