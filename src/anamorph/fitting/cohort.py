"""Images and latents that live at one site, and the questions they answer with sums.

Each question of `sums.FIELDS` is a method of `Cohort`. Images are read in parts of a batch, which
threads share; the contributions of the parts to a sum over images are collected for the batch,
and added up by matrix products in float64.

Shooting costs most, so displacements are kept while memory allows. Three shootings per image and
iteration remain: for the trial of the new shape basis (which serves the appearance basis and the
latents' derivatives too), for the trial of the new latents, and, since centring moves all latents,
for the mean (which serves the next shape derivatives too: orthogonalisation changes no Wv z).
Without memory to keep displacements there are five.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from anamorph.arrays.batches import BatchPlanner
from anamorph.arrays.column_sums import SumPlace
from anamorph.arrays.devices import DEFAULT_MEMORY_BUDGET, beside, to_host
from anamorph.arrays.gpu_images import ImagesOnDevice
from anamorph.arrays.mapped import empty_mapped, let_go
from anamorph.arrays.typing import Array, Float32Array, Float64Array, ReadableImages
from anamorph.fitting.kept_displacements import KeptDisplacements
from anamorph.fitting.leave_one_out import Cohesion, draw_boxes, errors_without
from anamorph.fitting.limits import Limits, clipped, shrink
from anamorph.fitting.sums import MOVING, QUESTIONS, Move, Sums
from anamorph.geometry.adjoint import RecordedPath
from anamorph.kernels.threads import run_parallel
from anamorph.latents import starting_latents
from anamorph.likelihoods import Derivatives
from anamorph.model.background import border_sums
from anamorph.model.encoding import improve, propose
from anamorph.model.generator import Generator, encoding_bytes, working_bytes
from anamorph.model.parameters import Parameters
from anamorph.model.pose_search import Target, centre_poses, match_poses
from anamorph.model.pose_steps import improve_poses
from anamorph.model.posing import PosedGenerator, posed_sums
from anamorph.model.residuals import ResidualDescent, residual_bytes
from anamorph.model.settings import Settings

Result = TypeVar("Result")

_MOST_RESIDUALS_IN_MEMORY = 2**29  # bytes


class Cohort:
    """The images of one site, their latents, and what the site answers.

    Parameters
    ----------
    images : ReadableImages
        In memory, in files or on the GPU: see `place_cohort`.
    settings : Settings
    identities : sequence of int or str
        One per image, different from all others at all sites.
    memory_budget : int, optional
        Bytes for batches of images and kept displacements (not for the model itself); 2 GiB by
        default.
    start : (N, K), optional
        Latents to start from; by default they are drawn by seed and identity.
    sum_place : SumPlace, optional
        Where sums are added up; by default where the images are.
    spread : (N, C), optional
        Squares that averaging over coarse voxels has lost of each image; by default images are
        whole. They count as residuals, which no appearance explains on this grid.

    Attributes
    ----------
    latents : (N, K)
    latents_before_turn : (N, K)
        As they were before the last move that kept warps: those that kept displacements were shot
        with. The same as `latents` if they changed otherwise since.
    poses : (N, P)
        In memory; P is 0 where images have no poses.
    residuals : (N, d, *space) or None
        Residual velocities, in voxels: in memory, or in a file where they are large. None where
        images have none.
    limits : Limits or None
        Of what an image contributes to the next answers; by default there are none.
    squared_norms : (2,)
        Sums of the squared norms of the gradients and Hessians of all images in the last answer
        that had derivatives; zero without limits.
    """

    def __init__(
        self,
        images: ReadableImages,
        settings: Settings,
        identities: Sequence[int | str],
        memory_budget: int | None = None,
        start: Float64Array | None = None,
        sum_place: SumPlace | None = None,
        spread: Float64Array | None = None,
    ) -> None:
        self.images = images
        self.settings = settings
        self.identities = identities
        self.namespace: Any = images.namespace if isinstance(images, ImagesOnDevice) else np
        self.latents: Float64Array = self.namespace.zeros((len(images), settings.layout.n_latents))
        self.latents_before_turn = self.latents
        self.poses = np.zeros((len(images), settings.frame.n_coordinates))
        self.residuals = self._no_residuals()
        self._latents_version = 0
        self.limits: Limits | None = None
        self.squared_norms = np.zeros(2)
        self._spread = None if spread is None else self.namespace.asarray(spread)
        self._start = start
        self._sum_place = sum_place or SumPlace(self.namespace)
        # Half of the budget is for displacements that are kept, half for batches.
        half = (DEFAULT_MEMORY_BUDGET if memory_budget is None else memory_budget) // 2
        self._displacements = KeptDisplacements(self.namespace, len(images), settings, half)
        on_gpu = self.namespace is not np
        self._planner = BatchPlanner(_bytes_per_image(settings), half, on_gpu)
        self._proposal: _LatentProposal | None = None
        self._generator: Generator | None = None

    def answer(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Make the move that a question carries, if any, then answer it.

        Parameters
        ----------
        question : str
            One of `sums.FIELDS`.
        move : Move, optional
            For the questions in `sums.MOVING`.
        **arguments
            Of the method of that name.

        Returns
        -------
        Sums
            About the moved latents.
        """
        if move is not None:
            if question not in MOVING:
                raise ValueError(f"a move goes with one of {', '.join(MOVING)}, got {question!r}")
            self._make_move(move)
        sums: Sums = getattr(self, question)(**arguments)
        return sums

    # ---- parameters and latents

    def publish(self, parameters: Parameters) -> None:
        """Take note of the parameters that the next questions are about."""
        self._generator = Generator(self.settings, parameters)

    def withdraw(self) -> None:
        """Forget the published parameters, before others take their place in memory."""
        self._generator = None

    def start_latents(self, seed: int) -> Sums:
        """Start from the given latents, or from some drawn by seed and identity."""
        if self._start is None:
            n_latents = self.settings.layout.n_latents
            self._set_latents(starting_latents(seed, self.identities, n_latents))
        else:
            self._set_latents(self._start)
        return self._answer("start_latents", *self._latent_moments())

    def restore(
        self,
        latents: Float64Array,
        poses: Float64Array | None = None,
        residuals: Float32Array | None = None,
    ) -> None:
        """Take latents (N, K), and poses and residual velocities if any, from a checkpoint."""
        self._set_latents(latents)
        if poses is not None:
            self.poses = poses.copy()
        if residuals is not None and self.residuals is not None:
            self.residuals[...] = residuals

    def _no_residuals(self) -> Float32Array | None:
        """Return residual velocities of 0, in memory or in a file; None where there are none."""
        if not self.settings.has_residuals:
            return None
        shape = (len(self.images), self.settings.n_dims, *self.settings.space)
        if 4 * math.prod(shape) <= _MOST_RESIDUALS_IN_MEMORY:
            return np.zeros(shape, np.float32)
        return empty_mapped(shape)  # zero, as files are where nothing was written

    def digest(self) -> str:
        """Return a short text that stands for the images, in their order, and the given start."""
        digest = hashlib.blake2b(digest_size=16)
        for batch in self._planner.batches(len(self.images)):
            digest.update(to_host(self.images.read(batch)).tobytes())
        if self._start is not None:
            digest.update(self._start.tobytes())
        return digest.hexdigest()

    def transform_latents(self) -> Sums:
        """Answer that the move this question carries is made."""
        return self._answer("transform_latents")

    def _make_move(self, move: Move) -> None:
        """Take every z to M z + t. If bases go along, displacements that are kept stay valid."""
        if move.pose is not None:
            self.poses = self.settings.frame.composed(move.pose[None], self.poses)
        before = self.latents
        moved = before @ self._own(move.matrix.T) + self._own(move.shift)
        if move.keeps_warps:
            self.latents_before_turn, self.latents = before, moved
        else:
            self._set_latents(moved)

    # ---- questions about images

    def moments(self) -> Sums:
        """Sum up the images voxel by voxel."""
        settings = self.settings
        count, total = self.namespace.zeros((2, settings.n_channels, *settings.space))
        squares = self.namespace.zeros(settings.n_channels)
        for batch in self._planner.batches(len(self.images)):
            images = self.images.read(batch).astype(np.float64)
            observed = ~np.isnan(images)
            images = np.where(observed, images, 0)
            count += observed.sum(axis=0)
            total += images.sum(axis=0)
            squares += np.square(images).sum(axis=(0, *range(2, images.ndim)))
        if self._spread is not None:
            squares += self._spread.sum(axis=0)
        return self._answer("moments", count, total, squares)

    def shape_derivatives(self) -> Sums:
        """Differentiate with respect to the shape basis: Algorithm 6, g^v_k and H^v_kk."""
        settings = self.settings
        return self._derivative_sums(
            "shape_derivatives",
            self._limited_latents()[:, settings.layout.shape],
            (settings.n_dims, settings.n_shape_hessian),
            self._differentiate_shape,
        )

    def keep_displacements(self) -> Sums:
        """Shoot every image, if there is memory to keep the displacements."""
        if self._displacements.has_room:
            self._run(self._displacement)
            self._displacements.close(self._warp_key())
        return self._answer("keep_displacements")

    def appearance_derivatives(self) -> Sums:
        """Differentiate with respect to the appearance basis: Algorithm 5, g^a_k and H^a_kk."""
        settings = self.settings
        return self._derivative_sums(
            "appearance_derivatives",
            self._limited_latents()[:, settings.layout.appearance],
            (settings.n_channels, settings.n_hessian),
            self._differentiate_appearance,
        )

    def mean_derivatives(self) -> Sums:
        """Differentiate with respect to the mean: Algorithm 2."""
        settings = self.settings
        return self._derivative_sums(
            "mean_derivatives",
            self.namespace.ones((len(self.latents), 1)),
            (settings.n_channels, settings.n_hessian),
            self._differentiate_appearance,
        )

    def propose_latents(self) -> Sums:
        """Find a Gauss-Newton step for the latents of every image, and keep it: Algorithm 7."""
        generator = self._current()
        step, values = np.empty_like(self.latents), self.namespace.empty(len(self.latents))

        def propose_part(part: slice) -> tuple[Float64Array, Float64Array]:
            images, displacement = self.images.read(part), self._displacement(part)
            posed = self._posed(generator, part)
            proposal = propose(posed, images, self.latents[part], displacement)
            step[part], values[part] = proposal.step, proposal.log_likelihood
            covariance = self._limited("covariance", proposal.covariance)
            determinants = self._limited("log_determinant", proposal.log_determinant)
            return covariance.sum(axis=0), determinants.sum()

        sums = self._run(propose_part)
        self._displacements.close(self._warp_key())
        self._proposal = _LatentProposal(
            step,
            values,
            covariance_sum=to_host(sum(covariance for covariance, _ in sums)),
            log_determinant_sum=float(sum(log_determinant for _, log_determinant in sums)),
        )
        return self._answer("propose_latents", self._sum_of(values))

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
            posed = self._posed(generator, part)
            encoding, improved[part] = improve(
                posed,
                images,
                self.latents[part],
                proposal.step[part],
                proposal.log_likelihood[part],
            )
            latents[part], values[part] = encoding.latents, encoding.log_likelihood
            if likelihood.has_noise:
                appearance = posed.appearance(encoding.latents)
                squares[part], observed[part] = posed.misfit(
                    images, appearance, encoding.displacement
                )

        self._run(update_part)
        self._proposal = None
        self._set_latents(latents)
        return self._answer(
            "update_latents",
            self._sum_of(values),
            *self._latent_moments(),
            proposal.covariance_sum,
            proposal.log_determinant_sum,
            self._limited("squares", squares).sum(axis=0),
            observed.sum(axis=0),
            np.sum(~improved),
        )

    def leave_one_out(self, inverse_scatter: Float64Array, n_images: int) -> Sums:
        """Predict a hidden box of every image as if the image had not been learnt from.

        Parameters
        ----------
        inverse_scatter : (K, K)
            (ZZ')^-1 of the latents at all sites.
        n_images : int
            At all sites.
        """
        generator, cohesion = self._current(), Cohesion(inverse_scatter, n_images)
        boxes = draw_boxes(self.identities, self.settings.space)

        def predict_part(part: slice) -> tuple[Float64Array, ...]:
            # New images are predicted by the modes alone.
            images, latents = self.images.read(part), self.latents[part]
            is_bent = self.residuals is not None
            displacement = generator.displacement(latents) if is_bent else self._displacement(part)
            is_hidden = self.namespace.asarray(boxes.mask(part))
            posed = self._posed(generator, part, bent=False)
            return errors_without(posed, images, latents, displacement, is_hidden, cohesion)

        sums = self._run(predict_part)
        if self.residuals is None:
            self._displacements.close(self._warp_key())
        return self._answer("leave_one_out", *(sum(parts) for parts in zip(*sums, strict=True)))

    # ---- questions about poses

    def border_moments(self) -> Sums:
        """Sum up the voxels at the borders of images, which show what is around them."""

        def sum_part(part: slice) -> Float64Array:
            return border_sums(self.images.read(part))

        return self._answer("border_moments", *np.sum(self._run(sum_part), axis=0))

    def start_poses(self, background: Float64Array) -> Sums:
        """Bring the centres of mass of all images to the centre of the box.

        Parameters
        ----------
        background : (2, C)
            Mean and precision of what is no object: see `pose_search.centre_poses`.
        """

        def centre_part(part: slice) -> None:
            images = self.images.read(part)
            self.poses[part] = centre_poses(images, background, self.settings.frame)

        self._run(centre_part)
        return self._answer("start_poses", self._pose_sum())

    def posed_moments(self, factors: tuple[int, ...]) -> Sums:
        """Sum up the images on the template, whose voxels are made of some of the model's."""
        frame = replace(self.settings.frame, factors=factors)

        def sum_part(part: slice) -> tuple[Float64Array, Float64Array, Float64Array]:
            return posed_sums(self.images.read(part), self.poses[part], frame)

        count, total, squares = (sum(parts) for parts in zip(*self._run(sum_part), strict=True))
        if self._spread is not None:
            squares = squares + self._spread.sum(axis=0)
        return self._answer("posed_moments", count, total, squares)

    def match_poses(
        self,
        template: Float32Array,
        background: Float64Array,
        factors: tuple[int, ...],
        *,
        search: bool,
    ) -> Sums:
        """Find poses by comparing images with a template on a coarse grid.

        Parameters
        ----------
        template : (C, *coarse space)
        background : (C,)
        factors : tuple of int
            How many voxels of the model make one of the grid, along each axis.
        search : bool
            Whether to look far away too.
        """
        target = Target(template, background, replace(self.settings.frame, factors=factors))

        def match_part(part: slice) -> None:
            images, poses = self.images.read(part), self.poses[part]
            self.poses[part] = match_poses(self.settings, target, images, poses, search=search)

        self._run(match_part)
        return self._answer("match_poses", self._pose_sum())

    def update_poses(self, n_steps: int, *, has_modes: bool = True) -> Sums:
        """Take Gauss-Newton steps of all poses, at the present latents, where they do no harm.

        Parameters
        ----------
        n_steps : int
        has_modes : bool
            Whether latents do something already; by default they do.
        """
        generator, likelihood = self._current(), self.settings.likelihood
        number = len(self.images)
        values, improved = np.empty(number), np.empty(number, bool)
        squares, observed = self.namespace.zeros((2, number, self.settings.n_channels))

        def update_part(part: slice) -> None:
            images = self.images.read(part)
            displacement = self._displacement(part) if has_modes else None
            appearance = generator.appearance(self.latents[part])
            about = self._about(generator, part)
            found = improve_poses(
                about, images, appearance, displacement, self.poses[part], n_steps=n_steps
            )
            self.poses[part], improved[part] = found.poses, found.improved
            values[part] = found.log_likelihood
            if likelihood.has_noise:
                posed = self._posed(generator, part)
                squares[part], observed[part] = posed.misfit(images, appearance, displacement)

        self._run(update_part)
        if has_modes:
            self._displacements.close(self._warp_key())
        return self._answer(
            "update_poses",
            self._sum_of(self._own(values)),
            self._pose_sum(),
            self._limited("squares", squares).sum(axis=0),
            observed.sum(axis=0),
            np.sum(~improved),
        )

    # ---- questions about residual warps

    def update_residuals(self, n_steps: int, seed: int) -> Sums:
        """Improve the residual warps of all images, at the present latents.

        Parameters
        ----------
        n_steps : int
        seed : int
            Of the random field that estimates how much images determine.
        """
        if self.residuals is None:
            raise RuntimeError("update_residuals needs settings with residual warps")
        generator, likelihood = self._current(), self.settings.likelihood
        precision, kept = generator.parameters.residual_precision, self.residuals
        xp, number = self.namespace, len(self.images)
        values, before, energy, determined = xp.empty((4, number))
        improved = xp.empty(number, bool)
        squares, observed = xp.zeros((2, number, self.settings.n_channels))

        def update_part(part: slice) -> None:
            images, latents = self.images.read(part), self.latents[part]
            posed = self._posed(generator, part, bent=False)
            descent = ResidualDescent(posed, images, latents, generator.own(kept[part]), precision)
            before[part] = descent.residuals().energy
            descent.take_steps(n_steps)
            found = descent.residuals()
            kept[part] = to_host(found.velocity)
            let_go(kept)
            values[part], energy[part] = found.log_likelihood, found.energy
            improved[part], determined[part] = found.improved, descent.determined(seed, part.start)
            if likelihood.has_noise:
                squares[part], observed[part] = posed.misfit(
                    images, posed.appearance(latents), found.displacement
                )

        self._run(update_part)
        self._latents_version += 1  # warps are others now
        return self._answer(
            "update_residuals",
            self._sum_of(values),
            before.sum(),
            energy.sum(),
            determined.sum(),
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
        differentiate: Callable[[Generator, slice, Array], Derivatives],
    ) -> Sums:
        """Sum up gradients weighted by z and Hessians weighted by z^2, for each column of z.

        Parameters
        ----------
        weights : (N, columns)
            The z of the columns.
        sizes : pair of int
            Numbers per voxel of the gradient and the packed Hessian of an image.
        differentiate : function
            From what a model says of some images, their part and their appearances to the
            gradients and Hessians to be summed.
        """
        generator, space = self._current(), self.settings.space
        n_columns = weights.shape[1]
        gradient, hessian = (
            self._sum_place.new_sum(name, (n_columns, size, *space))
            for name, size in zip(("gradient", "hessian"), sizes, strict=True)
        )
        values = self.namespace.empty(len(self.latents))
        self.squared_norms = np.zeros(2)
        for batch in self._planner.batches(len(self.images)):
            n_images = batch.stop - batch.start if n_columns else 0
            fields = [self.namespace.empty((n_images, size, *space), np.float32) for size in sizes]

            def differentiate_part(part: slice) -> None:
                posed = self._posed(generator, part)
                appearance = posed.appearance(self.latents[part])
                if not n_columns:
                    displacement, images = self._displacement(part), self.images.read(part)
                    values[part] = posed.log_likelihood(appearance, displacement, images)
                    return
                found = differentiate(posed, part, appearance)
                values[part] = found.log_likelihood
                here = slice(part.start - batch.start, part.stop - batch.start)  # noqa: B023
                fields[0][here], fields[1][here] = found.gradient, found.hessian  # noqa: B023

            run_parallel(differentiate_part, self._planner.parts(batch))
            if n_columns:
                self._limit_fields(*fields)
                gradient.add_products(weights[batch], fields[0])
                hessian.add_products(weights[batch] ** 2, fields[1])
        self._displacements.close(self._warp_key())
        return self._answer(question, self._sum_of(values), gradient.array(), hessian.array())

    def _differentiate_appearance(
        self, posed: Generator, part: slice, appearance: Array
    ) -> Derivatives:
        """Return derivatives of some images with respect to their appearances."""
        return posed.derivatives(appearance, self._displacement(part), self.images.read(part))

    def _differentiate_shape(self, posed: Generator, part: slice, appearance: Array) -> Derivatives:
        """Return derivatives of some images with respect to their velocities.

        In some fits gradients are exact: see `fitting.step_length`.
        """
        if self.settings.differentiates_exactly and posed.has_warps:
            path = cast(RecordedPath, posed.record(self.latents[part]))
            self._displacements.get(part, self._warp_key(), lambda: path.displacement)
            return posed.exact_shape_derivatives(path, appearance, self.images.read(part))
        found = self._differentiate_appearance(posed, part, appearance)
        return Derivatives(found.log_likelihood, *posed.shape_derivatives(appearance, found))

    def _run(self, task: Callable[[slice], Result]) -> list[Result]:
        """Return what a task makes of each part of the images, batch after batch."""
        return [
            result
            for batch in self._planner.batches(len(self.images))
            for result in run_parallel(task, self._planner.parts(batch))
        ]

    def _current(self) -> Generator:
        if self._generator is None:
            raise RuntimeError("parameters must be published before questions are asked")
        return self._generator

    def _posed(self, generator: Generator, part: slice, *, bent: bool = True) -> Generator:
        """Return what a model says of some images, with their poses and, if bent, residuals."""
        if bent and self.residuals is not None:
            generator = generator.bent(self.residuals[part])
        generator = self._about(generator, part)
        if not self.settings.has_poses:
            return generator
        return PosedGenerator.of(generator, self.poses[part])

    def _about(self, generator: Generator, part: slice) -> Generator:
        """Return what a model says of some images, of which averaging may have lost something."""
        if self._spread is None:
            return generator
        return replace(generator, unresolved=self._spread[part])

    def _warp_key(self) -> tuple[int, int]:
        return self._current().parameters.warp_version, self._latents_version

    def _displacement(self, part: slice) -> Array | None:
        """Return the displacements of some images, kept from before or shot now."""
        posed = self._posed(self._current(), part)
        if not posed.has_warps:
            return None

        def shoot() -> Array | None:
            return posed.displacement(self.latents[part])

        return self._displacements.get(part, self._warp_key(), shoot)

    def _own(self, matrix: Float64Array) -> Float64Array:
        """Return a matrix where the latents are."""
        own: Float64Array = beside(self.latents, matrix)
        return own

    def _set_latents(self, latents: Float64Array) -> None:
        self.latents = self.latents_before_turn = self._own(latents)
        self._latents_version += 1

    def _latent_moments(self) -> tuple[Float64Array, Float64Array]:
        latents = self._limited_latents()
        return latents.sum(axis=0), latents.T @ latents

    # ---- limits, where there are any

    def _limited(self, name: str, values: Float64Array) -> Float64Array:
        """Return values of images as they are added up."""
        return values if self.limits is None else clipped(values, getattr(self.limits, name))

    def _limit_fields(self, gradient: Array, hessian: Array) -> None:
        """Scale down fields of images that are too large, and note how large all are."""
        if self.limits is not None:
            self.squared_norms[0] += float(shrink(gradient, self.limits.gradient).sum())
            self.squared_norms[1] += float(shrink(hessian, self.limits.hessian).sum())

    def _limited_latents(self) -> Float64Array:
        """Return the latents as they are added up, (N, K)."""
        if self.limits is None:
            return self.latents
        limited = self.latents.copy()
        shrink(limited, self.limits.latent)
        return limited

    def _pose_sum(self) -> Float64Array:
        """Return the sum of poses, (P,)."""
        limits = self.limits
        poses = self.poses if limits is None else clipped(self.poses, np.array(limits.pose))
        total: Float64Array = poses.sum(axis=0)
        return total

    def _sum_of(self, log_likelihoods: Float64Array) -> ArrayLike:
        """Return the sum of log-likelihoods (N,)."""
        total: ArrayLike = self._limited("log_likelihood", log_likelihoods).sum()
        return total

    def _answer(self, question: str, *values: ArrayLike) -> Sums:
        """Return named sums; those that are images stay where they are, small ones do not."""
        arrays: list[Float64Array] = [
            cast(Float64Array, value)
            if np.ndim(value) > 2
            else np.asarray(to_host(value), dtype=np.float64)
            for value in values
        ]
        return Sums(len(self.images), dict(zip(QUESTIONS[question], arrays, strict=True)))


def _bytes_per_image(settings: Settings) -> int:
    """Return how many bytes the work on one image takes at most."""
    if settings.has_residuals:
        return residual_bytes(settings)
    return encoding_bytes(settings) if settings.differentiates_exactly else working_bytes(settings)


@dataclass(frozen=True)
class _LatentProposal:
    """Proposed steps (N, K), the log-likelihoods (N,) they start from, and sums over images."""

    step: Float64Array
    log_likelihood: Float64Array
    covariance_sum: Float64Array
    log_determinant_sum: float
