"""Updating latent variables (Algorithm 7): Gauss-Newton on ln p(f | z) - z'Pz/2, image by image.

One step has two halves: `propose` finds the step from the derivatives at z, `improve` halves it,
image by image, until it does not make things worse. In a fit, sites propose while they answer one
question, and improve when they answer the next. `model.descent` goes on to a true optimum, for
images that are not part of a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace, to_host
from anamorph.arrays.typing import Array, BoolArray, Float32Array, Float64Array, IntArray
from anamorph.latents import log_determinant
from anamorph.model.descent import Descent
from anamorph.model.generator import Generator, slack, where_held
from anamorph.model.refinement import Refinement

_MOST_HALVINGS = 8


@dataclass
class Encoding:
    """Latents of some images under a model, with the warps and log-likelihoods they give.

    Attributes
    ----------
    latents : (N, K)
        z.
    displacement : (N, d, *space) or None
        That of psi = shoot(Wv z); None if nothing moves.
    log_likelihood : (N,)
        ln p(f | z).
    n_halvings : (N,)
        How often the step that led here was halved.
    """

    latents: Float64Array
    displacement: Array | None
    log_likelihood: Float64Array
    n_halvings: IntArray

    def update_displacement(self, which: IntArray, displacement: Array | None) -> None:
        """Replace displacements of some of the images, all of them the first time."""
        if self.displacement is None:
            self.displacement = displacement
        elif displacement is not None:
            self.displacement[which] = displacement


@dataclass(frozen=True)
class Proposal:
    """A Gauss-Newton step for some images, at their present latents.

    Attributes
    ----------
    step : (N, K)
        What to subtract from z.
    covariance : (N, K, K)
        S_n, the inverse of the Hessian including the prior.
    log_determinant : (N,)
        ln|H_n| of that Hessian.
    log_likelihood : (N,)
        ln p(f | z) at the present latents.
    """

    step: Float64Array
    covariance: Float64Array
    log_determinant: Float64Array
    log_likelihood: Float64Array


def propose(
    generator: Generator, images: Array, latents: Float64Array, displacement: Array | None
) -> Proposal:
    """Return the Gauss-Newton step of images (N, C, *space) at latents (N, K)."""
    appearance = generator.appearance(latents)
    derivatives = generator.derivatives(appearance, displacement, images)
    gradient, hessian = generator.latent_derivatives(appearance, derivatives)
    prior = generator.prior_of(latents)
    hessian += prior
    gradient += latents @ prior
    factor = np.linalg.cholesky(hessian)
    covariance = cast(Float64Array, np.linalg.inv(hessian))
    return Proposal(
        step=(covariance @ gradient[..., None])[..., 0],
        covariance=covariance,
        log_determinant=2 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1),
        log_likelihood=derivatives.log_likelihood,
    )


def improve(
    generator: Generator,
    images: Array,
    latents: Float64Array,
    step: Float64Array,
    log_likelihood: Float64Array,
) -> tuple[Encoding, BoolArray]:
    """Take a step, halved for each image until ln p(f | z) - z'Pz/2 is no worse.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    latents, step : (N, K)
        The present latents z, and what to subtract from them.
    log_likelihood : (N,)
        ln p(f | z) at the present latents.

    Returns
    -------
    encoding : Encoding
        With the latents unchanged where no step would do.
    improved : (N,) bool
        Where a step was taken.
    """
    xp = array_namespace(latents)
    before = log_likelihood + generator.log_prior(latents)
    no_halvings = xp.zeros(len(latents), np.intp)
    encoding = Encoding(latents.copy(), None, log_likelihood.copy(), no_halvings)
    pending = xp.arange(len(latents))
    for halvings in range(_MOST_HALVINGS + 1):
        trial = latents[pending] - step[pending] * 0.5**halvings
        here = generator.only(pending)
        displacement = here.displacement(trial)
        some = images if len(pending) == len(images) else images[pending]
        values = here.log_likelihood(generator.appearance(trial), displacement, some)
        values = where_held(values, displacement)
        after = values + generator.log_prior(trial)
        accepted = after >= before[pending] - slack(before[pending])
        done = np.flatnonzero(accepted)
        encoding.latents[pending[done]] = trial[done]
        encoding.log_likelihood[pending[done]] = values[done]
        encoding.update_displacement(pending, displacement)
        pending = pending[np.flatnonzero(~accepted)]
        if not len(pending):
            break
        encoding.n_halvings[pending] += 1
    else:
        kept = generator.only(pending).displacement(latents[pending])
        encoding.update_displacement(pending, kept)
    improved = xp.ones(len(latents), bool)
    improved[pending] = False
    return encoding, improved


@dataclass(frozen=True)
class Encoded:
    """Images encoded to convergence.

    Attributes
    ----------
    latents : (N, K)
        The modes z.
    log_evidence : (N,)
        ln p(f | model) by Laplace's approximation:
        ln p(f | z) - z'Pz/2 + ln|P|/2 - ln|H|/2.
    n_shootings : (N,)
        How often each image was warped by a new geodesic or a geodesic was differentiated, which
        is what finding the mode costs.
    covariance : (N, K, K) or None
        S_n = H^-1 there, if asked for.
    poses : (N, P) or None
        Where images have poses.
    residuals : (N, d, *space) or None
        Residual velocities, if asked for.
    """

    latents: Float64Array
    log_evidence: Float64Array
    n_shootings: IntArray
    covariance: Float64Array | None = None
    poses: Float64Array | None = None
    residuals: Float32Array | None = None

    def to_host(self) -> Encoded:
        """Return the same as NumPy arrays."""
        return Encoded(*(to_host(getattr(self, field.name)) for field in fields(self)))

    def improved(self, which: IntArray, others: Encoded) -> Encoded:
        """Return the same with other encodings of some images, where they have more evidence.

        Parameters
        ----------
        which : (n,) integers
            The images that were encoded otherwise.
        others : Encoded
            Of these n images. Their shootings add to those before.
        """
        n_shootings = self.n_shootings.copy()
        n_shootings[which] += others.n_shootings
        chosen = np.flatnonzero(others.log_evidence > self.log_evidence[which])

        def merged(mine: Float64Array, theirs: Float64Array) -> Float64Array:
            mine = mine.copy()
            mine[which[chosen]] = theirs[chosen]
            return mine

        poses = None
        if self.poses is not None and others.poses is not None:
            poses = merged(self.poses, others.poses)
        latents = merged(self.latents, others.latents)
        evidence = merged(self.log_evidence, others.log_evidence)
        return Encoded(latents, evidence, n_shootings, poses=poses)

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """Return the parts of a collection of images as one."""
        covariances = [part.covariance for part in parts if part.covariance is not None]
        poses = [part.poses for part in parts if part.poses is not None]
        return cls(
            np.concatenate([part.latents for part in parts]),
            np.concatenate([part.log_evidence for part in parts]),
            np.concatenate([part.n_shootings for part in parts]),
            np.concatenate(covariances) if covariances else None,
            np.concatenate(poses) if poses else None,
        )


def encode(
    generator: Generator,
    images: Array,
    max_shootings: int = 60,
    tolerance: float = 0.006,
    start: Float64Array | None = None,
    *,
    second_start: bool = False,
    exact_curvature: bool = True,
    with_covariance: bool = False,
) -> Encoded:
    """Find the most probable latents of images (N, C, *space).

    An image is finished when its Newton decrement, the gain that one more step promises, is less
    than `tolerance` nats, or when the next step might shoot it more often than `max_shootings`.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
        f, NaN where missing.
    max_shootings : int
        Per image, 60 by default.
    tolerance : float
        In nats, 0.006 by default.
    start : (N, K), optional
        Latents to start from. By default those that a regression on the image says, or the mean
        if that is more probable.
    second_start : bool
        Whether to start from the most probable of the model's own guesses instead, which may end
        in a better optimum; not by default.
    exact_curvature : bool
        Whether steps, evidence and covariance use the exact effect of the latents on the image,
        found by K more shootings, as is the default, or the approximate effect of Algorithm 7.
    with_covariance : bool
        Whether to return the covariances S_n too; not by default.

    Returns
    -------
    Encoded
    """
    if second_start:
        start = second_starts(generator, images)
    start = generator.known_latents() if start is None else start
    is_refined = exact_curvature and generator.settings.layout.n_shape > 0
    descent: Descent | Refinement
    if start is None:
        seen = generator.unposed(images)
        nothing, value = best_guesses(generator, seen, 1)
        known = value if seen is images else None  # interpolated images have other values
        descent = Descent(generator, images, nothing, known, approximate=is_refined)
        if known is None:
            descent.visit(nothing)
        descent.visit(regressed_latents(generator, seen))
    else:
        # Where shooting cannot hold what a start says, the mean image is what is visited next.
        descent = Descent(generator, images, np.zeros_like(start), approximate=is_refined)
        descent.visit(start)
    descent.take_steps(max_shootings, tolerance)
    if is_refined:
        # Images unlike all that a model knows may leave what numbers can hold: steps are refused.
        with np.errstate(over="ignore", invalid="ignore"):
            descent = Refinement(generator, images, descent)
            descent.take_steps(max_shootings, tolerance)
    hessian = descent.hessian
    factor = np.linalg.cholesky(hessian)
    log_evidence = (
        descent.value
        + 0.5 * log_determinant(generator.prior_precision)
        - np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    )
    covariance = np.linalg.inv(hessian) if with_covariance else None
    return Encoded(descent.latents, log_evidence, descent.n_shootings, covariance)


def regressed_latents(generator: Generator, images: Array) -> Float64Array:
    """Return what a regression on images (N, C, *space) says of their latents, (N, K)."""
    mean = np.repeat(generator.guesses.warped[:1], len(images), axis=0)
    return generator.guesses.regressed(generator.comparable(images, mean)[0])


def best_guesses(
    generator: Generator, images: Array, n_guesses: int | None = None
) -> tuple[Float64Array, Float64Array]:
    """Return for each image (N, C, *space) the most probable guess.

    Guesses are warped once for all images, so that looking at them costs no shooting.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
    n_guesses : int, optional
        How many to look at: all by default, and with 1 the mean alone.

    Returns
    -------
    latents : (N, K)
    value : (N,)
        ln p(f | z) - z'Pz/2 of the guess.
    """
    latents = generator.guesses.latents[:n_guesses]
    all_warped = generator.guesses.warped[:n_guesses]
    likelihood, precision = generator.settings.likelihood, generator.parameters.noise_precision
    mean = np.repeat(all_warped[:1], len(images), axis=0)
    images, density = generator.comparable(images, mean)
    values = array_namespace(images).empty((len(images), len(latents)))
    for m, warped in enumerate(all_warped):
        repeated = np.repeat(warped[None], len(images), axis=0)
        values[:, m] = likelihood.log_likelihood(repeated, images, precision) + density
    values *= generator.settings.decimation
    values += generator.log_prior(latents)
    best: Float64Array = latents[values.argmax(axis=1)]
    return best, values.max(axis=1)


def second_starts(generator: Generator, images: Array) -> Float64Array:
    """Return the latents (N, K) to try besides those of the regression: the best guesses."""
    return best_guesses(generator, generator.unposed(images))[0]
