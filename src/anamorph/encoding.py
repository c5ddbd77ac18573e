"""Updating latent variables: Gauss-Newton on ln p(f | z) - z'Pz/2, image by image.

One step has two halves, since others may have to agree in between: `propose` finds the step from
the derivatives at z, `improve` halves it, image by image, until it does not make things worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamorph.generator import Generator
from anamorph.kernels.device import array_namespace, to_host
from anamorph.latents import log_determinant
from anamorph.objective import slack

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]

_MOST_HALVINGS = 8
_MOST_SHOOTINGS_PER_STEP = _MOST_HALVINGS + 2  # the last takes an image back to where it was
_SHOOTINGS_PER_HEAT = 16


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
    n_halvings : (N,)
        How often the step that led here was halved.
    """

    latents: Float64Array
    displacement: Array | None
    log_likelihood: Float64Array
    n_halvings: NDArray[np.intp]

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
    prior = generator.prior_of(latents)
    hessian += prior
    gradient += latents @ prior
    factor = np.linalg.cholesky(hessian)
    covariance: Float64Array = np.linalg.inv(hessian)
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
    xp = array_namespace(latents)
    before = log_likelihood + generator.log_prior(latents)
    no_halvings = xp.zeros(len(latents), np.intp)
    encoding = Encoding(latents.copy(), None, log_likelihood.copy(), no_halvings)
    pending = xp.arange(len(latents))
    for halvings in range(_MOST_HALVINGS + 1):
        trial = latents[pending] - step[pending] * 0.5**halvings
        displacement = generator.displacement(trial)
        some = images if len(pending) == len(images) else images[pending]
        values = generator.log_likelihood(generator.appearance(trial), displacement, some)
        after = values + generator.log_prior(trial)
        accepted = after >= before[pending] - slack(before[pending])
        done = np.flatnonzero(accepted)
        encoding.update(pending[done], trial[done], values[done])
        encoding.update_displacement(pending, displacement)
        pending = pending[np.flatnonzero(~accepted)]
        if not len(pending):
            break
        encoding.n_halvings[pending] += 1
    else:
        encoding.update_displacement(pending, generator.displacement(latents[pending]))
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
        How often each image was shot.
    """

    latents: Float64Array
    log_evidence: Float64Array
    n_shootings: NDArray[np.intp]

    def to_host(self) -> Encoded:
        """Return the same as NumPy arrays."""
        return Encoded(*map(to_host, (self.latents, self.log_evidence, self.n_shootings)))


def encode(
    generator: Generator,
    images: Array,
    max_shootings: int = 60,
    tolerance: float = 1e-3,
    start: Float64Array | None = None,
) -> Encoded:
    """Find the most probable latents of images (N, C, *space).

    An image is left alone when a step gains less than `tolerance` nats, or when the next one
    might shoot it more often than `max_shootings`. Each starts from the mean and from its best
    guess, and goes on from where it stands better after some shootings, unless latents (N, K) to
    start from are given.
    """
    xp = array_namespace(images)
    n_shootings = xp.zeros(len(images), np.intp)
    if start is None:
        start = xp.zeros((len(images), generator.settings.layout.n_latents))
        if len(generator.guesses.latents) > 1:
            starts = np.concatenate([start, best_guesses(generator, images)])
            twice = np.concatenate([images, images])
            heats = _descend(generator, twice, starts, _SHOOTINGS_PER_HEAT, tolerance)
            from_mean, from_guess = slice(0, len(images)), slice(len(images), None)
            n_shootings += heats.n_shootings[from_mean] + heats.n_shootings[from_guess]
            values = heats.log_likelihood + generator.log_prior(heats.latents)
            is_mean_better = values[from_mean] >= values[from_guess]
            latents = heats.latents
            start = np.where(is_mean_better[:, None], latents[from_mean], latents[from_guess])
    found = _descend(generator, images, start, max_shootings, tolerance)
    log_evidence = (
        found.log_likelihood
        + generator.log_prior(found.latents)
        + 0.5 * log_determinant(generator.prior_precision)
        - 0.5 * found.log_determinant
    )
    return Encoded(found.latents, log_evidence, n_shootings + found.n_shootings)


@dataclass(frozen=True)
class _Found:
    """Where a descent ends: latents (N, K), and ln p(f | z), ln|H| and shootings per image."""

    latents: Float64Array
    log_likelihood: Float64Array
    log_determinant: Float64Array
    n_shootings: NDArray[np.intp]


def _descend(
    generator: Generator,
    images: Array,
    start: Float64Array,
    max_shootings: int,
    tolerance: float,
) -> _Found:
    """Take Gauss-Newton steps from `start` (N, K) while they pay."""
    latents = start.copy()
    displacement = generator.displacement(latents)
    n_shootings = array_namespace(images).ones(len(images), np.intp)
    active = array_namespace(images).arange(len(images))
    while len(active):
        here = _some(displacement, active)
        proposal = propose(generator, images[active], latents[active], here)
        before = proposal.log_likelihood + generator.log_prior(latents[active])
        encoding, improved = improve(
            generator, images[active], latents[active], proposal.step, proposal.log_likelihood
        )
        latents[active] = encoding.latents
        if displacement is not None:
            displacement[active] = encoding.displacement
        n_shootings[active] += 1 + encoding.n_halvings
        after = encoding.log_likelihood + generator.log_prior(encoding.latents)
        may_go_on = n_shootings[active] + _MOST_SHOOTINGS_PER_STEP <= max_shootings
        active = active[improved & (after - before > tolerance) & may_go_on]
    final = propose(generator, images, latents, displacement)
    return _Found(latents, final.log_likelihood, final.log_determinant, n_shootings)


def best_guesses(generator: Generator, images: Array) -> Float64Array:
    """Return for each image (N, C, *space) the latents (N, K) of the guess that is most probable.

    From the mean alone, Gauss-Newton ends in a poor local optimum for one image in twenty-five, and
    from the best guess for as many others. Guesses are warped once for all images, so that looking
    at them costs no shooting.
    """
    guesses = generator.guesses
    likelihood, precision = generator.settings.likelihood, generator.parameters.noise_precision
    values = array_namespace(images).empty((len(images), len(guesses.latents)))
    for m, warped in enumerate(guesses.warped):
        repeated = np.repeat(warped[None], len(images), axis=0)
        values[:, m] = likelihood.log_likelihood(repeated, images, precision)
    values *= generator.settings.decimation
    values += generator.log_prior(guesses.latents)
    best: Float64Array = guesses.latents[values.argmax(axis=1)]
    return best


def _some(displacement: Array | None, which: NDArray[np.intp]) -> Array | None:
    return None if displacement is None else displacement[which]
