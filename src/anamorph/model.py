"""ShapeAppearanceModel: the estimator that people call."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from anamorph.arguments import check_choice, checked_seed, checked_settings, checked_start
from anamorph.cohort import Cohort
from anamorph.device import DEVICES, ImagesOnDevice, chosen_device, find_gpu, plan_memory
from anamorph.encoding import Encoded, encode
from anamorph.fitting import Fit, State
from anamorph.generator import Generator
from anamorph.io.arrays import ImageFormat
from anamorph.io.checkpoint import fit_fingerprint, read_checkpoint, write_checkpoint
from anamorph.io.collection import ImageCollection, Images, is_list_of_files, open_images
from anamorph.io.files import FileImages
from anamorph.io.grid import Grid
from anamorph.io.modelfile import Origin, StoredModel, read_model, write_model
from anamorph.kernels.device import beside, to_host
from anamorph.kernels.threads import one_blas_thread, run_parallel, use_threads
from anamorph.latents import draw_latents
from anamorph.likelihoods import LIKELIHOODS
from anamorph.parameters import Parameters
from anamorph.progress import Progress
from anamorph.settings import Settings
from anamorph.sites import LocalSites, OwnSites

logger = logging.getLogger("anamorph")

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]

#: Opens the sites that hold images, given settings and starting latents.
OpenSites = Callable[[ImageCollection, Settings, Float64Array | None], OwnSites]

PARTS = ("both", "shape", "appearance")

_IMAGES_PER_PART = 64
_IMAGES_ON_DEVICE = 2**14

Result = TypeVar("Result")


class ShapeAppearanceModel(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A mean image with modes of shape and appearance, learnt from images alone.

    Every image is explained by a few latent variables z: its appearance is a = mu + Wa z, and
    it is warped by the diffeomorphism that the initial velocity Wv z generates. The mean mu, the
    bases Wa and Wv and the latents are found by Gauss-Newton inside EM [1].

    Parameters
    ----------
    n_components : int or pair of int
        Number K of latents; (n_appearance, n_shape) with ``latents="separate"``. Less than the
        number of images.
    likelihood : {"gaussian", "bernoulli", "categorical"}
        Of images with noise, binary images (or probabilities), and label maps (or probabilities
        of classes).
    latents : {"joint", "separate", "shape", "appearance"}
        Whether each latent controls shape and appearance, one of the two, or the model has only
        one of them.
    shape_penalty : 5 numbers, optional
        Weights of the size, stretching, bending, elasticity and divergence of velocities; by
        default `arguments.DEFAULT_PENALTIES` of the likelihood, as for the other penalties.
    appearance_penalty : 3 numbers, optional
        Weights of the size, stretching and bending of modes of appearance.
    mean_penalty : 3 numbers, optional
        The same of the mean, per image.
    balance : pair of float
        lambda_1 and lambda_2: weights of the penalties on bases and latents, and on what they
        reconstruct.
    prior_dof : float, optional
        nu_0, the weight (in images) of the prior that latents are white; K by default.
    n_iter : int
        Number of EM iterations.
    tol : float, optional
        Stop when an iteration raises the objective by less than this share of its total rise.
    n_steps : int
        Steps of geodesic shooting.
    voxel_size : 2 or 3 numbers, optional
        Size of a voxel along each axis; by default that of the files, or 1.
    channel_axis : int, optional
        Axis of the stacked images that holds channels or classes, e.g. -1.
    decimation : float
        Weight of the log-likelihood, below 1 where neighbouring voxels are not independent.
    device : {"cpu", "cuda", "auto"}
        Where to compute; "auto" is the GPU where there is one and the work is large enough to
        pay. Sums on a GPU are added up in no fixed order: results differ in their last digits
        from run to run.
    n_threads : int, optional
        As many as there are processors by default.
    memory_budget : int, optional
        Bytes for batches of images and what is kept of them; 2 GiB by default. On a GPU, the
        most bytes to use there in all; by default what is free.
    random_state : int, optional
        Seed of the starting latents; 0 by default.
    verbose : bool
        Print the objective after every iteration, and how long the rest will take.

    Attributes
    ----------
    mean_ : array of shape (C, *space)
        mu: intensities, or what a logistic function or a softmax turns into probabilities.
    appearance_basis_ : array of shape (Ka, C, *space)
        Wa.
    shape_basis_ : array of shape (Kv, d, *space)
        Wv, in voxels.
    latents_ : array of shape (N, K)
        Of the images that the model was fitted to; not stored with the model.
    latent_precision_, prior_precision_ : arrays of shape (K, K)
        A, and P = lambda_1 A + lambda_2 C.
    noise_variance_ : array of shape (C,)
        1 where the likelihood has none.
    objective_ : list of float
        Approximate log evidence after each iteration.
    n_iter_ : int
        How many iterations were done.
    origin_ : Origin
        The number of images that the model was fitted to, their affine and margin, and how long
        iterations took.

    References
    ----------
    [1] Ashburner, Brudfors, Bronik and Balbastre, "An algorithm for learning shape and
    appearance models without annotations", Medical Image Analysis 55 (2019) 197-215.

    Examples
    --------
    >>> model = ShapeAppearanceModel(16, likelihood="bernoulli").fit(digits)  # doctest: +SKIP
    >>> latents = model.transform(other_digits)  # doctest: +SKIP
    """

    def __init__(
        self,
        n_components: int | tuple[int, int] = 16,
        *,
        likelihood: str = "gaussian",
        latents: str = "joint",
        shape_penalty: Sequence[float] | None = None,
        appearance_penalty: Sequence[float] | None = None,
        mean_penalty: Sequence[float] | None = None,
        balance: Sequence[float] = (1.0, 1.0),
        prior_dof: float | None = None,
        n_iter: int = 20,
        tol: float | None = None,
        n_steps: int = 8,
        voxel_size: Sequence[float] | None = None,
        channel_axis: int | None = None,
        decimation: float = 1.0,
        device: str = "cpu",
        n_threads: int | None = None,
        memory_budget: int | None = None,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.likelihood = likelihood
        self.latents = latents
        self.shape_penalty = shape_penalty
        self.appearance_penalty = appearance_penalty
        self.mean_penalty = mean_penalty
        self.balance = balance
        self.prior_dof = prior_dof
        self.n_iter = n_iter
        self.tol = tol
        self.n_steps = n_steps
        self.voxel_size = voxel_size
        self.channel_axis = channel_axis
        self.decimation = decimation
        self.device = device
        self.n_threads = n_threads
        self.memory_budget = memory_budget
        self.random_state = random_state
        self.verbose = verbose

    # ---- fitting

    def fit(
        self,
        X: Images,  # noqa: N803
        y: object = None,
        *,
        start: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[Progress], object] | None = None,
    ) -> ShapeAppearanceModel:
        """Learn mean, modes and latents from images.

        Parameters
        ----------
        X : array of shape (N, *space), or with channels; list of images or of paths; collection
            NaN is missing. Integer images are scaled to [0, 1]; categorical images are integer
            label maps, or probabilities along `channel_axis`.
        y : ignored
        start : array of shape (N, K), optional
            Latents to start from, instead of random ones.
        checkpoint : path, optional
            Written after every iteration, and resumed from if it exists.
        callback : callable, optional
            Called with the `Progress` after every iteration.
        """
        return self.fit_at(
            self._local_sites, X, start=start, checkpoint=checkpoint, callback=callback
        )

    def fit_at(
        self,
        open_sites: OpenSites,
        X: Images,  # noqa: N803
        *,
        start: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[Progress], object] | None = None,
    ) -> ShapeAppearanceModel:
        """Do what `fit` does, with images that other processes hold (see `anamorph.cluster`).

        Parameters
        ----------
        open_sites : callable
            From opened images, settings and starting latents (N, K) or None to the sites that
            hold the images, which look at every image first.
        X, start, checkpoint, callback
            As in `fit`.
        """
        check_choice("likelihood", self.likelihood, tuple(LIKELIHOODS))
        check_choice("device", self.device, DEVICES)
        images = open_images(X, self.likelihood, self.channel_axis)
        settings = checked_settings(
            self.get_params(deep=False), images.format, len(images), images.voxel_size
        )
        seed = checked_seed(self.random_state)
        starting = checked_start(start, len(images), settings.layout.n_latents)
        with use_threads(self.n_threads), one_blas_thread:
            sites = open_sites(images, settings, starting)
            state = self._run(sites, settings, seed, checkpoint, callback)
        origin = Origin(len(images), images.affine, images.pad, state.seconds, images.suffix)
        parameters = state.parameters.beside(np)
        self._set_fitted(images.format, settings, parameters, list(state.objective), origin)
        self.latents_ = sites.latents
        return self

    def _local_sites(
        self, images: ImageCollection, settings: Settings, start: Float64Array | None
    ) -> LocalSites:
        """Return the images with room to work on them, in memory or on the GPU."""
        images.check(for_fit=True)
        n_voxels = len(images) * math.prod(settings.space)
        if chosen_device(self.device, n_voxels) == "cpu":
            cohort = Cohort(images, settings, images.identities, self.memory_budget, start)
            return LocalSites([cohort])
        plan = plan_memory(settings, len(images), self.memory_budget)
        on_device = ImagesOnDevice(images, plan.are_images_resident)
        cohort = Cohort(
            on_device,
            settings,
            images.identities,
            plan.working_bytes,
            start,
            has_room_for_sums=plan.are_sums_resident,
        )
        return LocalSites([cohort])

    def _run(
        self,
        sites: OwnSites,
        settings: Settings,
        seed: int,
        checkpoint: str | os.PathLike[str] | None,
        callback: Callable[[Progress], object] | None,
    ) -> State:
        """Iterate until `n_iter` or `tol` is reached, from the start or from a checkpoint."""
        fit = Fit(sites, settings)
        fingerprint = ""
        if checkpoint is not None:
            fingerprint = fit_fingerprint(settings, seed, sites.digest())
        if checkpoint is not None and os.path.exists(checkpoint):
            state, latents = read_checkpoint(checkpoint, fingerprint)
            state = state.beside(sites.namespace)
            sites.restore(latents)
            n_done = len(state.objective)
            logger.info("Going on from %s, after %d iterations", checkpoint, n_done)
            if n_done > self.n_iter:
                logger.warning(
                    "%s is from after iteration %d, and the fit was to end after %d: the model "
                    "is the one after %d; remove the checkpoint to begin again",
                    *(checkpoint, n_done, self.n_iter, n_done),
                )
        else:
            state = fit.start(sites.ask("moments"), seed)
        if state.turn is not None and self._is_finished(state.objective):
            sites.restore(sites.latents @ state.turn.transform.T)
        iterations = fit.iterate(state)
        while not self._is_finished(state.objective):
            state = next(iterations)
            if checkpoint is not None:
                stored = state.beside(np)
                write_checkpoint(checkpoint, fingerprint, stored, sites.latents_before_turn)
            progress = Progress(
                len(state.objective),
                self.n_iter,
                state.latents.n_images,
                state.objective,
                state.seconds,
            )
            if self.verbose:
                print(progress, flush=True)
            if callback is not None:
                callback(progress)
        return state

    def _is_finished(self, objective: Sequence[float]) -> bool:
        """Tell whether `n_iter` or `tol` is reached."""
        if len(objective) >= self.n_iter:
            return True
        if self.tol is None or len(objective) < 2:
            return False
        total = max(objective) - min(objective)
        return abs(objective[-1] - objective[-2]) <= self.tol * total

    # ---- using a fitted model

    @property
    def image_format_(self) -> ImageFormat:
        """What the images are that the model was fitted to: their grid and their channels."""
        check_is_fitted(self, "mean_")
        return self._format

    @property
    def settings_(self) -> Settings:
        """What the model was fitted with: the arguments, and the defaults where there were none."""
        check_is_fitted(self, "mean_")
        return self._generator.settings

    def transform(self, X: Images) -> Float64Array:  # noqa: N803
        """Return the most probable latents of images, (N, K)."""
        return self.encode(X).latents

    def score_samples(self, X: Images) -> Float64Array:  # noqa: N803
        """Return the log evidence of each image, by Laplace's approximation, (N,)."""
        return self.encode(X).log_evidence

    def encode(self, X: Images) -> Encoded:  # noqa: N803
        """Return the latents and the log evidence of images, and what finding them cost."""
        images = self.checked_images(X)

        def encode_part(generator: Generator, part: slice) -> Encoded:
            return encode(generator, beside(generator.parameters.mean, images.read(part))).to_host()

        parts = self._in_parts(encode_part, len(images))
        return Encoded(
            np.concatenate([part.latents for part in parts]),
            np.concatenate([part.log_evidence for part in parts]),
            np.concatenate([part.n_shootings for part in parts]),
        )

    def score(self, X: Images, y: object = None) -> float:  # noqa: N803
        """Return the mean log evidence of images."""
        return float(self.score_samples(X).mean())

    def inverse_transform(self, Z: ArrayLike, part: str = "both") -> Array:  # noqa: N803
        """Return the images that latents stand for.

        Parameters
        ----------
        Z : array of shape (N, K)
        part : {"both", "shape", "appearance"}
            What of the latents to show: "shape" warps the mean, "appearance" does not warp.

        Returns
        -------
        array of shape (N, *space), with channels where the images had them
            Expected images; for label maps probabilities, with classes last.
        """
        latents = self._checked_latents(Z)
        check_choice("part", part, PARTS)
        return self._format.to_user(self._expected_images(latents, part))

    def log_likelihood(self, X: Images, Z: ArrayLike) -> Float64Array:  # noqa: N803
        """Return ln p(f | z) of images and their latents (N, K): how well they fit, (N,)."""
        images, latents = self.checked_images(X), self._checked_latents(Z)
        if len(images) != len(latents):
            raise ValueError(
                f"Z must have a row for each of {len(images)} images, got {len(latents)}"
            )

        def evaluate(generator: Generator, part: slice) -> Float64Array:
            mean = generator.parameters.mean
            some, observed = beside(mean, latents[part]), beside(mean, images.read(part))
            displacement = generator.displacement(some)
            values = generator.log_likelihood(generator.appearance(some), displacement, observed)
            return cast(Float64Array, to_host(values))

        return np.concatenate(self._in_parts(evaluate, len(images)))

    def displacement(self, Z: ArrayLike) -> Array:  # noqa: N803
        """Return where the warps of latents (N, K) take voxels, (N, d, *space), in voxels.

        An image is the warped appearance: its value at x is that at x + displacement(x).
        """
        latents, space = self._checked_latents(Z), self._format.space
        if self._generator.settings.layout.n_shape == 0:
            return np.zeros((len(latents), len(space), *space), np.float32)

        def shoot_part(generator: Generator, part: slice) -> Array:
            here = beside(generator.parameters.mean, latents[part])
            return cast(Array, to_host(generator.displacement(here)))

        return np.concatenate(self._in_parts(shoot_part, len(latents)))

    def impute(self, X: Images) -> Array:  # noqa: N803
        """Return images with their NaN filled by what the model expects there."""
        images = self.checked_images(X)
        filled = np.empty((len(images), *self.mean_.shape), np.float32)

        def fill(generator: Generator, part: slice) -> None:
            observed = beside(generator.parameters.mean, images.read(part))
            latents = encode(generator, observed).latents
            expected = generator.expected_images(latents)
            filled[part] = to_host(np.where(np.isnan(observed), expected, observed))

        self._in_parts(fill, len(images))
        return self._format.to_user(filled)

    def sample(
        self, n_samples: int = 1, random_state: int | None = None
    ) -> tuple[Array, Float64Array]:
        """Return random images and their latents, z ~ N(0, A^-1)."""
        check_is_fitted(self, "mean_")
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer >= 1, got {n_samples!r}")
        generator = np.random.default_rng(random_state)
        latents = draw_latents(self.latent_precision_, int(n_samples), generator)
        return self.inverse_transform(latents), latents

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which holds no image and no latents of anyone."""
        check_is_fitted(self, "mean_")
        write_model(
            path,
            StoredModel(
                self.get_params(deep=False),
                self._format,
                self._generator.settings,
                self._generator.parameters,
                self.objective_,
                self.origin_,
            ),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ShapeAppearanceModel:
        """Return the model in a file."""
        stored = read_model(path)
        model = cls(**stored.arguments)
        model._set_fitted(
            stored.format, stored.settings, stored.parameters, stored.objective, stored.origin
        )
        return model

    # ---- pieces

    def _set_fitted(
        self,
        image_format: ImageFormat,
        settings: Settings,
        parameters: Parameters,
        objective: list[float],
        origin: Origin,
    ) -> None:
        self._format = image_format
        self._generator = Generator(settings, parameters)
        self._sent: Generator | None = None
        self.mean_ = parameters.mean
        self.appearance_basis_ = parameters.appearance_basis
        self.shape_basis_ = parameters.shape_basis
        self.latent_precision_ = parameters.latent_precision
        self.prior_precision_ = parameters.prior_precision(settings)
        self.noise_variance_ = 1 / parameters.noise_precision
        self.objective_ = objective
        self.n_iter_ = len(objective)
        self.origin_ = origin

    def _expected_images(self, latents: Float64Array, part: str) -> Array:
        def expect(generator: Generator, some: slice) -> Array:
            here = beside(generator.parameters.mean, latents[some])
            expected = generator.expected_images(
                here, warped=part != "appearance", coloured=part != "shape"
            )
            return cast(Array, to_host(expected))

        return np.concatenate(self._in_parts(expect, len(latents)))

    def _in_parts(self, task: Callable[[Generator, slice], Result], n_images: int) -> list[Result]:
        """Return what a task makes of each part of some images, on the device that is chosen."""
        device = chosen_device(self.device, n_images * math.prod(self._format.space))
        if device == "cuda":
            generator = self._generator_on_device()
            return [task(generator, part) for part in self._parts(n_images, on_device=True)]
        with use_threads(self.n_threads), one_blas_thread:
            return run_parallel(lambda part: task(self._generator, part), self._parts(n_images))

    def _generator_on_device(self) -> Generator:
        """Return the generator whose parameters are on the GPU: sent there once."""
        if self._sent is None:
            parameters = self._generator.parameters.beside(find_gpu())
            self._sent = Generator(self._generator.settings, parameters)
        return self._sent

    def _parts(self, n_images: int, on_device: bool = False) -> list[slice]:
        """Split images so that threads have something to share, and memory is bounded."""
        image_bytes = 4 * 32 * self.mean_.size
        budget, most = (2**32, _IMAGES_ON_DEVICE) if on_device else (2**27, _IMAGES_PER_PART)
        most = int(np.clip(budget // image_bytes, 1, most))
        return [slice(first, min(first + most, n_images)) for first in range(0, n_images, most)]

    def _checked_latents(self, Z: ArrayLike) -> Float64Array:  # noqa: N803
        check_is_fitted(self, "mean_")
        latents = np.asarray(Z, np.float64)
        n_latents = self._generator.settings.layout.n_latents
        if latents.ndim != 2 or latents.shape[1] != n_latents:
            raise ValueError(f"Z must have shape (N, {n_latents}), got {latents.shape}")
        if not np.isfinite(latents).all():
            raise ValueError("Z must be finite, got NaN or infinity")
        return latents

    def checked_images(self, X: Images) -> ImageCollection:  # noqa: N803
        """Return images as a collection to read from, or raise an error if they do not fit."""
        check_is_fitted(self, "mean_")
        if is_list_of_files(X):
            X = self.open_files(cast(Sequence[Any], X))  # noqa: N806
        expected = self._format
        images = open_images(X, expected.likelihood, self.channel_axis, expected.n_classes)
        images.format.check_like(expected, images.name(0))
        images.check(for_fit=False)
        return images

    def open_files(
        self,
        files: Sequence[Any],
        *,
        resample: bool = False,
        cache: str | os.PathLike[str] | None = None,
    ) -> FileImages:
        """Return image files as the model needs them: on its grid, with its margin and classes.

        Parameters
        ----------
        files : list of paths, or of tuples of paths
            One file per image, or one tissue map per class and image.
        resample : bool
            Whether to bring files that are on other grids onto that of the model.
        cache : path, optional
            Folder to keep decoded images in; by default a temporary one.
        """
        check_is_fitted(self, "mean_")
        expected, origin = self._format, self.origin_
        grid = Grid(expected.space, origin.affine).padded(-origin.pad)
        return FileImages(
            files,
            expected.likelihood,
            self.channel_axis,
            expected.n_classes,
            resample=resample,
            pad=origin.pad,
            onto=None if origin.affine is None else grid,
            cache=cache,
        )
