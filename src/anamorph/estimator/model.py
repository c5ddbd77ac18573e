"""The estimator: hyperparameters, what scikit-learn asks for, and fitting."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.typing import Float64Array
from anamorph.estimator.fitted import refuse_foreign
from anamorph.estimator.template import TemplateMethods
from anamorph.fitting.alignment import remark_on_places
from anamorph.fitting.em import Fit
from anamorph.fitting.errors import FitError
from anamorph.fitting.guard import suspected_cause
from anamorph.fitting.placement import place_cohort
from anamorph.fitting.pyramid import Level, plan_levels, run_levels
from anamorph.fitting.run import Checkpoints, Ending, Progress, duration, run_fit, told
from anamorph.fitting.sites import LocalSites, OwnSites
from anamorph.fitting.state import State
from anamorph.fitting.validation import Validation
from anamorph.geometry.pose import NONE
from anamorph.images.arrays import ImageFormat
from anamorph.images.collection import ImageCollection, Images, is_list_of_files, open_images
from anamorph.images.files import AUTO, FileImages
from anamorph.images.grid import Affine
from anamorph.model.checks import checked_seed
from anamorph.model.folding import find_folds, tell_of_folds
from anamorph.model.hyperparameters import HYPERPARAMETERS, checked_arguments
from anamorph.model.progress import NotebookBar, is_notebook
from anamorph.model.scaled_penalties import scaled_penalties
from anamorph.model.settings import Settings, checked_start, completed_settings
from anamorph.storage.checkpoint import CheckpointFile, stored_level
from anamorph.storage.commit import locked
from anamorph.storage.modelfile import Origin, read_model

logger = logging.getLogger("anamorph")

#: Opens the sites that hold images, given settings and starting latents.
OpenSites = Callable[[ImageCollection, Settings, Float64Array | None], OwnSites]


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


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(np.array_equal(one, other))
    except (TypeError, ValueError):
        return one is other


class ShapeAppearanceModel(TemplateMethods):
    """A mean image with modes of shape and appearance, learnt from images alone.

    Every image is explained by a few latent variables z: its appearance is a = mu + Wa z, and
    it is warped by the diffeomorphism that the initial velocity Wv z generates. The mean mu, the
    bases Wa and Wv and the latents are found by Gauss-Newton inside EM [1].

    Parameters
    ----------
    n_components : int or pair of int
        Number K of latents; with ``latents="separate"`` also (n_appearance, n_shape), where one
        number is halved. Less than the number of images.
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
        Number of grids. With more than one, the fit starts on a coarse grid, and does only the
        last tenth of its iterations (with poses 25 %, in 3D 35 %) on that of the images, which
        saves more than half of the time of 20 iterations. Gradients of shape are exact then, and
        not those of the paper. "auto" takes up to three. 1 by default, as in the paper.
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
        Weight of the log-likelihood, below 1 where neighbouring voxels are not independent. With
        "auto" it is 1 in the fit; where hidden voxels are predicted and residual warps found, it
        follows from how well images are known that were left out.
    intensity : {"global", "per image", "smooth"}
        Whether intensities are what the images say, or each image has a gain and an offset of its
        own, or also a smooth field that multiplies it, such as that of a coil.
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
            (`validation_`): they are encoded each time, Gaussian ones twice, which takes about as
            long as a few iterations with as many images.

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
        refuse_foreign(X)
        margin = 0 if arguments["align"] == NONE else AUTO
        images = open_images(
            X, self.likelihood, self.channel_axis, scale=arguments["scale"], pad=margin
        )
        settings = completed_settings(arguments, images.format, len(images), images.voxel_size)
        settings = scaled_penalties(settings, arguments, images)
        seed = checked_seed(arguments["random_state"])
        starting = checked_start(start, len(images), settings.layout.n_latents)
        watch = None
        if validation is not None:
            watch = Validation(self._open_like(images, validation), settings, self.machine)
        levels: tuple[Level, ...] = ()  # none: the only grid is that of the images
        if arguments["levels"] != 1:
            levels = plan_levels(settings, arguments["levels"], arguments["n_iter"])

        def open_checkpoints(sites: OwnSites, here: Settings) -> Checkpoints | None:
            kept, n_levels = None, max(1, len(levels))
            if checkpoint is not None:
                kept = CheckpointFile(checkpoint, sites, here, seed, len(images), n_levels)
            return kept if watch is None else watch.around(kept, here)

        def fit_on_one_grid() -> tuple[OwnSites, State]:
            sites = open_sites(images, settings, starting)
            return sites, run_fit(
                Fit(sites, settings),
                seed,
                Ending(arguments["n_iter"], arguments["tol"]),
                tell=self._tell(callback),
                checkpoints=open_checkpoints(sites, settings),
            )

        def fit_on_levels() -> tuple[OwnSites, State]:
            return run_levels(
                levels,
                stored_level(checkpoint, len(levels)),
                seed,
                arguments["tol"],
                open_sites=lambda here: open_sites(images, here, starting),
                open_checkpoints=open_checkpoints,
                tell=self._tell(callback),
            )

        held = nullcontext() if checkpoint is None else locked(Path(checkpoint))
        with held, self.machine.threads():
            try:
                sites, state = fit_on_levels() if levels else fit_on_one_grid()
            except FitError as error:
                raise FitError(
                    f"{error}; suspected: {suspected_cause(images, settings)}"
                    + _told_of_checkpoint(checkpoint)
                ) from None
        self._take(state.beside(np), settings, images, () if watch is None else watch.evidence)
        self.latents_, self.poses_, self.residuals_ = sites.latents, sites.poses, sites.residuals
        folds = find_folds(self.predictor_, self.latents_, self.residuals_)
        if self.residuals_ is None:
            tell_of_folds(folds)
        else:
            tell_of_folds(folds, "residual warps that encode finds are smoothed where they fold")
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
        refuse_foreign(others)
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

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ShapeAppearanceModel:
        """Return the model in a file."""
        stored = read_model(path)
        model = cls(**stored.arguments)
        model._set_fitted(
            stored.format, stored.settings, stored.parameters, stored.objective, stored.origin
        )
        return model
