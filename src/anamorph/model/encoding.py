"""Updating latent variables (Algorithm 7): Gauss-Newton on ln p(f | z) - z'Pz/2, image by image.

One step has two halves: `propose` finds the step from the derivatives at z, `improve` halves it,
image by image, until it does not make things worse. In a fit, sites propose while they answer one
question, and improve when they answer the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from anamorph.arrays.devices import array_namespace, to_host
from anamorph.arrays.typing import Array, BoolArray, Float64Array, IntArray
from anamorph.latents import log_determinant
from anamorph.model.generator import Generator, slack

_MOST_HALVINGS = 8
_MOST_SHOOTINGS_PER_STEP = _MOST_HALVINGS + 2  # the last takes an image back to where it was
_SHOOTINGS_PER_HEAT = 16


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
        displacement = generator.displacement(trial)
        some = images if len(pending) == len(images) else images[pending]
        values = generator.log_likelihood(generator.appearance(trial), displacement, some)
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
        How often each image was warped by a new geodesic, which is what encoding costs.
    """

    latents: Float64Array
    log_evidence: Float64Array
    n_shootings: IntArray

    def to_host(self) -> Encoded:
        """Return the same as NumPy arrays."""
        return Encoded(*map(to_host, (self.latents, self.log_evidence, self.n_shootings)))


def encode(
    generator: Generator,
    images: Array,
    max_shootings: int = 60,
    tolerance: float = 3e-3,
    start: Float64Array | None = None,
) -> Encoded:
    """Find the most probable latents of images (N, C, *space).

    An image is finished when a step gains less than `tolerance` nats, or when the next one might
    shoot it more often than `max_shootings`. Each image starts both from the mean and from its
    best guess, and continues from the better of the two after some shootings.

    Parameters
    ----------
    generator : Generator
    images : (N, C, *space)
        f, NaN where missing.
    max_shootings : int
        Per image, 60 by default.
    tolerance : float
        In nats, 3e-3 by default.
    start : (N, K), optional
        Latents to start from, instead of the mean and the best guess.

    Returns
    -------
    Encoded
    """
    has_guesses = start is None and len(generator.guesses.latents) > 1
    if start is None:
        n_latents = generator.settings.layout.n_latents
        start = array_namespace(images).zeros((len(images), n_latents))
    descent = _Descent.at(generator, start)
    if has_guesses:
        other = _Descent.at(generator, best_guesses(generator, images))
        for heat in (descent, other):
            heat.take_steps(generator, images, _SHOOTINGS_PER_HEAT, tolerance)
        descent.take_better(generator, other)
    descent.take_steps(generator, images, max_shootings, tolerance)
    final = propose(generator, images, descent.latents, descent.displacement)
    log_evidence = (
        final.log_likelihood
        + generator.log_prior(descent.latents)
        + 0.5 * log_determinant(generator.prior_precision)
        - 0.5 * final.log_determinant
    )
    return Encoded(descent.latents, log_evidence, descent.n_shootings)


@dataclass
class _Descent:
    """Gauss-Newton steps that some images have taken so far.

    Attributes
    ----------
    latents : (N, K)
    displacement : (N, d, *space) or None
    log_likelihood : (N,)
        ln p(f | z), after the first step.
    n_shootings : (N,)
    is_done : (N,) bool
        Where another step would not pay.
    """

    latents: Float64Array
    displacement: Array | None
    log_likelihood: Float64Array
    n_shootings: IntArray
    is_done: BoolArray

    @classmethod
    def at(cls, generator: Generator, latents: Float64Array) -> _Descent:
        """Return a descent that starts from latents (N, K)."""
        number, xp = len(latents), array_namespace(latents)
        return cls(
            latents.copy(),
            generator.displacement(latents),
            xp.full(number, -np.inf),
            xp.ones(number, np.intp),
            xp.zeros(number, bool),
        )

    def take_steps(
        self, generator: Generator, images: Array, max_shootings: int, tolerance: float
    ) -> None:
        """Take steps while they gain more than `tolerance` nats and `max_shootings` allow it."""
        while True:
            may_continue = self.n_shootings + _MOST_SHOOTINGS_PER_STEP <= max_shootings
            active = np.flatnonzero(~self.is_done & may_continue)
            if not len(active):
                return
            some, latents = images[active], self.latents[active]
            here = None if self.displacement is None else self.displacement[active]
            proposal = propose(generator, some, latents, here)
            before = proposal.log_likelihood + generator.log_prior(latents)
            encoding, improved = improve(
                generator, some, latents, proposal.step, proposal.log_likelihood
            )
            after = encoding.log_likelihood + generator.log_prior(encoding.latents)
            self.latents[active] = encoding.latents
            self.log_likelihood[active] = encoding.log_likelihood
            if self.displacement is not None:
                self.displacement[active] = encoding.displacement
            self.n_shootings[active] += 1 + encoding.n_halvings
            self.is_done[active] = ~improved | (after - before <= tolerance)

    def take_better(self, generator: Generator, other: _Descent) -> None:
        """Continue from where another descent is, for each image that is better there."""
        mine = self.log_likelihood + generator.log_prior(self.latents)
        better = np.flatnonzero(other.log_likelihood + generator.log_prior(other.latents) > mine)
        self.latents[better] = other.latents[better]
        self.log_likelihood[better] = other.log_likelihood[better]
        if self.displacement is not None and other.displacement is not None:
            self.displacement[better] = other.displacement[better]
        self.is_done[better] = other.is_done[better]
        self.n_shootings += other.n_shootings


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
