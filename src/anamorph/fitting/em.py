"""The fit: Algorithm 1 of the paper, seeing nothing of the images but sums over them.

One iteration updates the shape basis, the appearance basis, the latents, the noise variance, the
mean (with centred latents), and then the axes and the precision A of the latents. Every step is
guarded: it is halved until `objective.joint_log_probability` does not fall, and skipped if that
does not help. An iteration asks five questions when all steps succeed at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.namespaces import array_namespace, beside, to_host
from anamorph.fitting.objective import (
    LatentSums,
    approximate_evidence,
    joint_log_probability,
)
from anamorph.fitting.regularisation import BasisName, Regularisation, stepped
from anamorph.fitting.sites import Sites
from anamorph.fitting.sums import Sums
from anamorph.latents import expected_precision, orthogonalising_transform, whitening
from anamorph.model.parameters import Parameters
from anamorph.model.rounding import slack
from anamorph.model.settings import Settings

logger = logging.getLogger("anamorph")

Float64Array = NDArray[np.float64]

_MEAN_STEPS_AT_START = 8
_STARTING_TOLERANCE = 1e-6  # one system, solved once: exact costs nothing
_MOST_HALVINGS = 6
_MOST_MEAN_HALVINGS = 2
_STEP_GROWTH = 1.1


@dataclass(frozen=True)
class Turn:
    """An orthogonalisation: latents z became T z, and the shape basis what goes with them.

    Warps that are kept were shot before it. Shot again after it they would be the same but for
    rounding, which iterations amplify.

    Attributes
    ----------
    transform : (K, K)
        T.
    shape_basis_before : (Kv, d, *space)
    """

    transform: Float64Array
    shape_basis_before: NDArray[np.float32]


@dataclass(frozen=True)
class State:
    """Where a fit stands after an iteration (with the latents, which stay with the images).

    Attributes
    ----------
    parameters : Parameters
    latents : LatentSums
    step : float
        By how much basis updates are damped; it persists from one iteration to the next.
    objective : tuple of float
        What is shown to people, after each iteration.
    turn : Turn, optional
        The last orthogonalisation, which is needed to go on exactly as if nothing had happened.
    seconds : tuple of float
        That each iteration took.
    """

    parameters: Parameters
    latents: LatentSums
    step: float = 1.0
    objective: tuple[float, ...] = ()
    turn: Turn | None = None
    seconds: tuple[float, ...] = ()

    def beside(self, array: object) -> State:
        """Return the same with mean and bases where an array is, in memory or on a GPU."""
        turn = self.turn
        if turn is not None:
            turn = replace(turn, shape_basis_before=beside(array, turn.shape_basis_before))
        return replace(self, parameters=self.parameters.beside(array), turn=turn)


class Fit:
    """A fit of a model to the images at some sites.

    Parameters
    ----------
    sites : Sites
    settings : Settings
    """

    def __init__(self, sites: Sites, settings: Settings) -> None:
        self.sites = sites
        self.settings = settings
        self.regularisation = Regularisation(settings)
        self._warp_version = 0

    def start(self, moments: Sums, seed: int) -> State:
        """Return the state before the first iteration: a mean, no bases, white latents."""
        return self.start_from(*self._starting_mean(moments), seed)

    def start_from(
        self, mean: NDArray[np.float32], noise_precision: Float64Array, seed: int
    ) -> State:
        """Return the state before the first iteration, given a mean (C, *space)."""
        sums = self.sites.ask("start_latents", seed=seed)
        centre, whiten = whitening(sums["latent_scatter"], sums["latent_sum"], sums.n_images)
        self.sites.ask("transform_latents", matrix=whiten, shift=-whiten @ centre)
        layout, space = self.settings.layout, self.settings.space
        n_latents, zeros = layout.n_latents, array_namespace(mean).zeros
        parameters = Parameters(
            mean=mean,
            appearance_basis=zeros((layout.n_appearance, *mean.shape), mean.dtype),
            shape_basis=zeros((layout.n_shape, len(space), *space), mean.dtype),
            basis_energy=np.zeros((n_latents, n_latents)),
            latent_precision=np.eye(n_latents),
            noise_precision=noise_precision,
        )
        latents = LatentSums(
            sums.n_images,
            scatter=sums.n_images * np.eye(n_latents),
            covariance_sum=np.zeros((n_latents, n_latents)),
            log_determinant_sum=0.0,
        )
        return State(parameters, latents)

    def iterate(self, state: State) -> Iterator[State]:
        """Yield the state after each iteration, without end.

        If the state comes from a checkpoint, the latents are those from before its turn.
        """
        transform = None
        if state.turn is not None:
            transform = state.turn.transform
            before = replace(state.parameters, shape_basis=state.turn.shape_basis_before)
            self.sites.publish(before)
            self.sites.ask("keep_displacements")
        self.sites.publish(state.parameters)
        evaluated = self.sites.ask("shape_derivatives", transform=transform)
        while True:
            started = time.perf_counter()
            state, evaluated = self._iteration(state, evaluated)
            state = replace(state, seconds=(*state.seconds, time.perf_counter() - started))
            yield state

    def regroup(self, state: State) -> State:
        """Return the state for the sites that answer now, where they were others before.

        Two totals of the same thing over different sites would give away their difference.
        Instead the latents of those who answer now take a step, and their sums are of after it.
        Before the first iteration they must start again instead: without bases a step ends in 0.
        """
        self.sites.publish(state.parameters)
        self.sites.ask("propose_latents")
        state, *_ = self._update_latents(state, -np.inf)
        return replace(state, turn=None)

    # ---- one iteration

    def _iteration(self, state: State, evaluated: Sums) -> tuple[State, Sums]:
        """Return the next state, and the shape derivatives there."""
        before = self._joint(evaluated.scalar("log_likelihood"), state.parameters, state.latents)
        state, before, derivatives = self._update_shape(state, before, evaluated)
        state, before = self._update_appearance(state, before, derivatives)
        state, before, latent_mean = self._update_latents(state, before)
        return self._update_mean(state, before, latent_mean)

    def _update_shape(
        self, state: State, before: float, derivatives: Sums
    ) -> tuple[State, float, Sums]:
        """Update Wv; return also the appearance derivatives that the trial brought along."""
        parameters, after, step, answer = self._update_basis(
            "shape", state, before, derivatives, "appearance_derivatives"
        )
        if parameters is not state.parameters:
            step = min(1.0, _STEP_GROWTH * step)
        return replace(state, parameters=parameters, step=step), after, answer

    def _update_appearance(
        self, state: State, before: float, derivatives: Sums
    ) -> tuple[State, float]:
        """Update Wa; the trial leaves proposals for the latents with the images."""
        parameters, after, _, _ = self._update_basis(
            "appearance", state, before, derivatives, "propose_latents"
        )
        return replace(state, parameters=parameters), after

    def _update_basis(
        self, name: BasisName, state: State, before: float, derivatives: Sums, question: str
    ) -> tuple[Parameters, float, float, Sums]:
        """Take a step of a basis, halved until F does not fall.

        Returns the parameters, F, the step as it was halved, and the answer to the question that
        tried it. If no step would do, the parameters are the old ones.
        """
        old, columns = state.parameters, self.settings.layout.columns(name)
        weights = self._basis_weights(state.latents)[columns, columns]
        step = state.step
        if len(weights):
            direction = self.regularisation.basis_direction(
                name, old.basis(name), derivatives, weights
            )
        for _ in range(_MOST_HALVINGS if len(weights) else 0):
            basis = stepped(old.basis(name), step, direction)
            if name == "appearance":
                basis = self.settings.likelihood.remove_redundancy(basis)
                basis = basis.astype(np.float32, copy=False)
            parameters = self._with_basis(old, name, basis)
            after, answer = self._try(question, parameters, state.latents)
            if after >= before - slack(before):
                return parameters, after, step, answer
            step /= 2
        if len(weights):
            logger.info("The %s basis stays as it is: no step improves it", name)
        after, answer = self._try(question, old, state.latents)
        return old, after, step, answer

    def _try(
        self, question: str, parameters: Parameters, latents: LatentSums
    ) -> tuple[float, Sums]:
        """Ask a question about some parameters; return F and the answer."""
        self.sites.publish(parameters)
        answer = self.sites.ask(question)
        return self._joint(answer.scalar("log_likelihood"), parameters, latents), answer

    def _with_basis(
        self, parameters: Parameters, name: BasisName, basis: NDArray[np.float32]
    ) -> Parameters:
        """Return parameters with a new basis, and C brought up to date."""
        if name == "shape":
            self._warp_version += 1
            parameters = replace(parameters, shape_basis=basis, warp_version=self._warp_version)
        else:
            parameters = replace(parameters, appearance_basis=basis)
        return replace(parameters, basis_energy=self.regularisation.basis_energy(parameters))

    def _update_latents(self, state: State, before: float) -> tuple[State, float, Float64Array]:
        """Update the latents and the noise variance; return also the mean of the latents."""
        sums = self.sites.ask("update_latents")
        if n_unimproved := int(sums.scalar("n_unimproved")):
            logger.info("Latents of %d images stay as they are", n_unimproved)
        latents = LatentSums(
            sums.n_images,
            sums["latent_scatter"],
            sums["covariance_sum"],
            sums.scalar("log_determinant_sum"),
        )
        parameters = state.parameters
        log_likelihood = sums.scalar("log_likelihood")
        if (likelihood := self.settings.likelihood).has_noise:
            squares, observed = sums["squares"], sums["observed"]
            precision = likelihood.noise_precision(squares, observed)
            log_likelihood = likelihood.log_likelihood_of_sums(squares, observed, precision)
            log_likelihood *= self.settings.decimation
            parameters = replace(parameters, noise_precision=precision)
        after = self._joint(log_likelihood, parameters, latents)
        self._check_rise("latents", before, after)
        state = replace(state, parameters=parameters, latents=latents)
        return state, after, sums["latent_sum"] / sums.n_images

    def _update_mean(
        self, state: State, before: float, latent_mean: Float64Array
    ) -> tuple[State, Sums]:
        """Centre the latents, update the mean, then the axes and the precision of the latents.

        Centring alone lowers F, and the mean makes up for it: if the two together do not, even
        with shorter steps of the mean, both are taken back.
        """
        old = state.parameters
        self.sites.publish(old)
        derivatives = self.sites.ask("mean_derivatives", shift=-latent_mean)
        direction = self.regularisation.mean_direction(
            old.mean, derivatives["gradient"][0], derivatives["hessian"][0], derivatives.n_images
        ).astype(np.float32)
        n_images = state.latents.n_images
        centred = replace(
            state.latents,
            scatter=state.latents.scatter - n_images * np.outer(latent_mean, latent_mean),
        )
        transform, turned = self._turn(replace(state, latents=centred))
        pending: Float64Array | None = transform
        for halvings in range(_MOST_MEAN_HALVINGS + 1):
            mean = old.mean - np.float32(0.5**halvings) * direction
            mean = self.settings.likelihood.remove_redundancy(mean[None])[0].astype(np.float32)
            candidate = replace(turned.parameters, mean=mean)
            self.sites.publish(candidate)
            evaluated = self.sites.ask("shape_derivatives", transform=pending)
            pending = None
            after = self._joint(
                evaluated.scalar("log_likelihood"), replace(old, mean=mean), centred
            )
            if after >= before - slack(before):
                return self._finished(replace(turned, parameters=candidate), evaluated), evaluated
        logger.info("The mean and the centre of the latents stay as they are")
        back = np.linalg.inv(transform)
        self.sites.ask("transform_latents", matrix=back, shift=latent_mean)
        transform, turned = self._turn(state)
        self.sites.publish(turned.parameters)
        evaluated = self.sites.ask("shape_derivatives", transform=transform)
        return self._finished(turned, evaluated), evaluated

    def _turn(self, state: State) -> tuple[Float64Array, State]:
        """Return T, and the state in which it has taken z to T z, with A as it is then."""
        settings, latents = self.settings, state.latents
        transform = orthogonalising_transform(
            state.parameters.basis_energy,
            latents.scatter,
            latents.covariance_sum,
            latents.n_images,
            settings.prior_dof,
            settings.layout.blocks,
        )
        latents = latents.transformed(transform)
        parameters = replace(
            state.parameters.transformed(transform, settings),
            latent_precision=expected_precision(
                latents.scatter + latents.covariance_sum, latents.n_images, settings.prior_dof
            ),
        )
        turn = Turn(transform, state.parameters.shape_basis)
        return transform, replace(state, parameters=parameters, latents=latents, turn=turn)

    def _finished(self, state: State, evaluated: Sums) -> State:
        """Return the state with its objective noted down."""
        value = approximate_evidence(
            evaluated.scalar("log_likelihood"),
            state.latents,
            state.parameters.basis_energy,
            self.regularisation.mean_energy(state.parameters.mean),
            self.settings.balance,
            self.settings.prior_dof,
        )
        if state.objective and value < state.objective[-1] - slack(value):
            logger.info("The objective fell from %.7g to %.7g", state.objective[-1], value)
        return replace(state, objective=(*state.objective, value))

    # ---- guards

    def _check_rise(self, name: str, before: float, after: float) -> None:
        if after < before - 10 * slack(before):
            logger.warning("F fell from %.9g to %.9g in the update of the %s", before, after, name)

    def _joint(self, log_likelihood: float, parameters: Parameters, latents: LatentSums) -> float:
        return joint_log_probability(
            log_likelihood,
            latents.scatter,
            parameters.latent_precision,
            parameters.basis_energy,
            self.regularisation.mean_energy(parameters.mean),
            latents.n_images,
            self.settings.balance,
        )

    # ---- pieces

    def _starting_mean(self, moments: Sums) -> tuple[NDArray[np.float32], Float64Array]:
        """Return a mean without warps, by Gauss-Newton on sums of the images."""
        settings, likelihood = self.settings, self.settings.likelihood
        count, total = moments["count"], moments["total"]
        mean = likelihood.starting_mean(count, total)
        precision = np.ones(settings.n_channels)
        for _ in range(_MEAN_STEPS_AT_START):
            gradient, hessian = likelihood.mean_derivatives(mean, count, total, precision)
            mean = mean - self.regularisation.mean_direction(
                mean, gradient, hessian, moments.n_images, _STARTING_TOLERANCE
            )
            mean = likelihood.remove_redundancy(mean[None])[0]
            if likelihood.has_noise:
                space = tuple(range(1, mean.ndim))
                rest = np.sum(mean * (count * mean - 2 * total), axis=space)
                squares = moments["squares"] + to_host(rest)
                precision = likelihood.noise_precision(squares, to_host(count.sum(axis=space)))
        return mean.astype(np.float32), precision

    def _basis_weights(self, latents: LatentSums) -> Float64Array:
        """Return lambda_1 N I + lambda_2 ZZ', the weights of the penalties of the bases."""
        weight_1, weight_2 = self.settings.balance
        identity = np.eye(len(latents.scatter))
        return np.asarray(weight_1 * latents.n_images * identity + weight_2 * latents.scatter)
