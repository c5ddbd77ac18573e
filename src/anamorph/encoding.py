"""Updating latent variables: Gauss-Newton on ln p(f | z) - z'Pz/2, image by image.

One step has two halves, since others may have to agree in between: `propose` finds the step from
the derivatives at z, `improve` halves it, image by image, until it does not make things worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamorph.generator import Generator
from anamorph.objective import slack

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]

_MOST_HALVINGS = 8


@dataclass
class Encoding:
    """What is known of some images under a model.

    Attributes
    ----------
    latents : (N, K)
        z.
    displacement : (N, d, *space) or None
        That of psi = shoot(Wv z); None if nothing moves.
    log_likelihood : (N,)
        ln p(f | z).
    """

    latents: Float64Array
    displacement: Array | None
    log_likelihood: Float64Array

    def update(
        self, which: NDArray[np.intp], latents: Float64Array, log_likelihood: Float64Array
    ) -> None:
        """Replace latents and log-likelihoods of some of the images."""
        self.latents[which] = latents
        self.log_likelihood[which] = log_likelihood

    def update_displacement(self, which: NDArray[np.intp], displacement: Array | None) -> None:
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
    hessian += generator.prior_precision
    gradient += latents @ generator.prior_precision
    factor = np.linalg.cholesky(hessian)
    covariance = np.linalg.inv(hessian)
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
) -> tuple[Encoding, NDArray[np.bool_]]:
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
    before = log_likelihood + log_prior(generator, latents)
    encoding = Encoding(latents.copy(), None, log_likelihood.copy())
    pending = np.arange(len(latents))
    for halvings in range(_MOST_HALVINGS + 1):
        trial = latents[pending] - step[pending] * 0.5**halvings
        displacement = generator.displacement(trial)
        some = images if len(pending) == len(images) else images[pending]
        values = generator.log_likelihood(generator.appearance(trial), displacement, some)
        after = values + log_prior(generator, trial)
        accepted = after >= before[pending] - slack(before[pending])
        encoding.update(pending[accepted], trial[accepted], values[accepted])
        encoding.update_displacement(pending, displacement)
        pending = pending[~accepted]
        if not len(pending):
            break
    else:
        encoding.update_displacement(pending, generator.displacement(latents[pending]))
    improved = np.ones(len(latents), bool)
    improved[pending] = False
    return encoding, improved


def log_prior(generator: Generator, latents: Float64Array) -> Float64Array:
    """Return -z'Pz/2 per image, (N,)."""
    return np.asarray(-0.5 * np.einsum("nk,kl,nl->n", latents, generator.prior_precision, latents))
