"""ShapeAppearanceModel: the estimator that people call."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.devices import Machine
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.fitting.alignment import remark_on_places
from anamorph.fitting.errors import FitError
from anamorph.fitting.guard import suspected_cause
from anamorph.fitting.placement import place_cohort
from anamorph.fitting.pyramid import plan_levels, run_levels
from anamorph.fitting.run import Checkpoints, Progress, duration, told
from anamorph.fitting.sites import LocalSites, OwnSites
from anamorph.fitting.state import State
from anamorph.fitting.validation import Validation, best_iteration
from anamorph.geometry.pose import pose_names
from anamorph.images.arrays import ImageFormat
from anamorph.images.collection import ImageCollection, Images, is_list_of_files, open_images
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.images.grid import Affine
from anamorph.latents import draw_latents
from anamorph.model.checks import check_choice, check_integer, checked_seed
from anamorph.model.encoding import Encoded
from anamorph.model.folding import encode_unfolded, find_folds, tell_of_folds
from anamorph.model.generator import Generator
from anamorph.model.hyperparameters import HYPERPARAMETERS, checked_arguments
from anamorph.model.parameters import Parameters
from anamorph.model.posterior import Posterior
from anamorph.model.predicting import Predictor
from anamorph.model.progress import NotebookBar, is_notebook, shown_in_notebook
from anamorph.model.scaled_penalties import scaled_penalties
from anamorph.model.settings import Settings, checked_start, completed_settings
from anamorph.storage.checkpoint import CheckpointFile, stored_level
from anamorph.storage.locks import locked
from anamorph.storage.meshes import Mesh, as_meshes, is_mesh
from anamorph.storage.modelfile import Origin, StoredModel, read_model, write_model
from anamorph.template_space import LABELS, TemplateSpace

logger = logging.getLogger("anamorph")

#: Opens the sites that hold images, given settings and starting latents.
OpenSites = Callable[[ImageCollection, Settings, Float64Array | None], OwnSites]

PARTS = ("both", "shape", "appearance")


class _Described(Protocol):
    """Images, or sites, that say what a fitted model notes of them."""

    @property
    def format(self) -> ImageFormat: ...
    @property
    def affine(self) -> Affine | None: ...
    @property
    def pad(self) -> int: ...
    @property
    def suffix(self) -> str | None: ...


def _told_of_checkpoint(path: str | os.PathLike[str] | None) -> str:
    """Return what an error says of the checkpoint, which holds the last state that was whole."""
    if path is None or not os.path.exists(path):
        return ""
    return f" ({os.fspath(path)} keeps the last iteration before)"


def _refuse_foreign(X: object) -> None:  # noqa: N803
    """Raise an ImageError for arrays that can never be images, in the words of scikit-learn."""
    if issparse(X):
        raise ImageError("sparse data is not supported: X must be dense images, (N, *space)")
    if isinstance(X, np.ndarray) and np.iscomplexobj(X):
        raise ImageError("Complex data not supported: X must hold real numbers, e.g. magnitudes")


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(np.array_equal(one, other))
    except (TypeError, ValueError):
        return one is other


def _storable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without a source of random numbers, which no file holds."""
    seed = arguments["random_state"]
    return arguments if isinstance(seed, int | np.integer) else arguments | {"random_state": None}


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
    likelihood : {"gaussian", "bernoulli", "categorical", "poisson"}
        Of images with noise, binary images (or probabilities), label maps (or probabilities
        of classes), and counts; or any other in `anamorph.likelihoods`.
    latents : {"joint", "separate", "shape", "appearance"}
        Whether each latent controls shape and appearance, one of the two, or the model has only
        one of them.
    shape_penalty : 5 numbers, optional
        Weights of the size, stretching, bending, elasticity and divergence of velocities; by
        default those of the likelihood (`Likelihood.default_penalties`), as for other penalties. Of
        Gaussian images they are scaled: by the size of voxels, and those of appearance and mean by
        the squared gradient of the mean image, so that units do not matter.
    appearance_penalty : 3 numbers, optional
        Weights of the size, stretching and bending of modes of appearance.
    mean_penalty : 3 numbers, optional
        The same of the mean, per image.
    balance : pair of float
        lambda_1 and lambda_2: weights of the penalties on bases and latents, and on what they
        reconstruct.
    prior_dof : float, optional
        nu_0, the weight (in images) of the prior that latents are white; K by default.
    align : {"none", "translation", "rigid", "similarity", "affine"}
        What a pose of each image may do to bring it onto the template; "none": images must be
        roughly aligned to begin with.
    residual : {"none", "after", "inside"}
        When warps beyond the modes of shape are learnt, one for each image: not at all, at the end
        of the fit, or in every iteration from the 11th, which makes the template sharper and takes
        longer.
    n_iter : int
        Number of EM iterations.
    levels : int or "auto"
        Number of grids. With more than one, the fit starts on a coarse grid, and does only a
        quarter of its iterations (35 % in 3D) on that of the images, which saves more than half of
        the time of 20 iterations. "auto" takes up to three. 1 by default, as in the paper.
    tol : float, optional
        Stop when an iteration raises the objective by less than this share of its total rise.
    n_steps : int
        Steps of geodesic shooting.
    voxel_size : 2 or 3 numbers, optional
        Size of a voxel along each axis; by default that of the files, or 1.
    channel_axis : int, optional
        Axis of the stacked images that holds channels or classes, e.g. -1.
    scale : {"none", "robust", "zscore", "match"} or float, optional
        How to scale intensities, each image by itself: "robust" divides by its typical intensity,
        "zscore" makes mean 0 and standard deviation 1 of its foreground, "match" brings its
        quantiles to the average of all images, a number divides. By default floats stay, and
        integers are divided by what stands for 1 among them.
    decimation : float or "auto"
        Weight of the log-likelihood, below 1 where neighbouring voxels are not independent.
    intensity : {"global", "per image", "smooth"}
        Whether intensities are what the images say, or gain and offset of each image do not
        matter, or neither does a smooth field that multiplies it, such as that of a coil.
    device : {"cpu", "cuda", "auto"}
        Where to compute; "auto" is the GPU where there is one and the work is large enough to
        pay. Sums on a GPU are added up in no fixed order: results differ in their last digits
        from run to run.
    n_threads : int, optional
        As many as there are processors by default, or with -1.
    memory_budget : int, optional
        Bytes for the images that a fit or a prediction works on at a time and what it keeps of
        them, besides the model and its results; 2 GiB by default. On a GPU, the most bytes to
        use there in all; by default what is free.
    random_state : int, RandomState or Generator, optional
        Seed of the starting latents, or what draws it; 0 by default.
    verbose : bool
        Print the objective after every iteration, and how long the rest will take; in notebooks a
        progress bar shows it, and that of encoding, reconstructing and imputing images.

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
    poses_ : array of shape (N, P)
        Poses of these images, see `pose_names`; P is 0 without `align`. Not stored with the model.
    residuals_ : array of shape (N, d, *space) or None
        Residual velocities of these images, with `residual`; not stored with the model.
    latent_precision_, prior_precision_ : arrays of shape (K, K)
        A, and P = lambda_1 A + lambda_2 C.
    noise_variance_ : array of shape (C,)
        1 where the likelihood has none.
    objective_ : list of float
        What the fit raises, after each iteration: an approximate log evidence.
    validation_ : list of float
        Mean log evidence of held-out images after each iteration, if there were any.
    best_iteration_ : int or None
        The iteration, from 1, at which that is best.
    effective_voxels_ : float or None
        How many voxels with independent residuals an image is worth.
    n_iter_ : int
        How many iterations were done.
    n_features_in_ : int
        How many numbers an image has.
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
        align: str = "none",
        residual: str = "none",
        n_iter: int = 20,
        levels: int | str = 1,
        tol: float | None = None,
        n_steps: int = 8,
        voxel_size: Sequence[float] | None = None,
        channel_axis: int | None = None,
        scale: str | float | None = None,
        decimation: float | str = "auto",
        intensity: str = "global",
        device: str = "cpu",
        n_threads: int | None = None,
        memory_budget: int | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
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
        self.align = align
        self.residual = residual
        self.n_iter = n_iter
        self.levels = levels
        self.tol = tol
        self.n_steps = n_steps
        self.voxel_size = voxel_size
        self.channel_axis = channel_axis
        self.scale = scale
        self.decimation = decimation
        self.intensity = intensity
        self.device = device
        self.n_threads = n_threads
        self.memory_budget = memory_budget
        self.random_state = random_state
        self.verbose = verbose

    @property
    def machine(self) -> Machine:
        """Where the model works: its device, threads and memory."""
        n_threads = None if self.n_threads == -1 else self.n_threads
        return Machine(self.device, n_threads, self.memory_budget)

    # ---- what scikit-learn asks for

    def set_params(self, **params: Any) -> ShapeAppearanceModel:
        """Set parameters, and warn where a fitted model stays as it is until it is fitted again."""
        is_fitted = hasattr(self, "mean_")
        before = self.get_params(deep=False) if is_fitted else {}
        super().set_params(**params)
        fixed = [
            name
            for name in params
            if is_fitted
            and HYPERPARAMETERS[name].is_fixed_by_fit
            and not _is_same(params[name], before[name])
        ]
        if fixed:
            warnings.warn(
                f"{', '.join(fixed)} cannot change in a fitted model: it stays as it was fitted "
                "until fit is called again",
                UserWarning,
                stacklevel=2,
            )
        return self

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the names of the latents, z1 to zK, as in tables.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        array of str, of shape (K,)
        """
        n_latents = self.settings_.layout.n_latents
        return np.array([f"z{k}" for k in range(1, n_latents + 1)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Say that X are images, which may lack values, and that latents are float64."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # ---- fitting

    def fit(
        self,
        X: Images,  # noqa: N803
        y: object = None,
        *,
        start: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[Progress], object] | None = None,
        validation: Images | None = None,
    ) -> ShapeAppearanceModel:
        """Learn mean, modes and latents from images.

        Parameters
        ----------
        X : array of shape (N, *space), or with channels; list of images or of paths; collection
            NaN is missing, and so is what the mask of a `numpy.ma` array hides. Integer images
            are scaled to [0, 1] by what they hold, but counts are not; categorical images are
            integer label maps, or probabilities along `channel_axis`.
        y : ignored
        start : array of shape (N, K), optional
            Latents to start from, instead of random ones.
        checkpoint : path, optional
            Written after every iteration, and resumed from if it exists.
        callback : callable, optional
            Called with the `Progress` after every iteration.
        validation : images, optional
            Images that take no part in the fit, and whose evidence is found after every iteration
            (`validation_`): they are encoded each time, which takes about as long as three
            iterations with as many images.

        Returns
        -------
        ShapeAppearanceModel
            This model, fitted.
        """
        is_checked = False

        def open_sites(
            images: ImageCollection, settings: Settings, starting: Float64Array | None
        ) -> LocalSites:
            nonlocal is_checked
            if not is_checked:  # once, for all grids
                images.check(for_fit=True)
            cohort = place_cohort(self.machine, images, settings, images.identities, starting)
            may_remark = not is_checked and not settings.has_poses
            if may_remark and (remark := remark_on_places(cohort.images, settings)):
                logger.warning("%s", remark)
            is_checked = True
            return LocalSites([cohort])

        return self.fit_at(
            open_sites,
            X,
            start=start,
            checkpoint=checkpoint,
            callback=callback,
            validation=validation,
        )

    def fit_at(
        self,
        open_sites: OpenSites,
        X: Images,  # noqa: N803
        *,
        start: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[Progress], object] | None = None,
        validation: Images | None = None,
    ) -> ShapeAppearanceModel:
        """Do what `fit` does, with images that other processes hold (see `anamorph.cluster`).

        Parameters
        ----------
        open_sites : callable
            From opened images, settings and starting latents (N, K) or None to the sites that
            hold the images, which check every image first. Called for every grid: sites average
            images that are on a finer grid than that of the settings.
        X, start, checkpoint, callback, validation
            As in `fit`.

        Returns
        -------
        ShapeAppearanceModel
            This model, fitted.
        """
        arguments = checked_arguments(self.get_params(deep=False))
        _refuse_foreign(X)
        images = open_images(X, self.likelihood, self.channel_axis, scale=arguments["scale"])
        settings = completed_settings(arguments, images.format, len(images), images.voxel_size)
        settings = scaled_penalties(settings, arguments, images)
        seed = checked_seed(arguments["random_state"])
        starting = checked_start(start, len(images), settings.layout.n_latents)
        watch = None
        if validation is not None:
            watch = Validation(self._open_like(images, validation), settings, self.machine)
        levels = plan_levels(settings, arguments["levels"], arguments["n_iter"])

        def open_checkpoints(sites: OwnSites, here: Settings) -> Checkpoints | None:
            kept = None
            if checkpoint is not None:
                kept = CheckpointFile(checkpoint, sites, here, seed, len(images), len(levels))
            return kept if watch is None else watch.around(kept, here)

        held = nullcontext() if checkpoint is None else locked(Path(checkpoint))
        with held, self.machine.threads():
            try:
                sites, state = run_levels(
                    levels,
                    stored_level(checkpoint, len(levels)),
                    seed,
                    arguments["tol"],
                    open_sites=lambda here: open_sites(images, here, starting),
                    open_checkpoints=open_checkpoints,
                    tell=self._tell(callback),
                )
            except FitError as error:
                raise FitError(
                    f"{error}; suspected: {suspected_cause(images, settings)}"
                    + _told_of_checkpoint(checkpoint)
                ) from None
        self._take(state.beside(np), settings, images, () if watch is None else watch.evidence)
        self.latents_, self.poses_, self.residuals_ = sites.latents, sites.poses, sites.residuals
        tell_of_folds(find_folds(self.predictor_, self.latents_, self.residuals_))
        return self

    def _tell(self, callback: Callable[[Progress], object] | None) -> Callable[[Progress], object]:
        """Return what is called after every iteration: a bar in notebooks, lines elsewhere."""
        if not (self.verbose and is_notebook()):
            return told(self.verbose, callback)
        bar, tell = NotebookBar("Fitting"), told(False, callback)

        def show(progress: Progress) -> None:
            left = f"about {duration(progress.seconds_left)} left"
            facts = f"objective {progress.objective[-1]:.8g}, {left}"
            bar.show(progress.n_done, progress.n_iter, facts)
            tell(progress)

        return show

    def _open_like(self, images: ImageCollection, others: Images) -> ImageCollection:
        """Return other images as a collection of the same format and grid."""
        _refuse_foreign(others)
        if is_list_of_files(others):
            origin = Origin(len(images), images.affine, images.pad)
            opened: ImageCollection = FileImages(
                cast(Sequence[Any], others),
                self.likelihood,
                self.channel_axis,
                like=images.format,
                pad=origin.pad,
                onto=None if origin.affine is None else origin.inner_grid(images.format.space),
            )
        else:
            opened = open_images(others, self.likelihood, self.channel_axis, like=images.format)
        opened.format.check_like(images.format, opened.name(0))
        opened.check(for_fit=False)
        return opened

    def _take(
        self,
        state: State,
        settings: Settings,
        images: _Described,
        validation: Sequence[float] = (),
    ) -> None:
        """Become the model at the end of a fit."""
        origin = Origin(
            state.latents.n_images,
            images.affine,
            images.pad,
            state.seconds,
            images.suffix,
            getattr(images, "typical", None),  # which sites do not tell
            tuple(validation),
            state.level_begins,
        )
        objective = list(state.objective)
        settings = replace(
            settings,
            prediction_weight=state.prediction_weight,
            independent_share=state.independent_share,
        )
        self._set_fitted(images.format, settings, state.parameters, objective, origin)

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
        return self._settings

    @property
    def validation_(self) -> list[float]:
        """Mean log evidence of held-out images after each iteration; empty without such images."""
        check_is_fitted(self, "mean_")
        return list(self.origin_.validation)

    @property
    def best_iteration_(self) -> int | None:
        """The iteration, from 1, at which that is best; None without held-out images."""
        return best_iteration(self.validation_)

    @property
    def effective_voxels_(self) -> float | None:
        """How many voxels with independent residuals an image is worth, at most all of them.

        It is their number over the sum of squared autocorrelations of Pearson residuals, estimated
        at the end of a fit with ``decimation="auto"``; None otherwise.
        """
        share = self.settings_.independent_share
        return None if share is None else share * math.prod(self.settings_.space)

    @property
    def generator_(self) -> Generator:
        """What the model says of images (N, C, *space) with given latents (N, K).

        The prior of latents is the one that `sample` draws from, N(0, A^-1).
        """
        check_is_fitted(self, "mean_")
        if self.decimation != self._decimation:
            raise ValueError(
                f"decimation was {self._decimation!r} when the model was fitted, got "
                f"{self.decimation!r}: fit again, or set it back"
            )
        return self._generator

    @overload
    def transform(self, X: Images, *, return_cov: Literal[False] = False) -> Float64Array: ...  # noqa: N803

    @overload
    def transform(
        self,
        X: Images,  # noqa: N803
        *,
        return_cov: Literal[True, "laplace"],
    ) -> tuple[Float64Array, Float64Array]: ...

    def transform(
        self,
        X: Images,  # noqa: N803
        *,
        return_cov: bool | str = False,
    ) -> Float64Array | tuple[Float64Array, Float64Array]:
        """Return the most probable latents of images, (N, K).

        Parameters
        ----------
        X : images
        return_cov : bool or "laplace"
            Whether to return how well an image tells its latents: their mean in place of the most
            probable ones, and their covariances, (N, K, K), fitted to the posterior where its mass
            is, which takes some 8K shootings of an image. "laplace" returns the most probable ones
            and the covariances of Laplace's approximation, at once and too small.
        """
        if return_cov is False:
            return self.encode(X).latents
        if return_cov is not True and return_cov != "laplace":
            raise ValueError(f"return_cov must be True, False or 'laplace', got {return_cov!r}")
        images = self.checked_images(X)
        posterior = self.predictor_.posterior(images, fitted=return_cov is True)
        return posterior.latents, posterior.covariance

    def score_samples(self, X: Images) -> Float64Array:  # noqa: N803
        """Return the log evidence of each image, by Laplace's approximation, (N,)."""
        return self.encode(X).log_evidence

    def encode(
        self,
        X: Images,  # noqa: N803
        *,
        residual: bool = False,
        exact_curvature: bool = True,
    ) -> Encoded:
        """Return the latents and the log evidence of images, and what finding them cost.

        Parameters
        ----------
        X : images
        residual : bool
            Whether to find residual warps too, given the latents; False by default. The model must
            have been fitted with ``residual="after"`` or ``"inside"``.
        exact_curvature : bool
            Whether steps and evidence use the exact effect of the latents, found by K more
            shootings, as is the default, or an approximate one.

        Returns
        -------
        Encoded
        """
        if residual:
            self._check_residual()
        predictor, images = self.predictor_, self.checked_images(X)
        with shown_in_notebook(self.verbose, "Encoding images"):
            encoded = predictor.encode(images, exact_curvature=exact_curvature)
        encoded, folds = encode_unfolded(
            predictor, images, encoded, exact_curvature=exact_curvature
        )
        tell_of_folds(folds)
        if not residual:
            return encoded
        with shown_in_notebook(self.verbose, "Finding residual warps"):
            found = predictor.residuals(images, encoded.latents, encoded.poses)
        tell_of_folds(find_folds(predictor, encoded.latents, found))
        return replace(encoded, residuals=found)

    def _check_residual(self) -> None:
        """Raise a ValueError unless the model knows residual warps."""
        if not self.settings_.has_residuals:
            raise ValueError(
                "the model was fitted without residual warps: fit it with residual='after' or "
                "'inside'"
            )

    @property
    def pose_names_(self) -> tuple[str, ...]:
        """What the coordinates of a pose are: shifts in mm, turns in radian, logarithms of zooms.

        See `anamorph.geometry.pose`.
        """
        return pose_names(self.settings_.align, self.settings_.n_dims)

    def poses(self, X: Images) -> Float64Array:  # noqa: N803
        """Return the most probable poses of images, (N, P): see `pose_names_`."""
        with shown_in_notebook(self.verbose, "Aligning images"):
            return self.predictor_.poses(self.checked_images(X))

    def reconstruct(self, X: Images) -> Array:  # noqa: N803
        """Return images as the model explains them, in their own pose and on their own grid.

        Parameters
        ----------
        X : images
            NaN is missing.

        Returns
        -------
        array of the shape of X
            Expected images, intensities in the units of X; for label maps probabilities, with
            classes last.
        """
        return self.image_format_.to_user(self.reconstructed_images(X))

    def reconstructed_images(self, X: Images) -> Array:  # noqa: N803
        """Return what `reconstruct` does, always with channels first: (N, C, *space)."""
        images = self.checked_images(X)
        with shown_in_notebook(self.verbose, "Reconstructing images"):
            explained = self.predictor_.reconstruct(images)
        if self.image_format_.scale is not None:
            for n in range(len(images)):
                explained[n] = images.unscaled(n, explained[n])
        return explained

    def score(self, X: Images, y: object = None) -> float:  # noqa: N803
        """Return the mean log evidence of images."""
        return float(self.score_samples(X).mean())

    def inverse_transform(
        self,
        Z: ArrayLike,  # noqa: N803
        part: str = "both",
        *,
        covariance: ArrayLike | None = None,
        poses: ArrayLike | None = None,
        residuals: ArrayLike | None = None,
    ) -> Array:
        """Return the images that latents stand for.

        Parameters
        ----------
        Z : array of shape (N, K)
        part : {"both", "shape", "appearance"}
            What of the latents to show: "shape" warps the mean, "appearance" does not warp.
        covariance : array of shape (N, K, K), optional
            How uncertain the latents are, from ``transform(X, return_cov=True)``: the images are
            then averages over all latents that are likely.
        poses : array of shape (N, P), optional
            Of the images, from `poses`; by default they are in the pose of the template.
        residuals : array of shape (N, d, *space), optional
            Residual velocities, from ``encode(X, residual=True)``; none by default.

        Returns
        -------
        array of shape (N, *space), with channels where the images had them
            Expected images; for label maps probabilities, with classes last.
        """
        if covariance is None:
            return self.image_format_.to_user(self.expected_images(Z, part, poses, residuals))
        if part != "both":
            raise ValueError(f"part must be 'both' where a covariance is given, got {part!r}")
        if poses is not None or residuals is not None:
            raise ValueError(
                "poses and residuals cannot be given with a covariance: leave one of them out"
            )
        posterior = self._checked_posterior(Z, covariance)
        return self.image_format_.to_user(self.predictor_.posterior_images(posterior))

    def expected_images(
        self,
        Z: ArrayLike,  # noqa: N803
        part: str = "both",
        poses: ArrayLike | None = None,
        residuals: ArrayLike | None = None,
    ) -> Array:
        """Return what `inverse_transform` does, always with channels first: (N, C, *space)."""
        latents = self._checked_latents(Z)
        placed = self._checked_poses(poses, len(latents))
        bent = self._checked_residuals(residuals, len(latents))
        check_choice("part", part, PARTS)
        with shown_in_notebook(self.verbose, "Reconstructing images"):
            return self.predictor_.expected_images(
                latents,
                warped=part != "appearance",
                coloured=part != "shape",
                poses=placed,
                residuals=bent,
            )

    def log_likelihood(
        self,
        X: Images,  # noqa: N803
        Z: ArrayLike,  # noqa: N803
        poses: ArrayLike | None = None,
    ) -> Float64Array:
        """Return ln p(f | z) of images and their latents (N, K): how well they fit, (N,).

        With `align` it is that at given poses (N, P), or at the most probable ones.
        """
        images, latents = self.checked_images(X), self._checked_latents(Z)
        if len(images) != len(latents):
            raise ValueError(
                f"Z must have a row for each of {len(images)} images, got {len(latents)}"
            )
        placed = self._checked_poses(poses, len(latents))
        return self.predictor_.log_likelihood(images, latents, placed)

    def displacement(
        self,
        Z: ArrayLike,  # noqa: N803
        poses: ArrayLike | None = None,
        *,
        inverse: bool = False,
        residuals: ArrayLike | None = None,
    ) -> Array:
        """Return where the warps of latents (N, K) take voxels, (N, d, *space), in voxels.

        An image is the warped appearance: its value at x is that at x + displacement(x). With poses
        (N, P), x is a voxel of the image, and x + displacement(x) its place in the template.

        Parameters
        ----------
        Z : array of shape (N, K)
        poses : array of shape (N, P), optional
            None by default: images lie as the template does.
        inverse : bool
            Whether to return the displacement of the inverse, which takes the template to images;
            False by default.
        residuals : array of shape (N, d, *space), optional
            Residual velocities, from ``encode(X, residual=True)``; none by default.
        """
        latents = self._checked_latents(Z)
        placed = self._checked_poses(poses, len(latents))
        bent = self._checked_residuals(residuals, len(latents))
        return self.predictor_.displacement(latents, placed, inverse=inverse, residuals=bent)

    # ---- the space of the template

    def to_template(
        self,
        X: Images | Mesh | Sequence[Mesh],  # noqa: N803
        z: ArrayLike | None = None,
        *,
        kind: str | None = None,
        interpolation: str = "linear",
        modulate: bool = False,
        fwhm: float = 0.0,
        poses: ArrayLike | None = None,
        residuals: ArrayLike | None = None,
    ) -> Any:
        """Return images, label maps, points or meshes in the space of the template.

        Parameters
        ----------
        X : images, or meshes
            One for each row of `z`. `Mesh` holds points in the world, and perhaps triangles.
        z : array of shape (N, K), optional
            Latents of the images; by default they are found from X, which must then be images of
            the kind that the model was fitted to.
        kind : {"intensities", "labels"}, optional
            What X are, if not images as the model was fitted to: other intensities, or label maps,
            on the same grid (files may be on others).
        interpolation : {"linear", "nearest"}
            Linear by default, which for label maps gives the most probable label.
        modulate : bool
            Whether to keep amounts: values are multiplied by the change of volume, and the sum
            stays the same. False by default.
        fwhm : float
            Width of a Gaussian to smooth with, in mm (voxels without affine); 0, none, by default.
        poses : array of shape (N, P), optional
            Of the images; needed with `z` if the model was fitted with `align`.
        residuals : array of shape (N, d, *space), optional
            Residual velocities of the images. Without `z` they are found where the model knows
            residual warps; with `z`, none by default.

        Returns
        -------
        array of shape (N, ...), or list of Mesh
            In the layout of `inverse_transform`; label maps as integers.
        """
        if is_mesh(X):
            latents = self._latents_of_rows(z)
            placed = self._poses_of_rows(poses, len(latents))
            bent = self._checked_residuals(residuals, len(latents))
            return self.template_space_.meshes_to(as_meshes(X), latents, placed, bent)
        images = self._images_of_kind(X, kind, needs_latents=z is None)
        if z is None:
            encoded = self.encode(images, residual=self.settings_.has_residuals)
            latents, placed, bent = encoded.latents, encoded.poses, encoded.residuals
        else:
            latents = self._latents_of_rows(z)
            placed = self._poses_of_rows(poses, len(latents))
            bent = self._checked_residuals(residuals, len(latents))
        brought = self.template_space_.images_to(
            *(images, latents),
            interpolation=interpolation,
            modulate=modulate,
            fwhm=fwhm,
            poses=placed,
            residuals=bent,
        )
        return self._in_layout_of(images, kind, brought)

    def from_template(
        self,
        X: Images | Mesh | Sequence[Mesh],  # noqa: N803
        z: ArrayLike,
        *,
        kind: str | None = None,
        interpolation: str = "linear",
        poses: ArrayLike | None = None,
        residuals: ArrayLike | None = None,
    ) -> Any:
        """Return images, label maps, points or meshes of the template in the spaces of images.

        Parameters
        ----------
        X : images, or meshes
            In the space of the template: one for all, or one for each row of `z`.
        z : array of shape (N, K)
            Latents of the images.
        kind, interpolation, poses, residuals
            As for `to_template`.

        Returns
        -------
        array of shape (N, ...), or list of Mesh
        """
        latents = self._latents_of_rows(z)
        placed = self._poses_of_rows(poses, len(latents))
        bent = self._checked_residuals(residuals, len(latents))
        if is_mesh(X):
            return self.template_space_.meshes_from(as_meshes(X), latents, placed, bent)
        images = self._images_of_kind(X, kind)
        brought = self.template_space_.images_from(
            images, latents, interpolation=interpolation, poses=placed, residuals=bent
        )
        return self._in_layout_of(images, kind, brought)

    def jacobians(
        self,
        z: ArrayLike,
        *,
        log: bool = False,
        fwhm: float = 0.0,
        residuals: ArrayLike | None = None,
    ) -> Array:
        """Return how much larger images are than the template, everywhere in it, (N, *space).

        These are the Jacobian determinants of the warps from the template to images: 2 where an
        image is twice as large.

        Parameters
        ----------
        z : array of shape (N, K)
            Latents of the images.
        log : bool
            Whether to return logarithms; False by default.
        fwhm : float
            Width of a Gaussian to smooth with, in mm (voxels without affine); 0, none, by default.
        residuals : array of shape (N, d, *space), optional
            Residual velocities of the images; none by default.
        """
        latents = self._latents_of_rows(z)
        bent = self._checked_residuals(residuals, len(latents))
        space = self.template_space_
        return space.volume_changes(latents, log=log, fwhm=fwhm, residuals=bent)[:, 0]

    def surface(self, z: ArrayLike, label: int | None = None, level: float | None = None) -> Mesh:
        """Return the closed surface of what an image with latents z shows, as triangles.

        Parameters
        ----------
        z : array of shape (K,)
        label : int, optional
            Of label maps: the surface is where this label stops being the most probable. By default
            all labels but the first.
        level : float, optional
            Of other images: the surface is where the first channel has this value; by default 0.5,
            which intensities must be given.

        Returns
        -------
        Mesh
            In mm, or voxels without affine.
        """
        return self.template_space_.surface(self._latents_of_rows(z)[:1], label, level)

    @property
    def template_space_(self) -> TemplateSpace:
        """The space of the template: what brings images, points and meshes there and back."""
        return TemplateSpace(self.predictor_, self.image_format_, self.origin_)

    def _latents_of_rows(self, z: ArrayLike | None) -> Float64Array:
        if z is None:
            raise ValueError("z must be given: the latents of the images that these belong to")
        return self._checked_latents(np.atleast_2d(np.asarray(z, np.float64)))

    def _poses_of_rows(self, poses: ArrayLike | None, n_images: int) -> Float64Array | None:
        """Return poses (N, P), which must be given where the model has some."""
        if poses is None and self.settings_.has_poses:
            raise ValueError(
                "poses must be given with z: the model was fitted with align="
                f"{self.settings_.align!r}, and encode(X).poses are those of images"
            )
        given = None if poses is None else np.atleast_2d(np.asarray(poses, np.float64))
        return self._checked_poses(given, n_images)

    def _images_of_kind(
        self,
        X: Any,  # noqa: N803
        kind: str | None,
        *,
        needs_latents: bool = False,
    ) -> ImageCollection:
        if kind is None:
            return self.checked_images(X)
        if needs_latents:
            raise ValueError(f"z must be given with kind={kind!r}: the latents of the images")
        return self.template_space_.open(X, kind)

    def _in_layout_of(self, images: ImageCollection, kind: str | None, brought: Array) -> Array:
        """Return images (N, C, *space) as images of their kind are given by users."""
        if kind == LABELS:
            return images.format.to_labels(brought.argmax(axis=1))
        return images.format.to_user(brought)

    @overload
    def impute(self, X: Images, *, return_std: Literal[False] = False) -> Array: ...  # noqa: N803

    @overload
    def impute(self, X: Images, *, return_std: Literal[True]) -> tuple[Array, Array]: ...  # noqa: N803

    def impute(
        self,
        X: Images,  # noqa: N803
        *,
        return_std: bool = False,
    ) -> Array | tuple[Array, Array]:
        """Return images with their NaN filled by what the model expects there.

        Parameters
        ----------
        X : images
            NaN is missing.
        return_std : bool
            Whether to return also the standard deviation of each voxel that was filled in, noise
            included; it is 0 where images were observed.
        """
        images, deviations = (self.image_format_.to_user(some) for some in self.imputed_images(X))
        return (images, deviations) if return_std else images

    def imputed_images(self, X: Images) -> tuple[Array, Array]:  # noqa: N803
        """Return the images and deviations of `impute`, always with channels first."""
        images = self.checked_images(X)
        with shown_in_notebook(self.verbose, "Imputing images"):
            imputed, deviations = self.imputer_.impute(images)
        if self.image_format_.scale is not None:  # what was observed comes back as it was
            for n in range(len(images)):
                above = images.unscaled(n, imputed[n] + deviations[n])
                imputed[n] = images.unscaled(n, imputed[n])
                deviations[n] = above - imputed[n]
        return imputed, deviations

    def sample_posterior(
        self,
        X: Images,  # noqa: N803
        n_samples: int = 1,
        random_state: int | None = None,
    ) -> tuple[Array, Float64Array]:
        """Return random images and latents that images, perhaps with missing voxels, may have.

        Parameters
        ----------
        X : images
            NaN is missing.
        n_samples : int
            For each image; 1 by default.
        random_state : int, optional
            Seed; a different one each time by default.

        Returns
        -------
        images : array of shape (n_samples * N, ...)
            Expected images, without noise: all first samples, then all second ones, and so on.
        latents : array of shape (n_samples * N, K)
        """
        check_integer("n_samples", n_samples, 1)
        posterior = self.imputer_.posterior(self.checked_images(X), exact_curvature=False)
        factor = np.linalg.cholesky(posterior.covariance)
        shape = (n_samples, *posterior.latents.shape, 1)
        noise = np.random.default_rng(random_state).standard_normal(shape)
        latents = (posterior.latents + (factor @ noise)[..., 0]).reshape(-1, shape[2])
        return self.inverse_transform(latents), latents

    def sample(
        self, n_samples: int = 1, random_state: int | None = None, *, noise: bool = False
    ) -> tuple[Array, Float64Array]:
        """Return random images and their latents, z ~ N(0, A^-1).

        Parameters
        ----------
        n_samples : int
            1 by default.
        random_state : int, optional
            Seed; a different one each time by default.
        noise : bool
            Whether to draw each voxel from the likelihood. By default images are those that the
            latents stand for, as `inverse_transform` returns them.
        """
        check_is_fitted(self, "mean_")
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer >= 1, got {n_samples!r}")
        generator = np.random.default_rng(random_state)
        latents = draw_latents(self.latent_precision_, int(n_samples), generator)
        if not noise:
            return self.inverse_transform(latents), latents
        expected = self.predictor_.expected_images(latents)
        drawn = self.settings_.likelihood.draw(expected, self.noise_variance_, generator)
        return self._format.to_user(drawn), latents

    def explore(self, X: Images | None = None, **options: Any) -> Any:  # noqa: N803
        """Return a page in which people move latents and see images, which notebooks show.

        Parameters
        ----------
        X : images, optional
            Images to compare with their reconstructions; none by default.
        **options
            Latents, names, covariates, title and max_megabytes, as for
            `anamorph.explorer.write_explorer`.

        Returns
        -------
        anamorph.explorer.Explorer
            Its method ``save(path)`` writes the page to a file.
        """
        # Pictures stand on floors above this one, and are looked for when somebody asks for them.
        return import_module("anamorph.explorer").explore(self, X, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which holds no image and no latents of anyone."""
        check_is_fitted(self, "mean_")
        write_model(
            path,
            StoredModel(
                _storable(self.get_params(deep=False)),
                self._format,
                self._settings,
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
        self._settings = settings
        self._decimation = self.decimation
        self._generator = Generator(settings.for_new_images, parameters)
        self.mean_ = parameters.mean
        self.appearance_basis_ = parameters.appearance_basis
        self.shape_basis_ = parameters.shape_basis
        self.latent_precision_ = parameters.latent_precision
        self.prior_precision_ = parameters.prior_precision(settings)
        self.noise_variance_ = 1 / parameters.noise_precision
        self.objective_ = objective
        self.n_iter_ = len(objective)
        self.origin_ = origin
        n_channels = 1 if image_format.channel_axis is None else image_format.n_channels
        self.n_features_in_ = n_channels * math.prod(image_format.space)

    @property
    def predictor_(self) -> Predictor:
        """What encodes and draws images, where the model works."""
        return Predictor(self.generator_, self.machine)

    @property
    def imputer_(self) -> Predictor:
        """What predicts hidden voxels, as sure of others as it should be."""
        generator = replace(self.generator_, settings=self._settings.for_prediction)
        return Predictor(generator, self.machine)

    def _checked_posterior(self, Z: ArrayLike, covariance: ArrayLike) -> Posterior:  # noqa: N803
        latents, given = self._checked_latents(Z), np.asarray(covariance, np.float64)
        shape = (*latents.shape, latents.shape[1])
        if given.shape != shape:
            raise ValueError(f"covariance must have shape {shape}, got {given.shape}")
        return Posterior(latents, given)

    def _checked_poses(self, poses: ArrayLike | None, n_images: int) -> Float64Array | None:
        if poses is None:
            return None
        given, shape = np.asarray(poses, np.float64), (n_images, len(self.pose_names_))
        if not self.settings_.has_poses:
            raise ValueError("poses were given, and the model has none: fit it with align=")
        if given.shape != shape or not np.isfinite(given).all():
            raise ValueError(f"poses must be finite and of shape {shape}, got {given.shape}")
        return given

    def _checked_residuals(self, residuals: ArrayLike | None, n_images: int) -> Float32Array | None:
        if residuals is None:
            return None
        self._check_residual()
        given = np.asarray(residuals, np.float32)
        shape = (n_images, self.settings_.n_dims, *self.settings_.space)
        if given.shape != shape:
            raise ValueError(f"residuals must have shape {shape}, got {given.shape}")
        return given

    def _checked_latents(self, Z: ArrayLike) -> Float64Array:  # noqa: N803
        latents = np.asarray(Z, np.float64)
        n_latents = self.settings_.layout.n_latents
        if latents.ndim != 2 or latents.shape[1] != n_latents:
            raise ValueError(f"Z must have shape (N, {n_latents}), got {latents.shape}")
        if not np.isfinite(latents).all():
            raise ValueError("Z must be finite, got NaN or infinity")
        return latents

    def checked_images(self, X: Images) -> ImageCollection:  # noqa: N803
        """Return images as a collection to read from, or raise an error if they do not fit."""
        expected = self.image_format_
        _refuse_foreign(X)
        if is_list_of_files(X):
            images: ImageCollection = self.open_files(cast(Sequence[Any], X))
        else:
            images = open_images(X, expected.likelihood, self.channel_axis, like=expected)
        images.format.check_like(expected, images.name(0))
        images.check(for_fit=False, usual=self.origin_.typical)
        return images

    def open_files(
        self,
        files: Sequence[Any],
        *,
        resample: bool | None = None,
        cache: str | os.PathLike[str] | None = None,
        missing_value: float | None = None,
        mask: str | os.PathLike[str] | Sequence[Any] | None = None,
    ) -> FileImages:
        """Return image files as the model needs them: on its grid, with its margin and classes.

        Parameters
        ----------
        files : list of paths, or of tuples of paths
            One file per image, or one tissue map per class and image.
        resample : bool, optional
            Whether to bring files that are on other grids onto that of the model; by default they
            are if their headers say where voxels are.
        cache : path, optional
            Folder to keep decoded images in; by default a temporary one.
        missing_value : float, optional
            Value in the files that stands for missing; by default as when the model was fitted.
        mask : path, or list of paths, optional
            An image for all, or one for each, which is 0 where voxels are missing.

        Returns
        -------
        FileImages
        """
        expected, origin = self.image_format_, self.origin_
        return FileImages(
            files,
            expected.likelihood,
            self.channel_axis,
            like=expected,
            resample=resample,
            pad=origin.pad,
            onto=None if origin.affine is None else origin.inner_grid(expected.space),
            cache=cache,
            missing_value=missing_value,
            mask=mask,
        )
