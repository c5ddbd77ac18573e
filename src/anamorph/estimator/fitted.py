"""What a fitted model does with images and latents: encode, draw, predict, save."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal, cast, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.devices import Machine
from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.fitting.validation import best_iteration
from anamorph.geometry.pose import pose_names
from anamorph.images.arrays import ImageFormat
from anamorph.images.collection import ImageCollection, Images, is_list_of_files, open_images
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.latents import draw_latents, mode_standard_deviations
from anamorph.model.checks import ArgumentError, check_choice, check_integer
from anamorph.model.encoding import Encoded
from anamorph.model.folding import (
    encode_unfolded,
    find_folds,
    tell_of_folds,
)
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.posterior import Posterior
from anamorph.model.predicting import Predictor
from anamorph.model.progress import shown_in_notebook
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import Origin, StoredModel, write_model

PARTS = ("both", "shape", "appearance")

_FARTHEST = 1000.0  # standard deviations of a latent
_FAR = 10.0  # beyond which warps are looked at
_LOST = "takes voxels farther than across the whole box: are these latents of this model?"


def refuse_foreign(X: object) -> None:  # noqa: N803
    """Raise an ImageError for arrays that can never be images, in the words of scikit-learn."""
    if issparse(X):
        raise ImageError("sparse data is not supported: X must be dense images, (N, *space)")
    if isinstance(X, np.ndarray) and np.iscomplexobj(X):
        raise ImageError("Complex data not supported: X must hold real numbers, e.g. magnitudes")


def _storable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without a source of random numbers, which no file holds."""
    seed = arguments["random_state"]
    return arguments if isinstance(seed, int | np.integer) else arguments | {"random_state": None}


class FittedModel(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What `ShapeAppearanceModel` does once it is fitted.

    Its hyperparameters are stored by the constructor of `ShapeAppearanceModel`.
    """

    channel_axis: int | None
    decimation: float | str
    device: str
    memory_budget: int | None
    n_threads: int | None
    verbose: bool

    @property
    def machine(self) -> Machine:
        """Where the model works: its device, threads and memory."""
        n_threads = None if self.n_threads == -1 else self.n_threads
        return Machine(self.device, n_threads, self.memory_budget)

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
        return best_iteration(self.validation_) if self.validation_ else None

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
        """Return the log evidence of each image, by Laplace's approximation, (N,).

        It is a density of intensities as the model sees them: models with another `scale`,
        `intensity` or `decimation` cannot be compared by it.
        """
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
            Whether to find residual warps too, and the latents that go with them; False by default.
            The model must have been fitted with ``residual="after"`` or ``"inside"``. The evidence
            is that without residual warps.
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
            bent = predictor.bend(images, encoded)
        tell_of_folds(find_folds(predictor, bent.latents, bent.residuals))
        return bent

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
        check_choice("part", part, PARTS)
        latents = self._checked_latents(Z)
        placed = self._checked_poses(poses, len(latents))
        bent = self._checked_residuals(residuals, len(latents))
        if part != "appearance":
            self._check_warps(latents, bent)
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

        With a number for `decimation`, times that number: what a fit counts.
        With `align` it is that at given poses (N, P), or at the most probable ones.
        """
        images, latents = self.checked_images(X), self._checked_latents(Z)
        if len(images) != len(latents):
            raise ValueError(
                f"Z must have a row for each of {len(images)} images, got {len(latents)}"
            )
        placed = self._checked_poses(poses, len(latents))
        self._check_warps(latents)
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
        self._check_warps(latents, bent)
        return self.predictor_.displacement(latents, placed, inverse=inverse, residuals=bent)

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
            included; it is 0 where images were observed. The part of the latents comes from 16
            draws, and is known to a third; it does not count that modes are known from few images,
            or from images of which much was missing.
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
        self._check_warps(latents)
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
        farthest = self._distances(latents).max(initial=0)
        if farthest > _FARTHEST:  # warps and images overflow there
            raise ArgumentError(
                f"Z must be within {_FARTHEST:g} standard deviations of 0, got {farthest:.3g}: "
                "are these latents of this model?"
            )
        return latents

    def _check_warps(self, latents: Float64Array, residuals: Float32Array | None = None) -> None:
        """Raise an ArgumentError if shooting cannot hold the warps of latents far from 0."""
        lost = self._find_lost(latents, residuals)
        if lost is not None:
            raise ArgumentError(
                f"row {lost} of the latents is {self._distances(latents)[lost]:.3g} standard "
                f"deviations from 0, and {_LOST}"
            )

    def find_far(
        self,
        Z: Float64Array,  # noqa: N803
        residuals: Float32Array | None = None,
    ) -> tuple[int, str] | None:
        """Return a row of latents (N, K) too far from 0 to be shown, and why; None if none is.

        What reads latents from a table asks this, to name the table and the row.
        """
        distances = self._distances(Z)
        row: int | None = int(distances.argmax())
        if distances[row] > _FARTHEST:
            reason = f"at most {_FARTHEST:g} can be shown: are these latents of this model?"
        else:
            row, reason = self._find_lost(Z, residuals), _LOST
        if row is None:
            return None
        return row, f"{distances[row]:.3g} standard deviations from 0, and {reason}"

    def _find_lost(self, latents: Float64Array, residuals: Float32Array | None) -> int | None:
        """Return the first row far from 0 whose warp shooting cannot hold; None if there is none.

        Those nearby, which the model may draw itself, are what it says, however wild.
        """
        far = np.flatnonzero(self._distances(latents) > _FAR)
        bent = None if residuals is None else residuals[far]
        lost = far[~self.predictor_.are_held(latents[far], bent)]
        return int(lost[0]) if len(lost) else None

    def _distances(self, latents: Float64Array) -> Float64Array:
        """Return how many standard deviations from 0 the farthest latent of each row is, (N,)."""
        scaled = np.abs(latents / mode_standard_deviations(self.latent_precision_))
        distances: Float64Array = scaled.max(axis=1, initial=0)
        return distances

    def checked_images(self, X: Images) -> ImageCollection:  # noqa: N803
        """Return images as a collection to read from, or raise an error if they do not fit."""
        expected = self.image_format_
        refuse_foreign(X)
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
