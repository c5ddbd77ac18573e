"""Algorithm 1 of the paper, which sees nothing of the images but sums over them.

The paper's loop, entered at the shape basis (the same cycle, begun elsewhere), and the functions
and questions (in quotes) that do it; l1 and l2 are lambda_1 and lambda_2:

    G^v, H^v <- ShapeDerivatives                              "shape_derivatives"
    w^v_k <- w^v_k - (H^v_kk + (l1 N + l2 c^z_kk) L^v)^-1
                     (g^v_k + (l1 N + l2 c^z_kk) L^v w^v_k)   _update_shape_basis
    G^a, H^a <- AppearanceDerivatives                         "appearance_derivatives"
    w^a_k <- the same, with L^a                               _update_appearance_basis
    C <- W^v' L^v W^v + W^a' L^a W^a                          _with_basis
    Z, S, C^z <- UpdateLatentVariables(l1 A + l2 C)           "propose_latents", _update_latents
    g^mu, H^mu <- MeanDerivatives                             "mean_derivatives"
    mu <- mu - (H^mu + L^mu)^-1 (g^mu + L^mu mu)              _update_mean
    T <- OrthogonalisationMatrix(C, C^z, S, N)
    W <- W T^-1, C^z <- T C^z T', S <- T S T', Z <- T Z
    A <- (N + nu0) (C^z + S + Lambda_0^-1)^-1                 _orthogonalise

The paper marks the lines of questions "Dist". A trial of a step also asks for what the next step
needs, and a question may carry a move of the latents: an iteration asks five questions if all
steps succeed at once. Every step is guarded, which the paper mentions and does not print: it is
halved until F (`objective.joint_log_probability`) does not fall, and skipped if that does not help.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from anamorph.arrays.devices import array_namespace, to_host
from anamorph.arrays.typing import Float32Array, Float64Array
from anamorph.fitting.alignment import Alignment
from anamorph.fitting.leave_one_out import best_weight, independent_share
from anamorph.fitting.objective import (
    LatentSums,
    approximate_evidence,
    gain_of_turn,
    joint_log_probability,
)
from anamorph.fitting.regularisation import BasisName, Regularisation, stepped
from anamorph.fitting.sites import Sites
from anamorph.fitting.state import State, Turn
from anamorph.fitting.step_length import next_step
from anamorph.fitting.sums import Move, Sums
from anamorph.latents import expected_precision, orthogonalising_transform, whitening
from anamorph.model.generator import slack
from anamorph.model.hyperparameters import INSIDE, MODES_FIRST
from anamorph.model.parameters import Parameters, power_of, starting_residual
from anamorph.model.posing import moved_mean
from anamorph.model.settings import Settings

logger = logging.getLogger("anamorph")

_MEAN_STEPS_AT_START = 8
_STARTING_TOLERANCE = 1e-6  # one system, solved once: exact costs nothing
_MEAN_STEPS_ON_ARRIVAL = 4
_FIRST_ROUNDS = 10  # without warps, where images have poses
_MOST_HALVINGS = 6
_STEP_GROWTH = 1.1  # of a step of the shape basis that was halved, when it succeeds
_MOST_MEAN_HALVINGS = 2
_POSE_STEPS = 1
# What trials of the appearance basis ask: a question for each sweep over both bases.
_LAST_OF_SWEEPS = "propose_latents"
_SWEEPS_WITH_POSES = ("shape_derivatives", _LAST_OF_SWEEPS)
_RESIDUAL_STEPS = 6  # in an iteration
_RESIDUAL_ROUNDS, _RESIDUAL_STEPS_AFTER = 5, 10  # after a fit
_LEAST_ENERGY = 1e-9
_FARTHEST_MEAN_POSE = 0.25  # voxels that a mean pose may move some voxel
_LEAST_SCATTER = 1e-8


def falls(before: float, after: float, share: float = 1.0) -> bool:
    """Tell whether F fell by more than rounding, or by more than a multiple of it.

    Parameters
    ----------
    before, after : float
        F.
    share : float, default 1
        Of what rounding may change.
    """
    return not after >= before - share * slack(before)


class Fit:
    """A fit of a model to the images at some sites.

    Parameters
    ----------
    sites : Sites
    settings : Settings
    judge : callable, optional
        Given F before and after a step, tells whether the step is taken. By default it is unless F
        falls by more than rounding.
    """

    def __init__(
        self,
        sites: Sites,
        settings: Settings,
        judge: Callable[[float, float], bool] = lambda before, after: not falls(before, after),
    ) -> None:
        self.sites = sites
        self.settings = settings
        self._is_good = judge
        self.regularisation = Regularisation(settings)
        self._sweeps = _SWEEPS_WITH_POSES if settings.has_poses else (_LAST_OF_SWEEPS,)
        self._warp_version = 0

    # ---- "Initialize variables."

    def start(self, moments: Sums, seed: int) -> State:
        """Return the state before the first iteration: a mean, no bases, white latents.

        Parameters
        ----------
        moments : Sums
            The answer to "moments".
        seed : int
            Of the starting latents.
        """
        n_latents, n_images = self.settings.layout.n_latents, moments.n_images
        if n_latents > n_images - 1:  # or ZZ' cannot be N I with centred latents
            raise ValueError(
                f"n_components must be at most the number of images less one, got {n_latents} for "
                f"{n_images} images at all sites"
            )
        if self.settings.has_poses:
            mean, precision, background = Alignment(
                self.sites, self.settings, self._starting_mean
            ).start()
            return self._find_modes(self.start_from(mean, precision, seed, background))
        return self._find_modes(self.start_from(*self._starting_mean(moments), seed))

    def start_from(
        self,
        mean: Float32Array,
        noise_precision: Float64Array,
        seed: int,
        background: Float64Array | None = None,
    ) -> State:
        """Return the state before the first iteration, given a mean.

        Parameters
        ----------
        mean : (C, *space)
        noise_precision : (C,)
        seed : int
            Of the starting latents: random, centred and whitened to ZZ' = N I.
        background : (2, C), optional
            Of images with poses: see `Parameters`.
        """
        sums = self.sites.ask("start_latents", seed=seed)
        centre, whiten = whitening(sums["latent_scatter"], sums["latent_sum"], sums.n_images)
        self.sites.ask("transform_latents", move=Move(whiten, -whiten @ centre))
        layout, space = self.settings.layout, self.settings.space
        n_latents, zeros = layout.n_latents, array_namespace(mean).zeros
        parameters = Parameters(
            mean=mean,
            appearance_basis=zeros((layout.n_appearance, *mean.shape), mean.dtype),
            shape_basis=zeros((layout.n_shape, len(space), *space), mean.dtype),
            basis_energy=np.zeros((n_latents, n_latents)),
            latent_precision=np.eye(n_latents),
            noise_precision=noise_precision,
            background=background,
            residual=starting_residual(self.settings, noise_precision),
        )
        latents = LatentSums(
            sums.n_images,
            scatter=sums.n_images * np.eye(n_latents),
            covariance_sum=np.zeros((n_latents, n_latents)),
            log_determinant_sum=0.0,
        )
        return State(parameters, latents)

    def _find_modes(self, state: State) -> State:
        """Return the state after some rounds without warps, where images have poses.

        Latents are random at first, and warps would follow them. Poses have explained what is out
        of place: appearance finds out in which ways images differ, at little cost. In images
        without poses it would explain misplacement, and the mean show everything twice. Where noise
        is estimated, it is large at first, and warps wait by themselves.
        """
        settings = self.settings
        is_ready = settings.has_poses and not settings.likelihood.has_noise
        if not is_ready or not settings.layout.n_appearance:
            return state
        for _ in range(_FIRST_ROUNDS):
            before, derivatives = self._try(
                "appearance_derivatives", state.parameters, state.latents
            )
            state, before, _ = self._update_appearance_basis(state, before, derivatives)
            state, before, latent_mean = self._update_latents(state, before)
            state, _ = self._update_mean(state, before, latent_mean, before)
        # The latents have been turned, and no warp was shot before.
        return replace(state, turn=None, objective=())

    def arrive(self, state: State) -> State:
        """Return a state that was learnt on a coarser grid with what this grid shows at once.

        The mean takes some steps: edges are sharper here, and a step of the mean costs no warps.
        Poses take a step, and the noise and the background, which only the start looks at
        otherwise, become those of the voxels of this grid.
        """
        if self.settings.has_poses:
            state, *_ = self._update_poses(state, -np.inf)
            background = Alignment(self.sites, self.settings, self._starting_mean).background(
                state.parameters.noise_precision
            )
            state = replace(state, parameters=replace(state.parameters, background=background))
        return replace(state, parameters=self._sharpen_mean(state))

    def _sharpen_mean(self, state: State) -> Parameters:
        """Return the parameters after steps of the mean alone, as long as F rises."""

        def differentiate(parameters: Parameters) -> tuple[float, Sums]:
            return self._try("mean_derivatives", parameters, state.latents)

        parameters = state.parameters
        before, derivatives = differentiate(parameters)
        for _ in range(_MEAN_STEPS_ON_ARRIVAL):
            direction = self.regularisation.mean_direction(
                parameters.mean,
                derivatives["gradient"][0],
                derivatives["hessian"][0],
                derivatives.n_images,
            ).astype(np.float32)
            mean = self.settings.likelihood.remove_redundancy((parameters.mean - direction)[None])
            candidate = replace(parameters, mean=mean[0].astype(np.float32))
            after, derivatives = differentiate(candidate)
            if not after > before:
                break
            parameters, before = candidate, after
        return parameters

    # ---- "repeat ... until convergence": whoever iterates knows when that is

    def iterate(self, state: State) -> Iterator[State]:
        """Yield the state after each iteration, without end.

        If the state comes from a checkpoint, the latents are those from before its turn.
        """
        move = None if state.turn is None else self._keep_warps(state.turn, state.parameters)
        self.sites.publish(state.parameters)
        derivatives = self.sites.ask("shape_derivatives", move=move)
        while True:
            started = time.perf_counter()
            state, derivatives = self._iterate_once(state, derivatives)
            state = replace(state, seconds=(*state.seconds, time.perf_counter() - started))
            yield state

    def _keep_warps(self, turn: Turn, parameters: Parameters) -> Move:
        """Have sites shoot warps from before a turn, and return the move that turns latents."""
        self.sites.publish(replace(parameters, shape_basis=turn.shape_basis_before))
        self.sites.ask("keep_displacements")
        return Move.turning(turn.transform)

    def turn_latents(self, state: State) -> None:
        """Turn the latents at the sites, where no iteration follows a checkpoint to do so."""
        if state.turn is not None:
            move = self._keep_warps(state.turn, state.parameters)
            self.sites.ask("transform_latents", move=move)
            self.sites.publish(state.parameters)

    def finish(self, state: State) -> State:
        """Return the state at the end, with noise and weight of the likelihood for new images.

        Both are found by leaving each image out (see `leave_one_out`), unless the weight of the
        likelihood is given. Residual warps that were found inside of the fit take their last steps
        before, and others their steps after.
        """
        if state.residual_weight is not None:  # found inside of the fit
            return self._with_weight(self._with_residuals(state, n_rounds=1))
        weighted = self._with_weight(state)
        if not self.settings.has_residuals:
            return weighted
        state = replace(state, residual_weight=self._residual_weight(state, weighted))
        bent = self._with_residuals(state, _RESIDUAL_ROUNDS)
        learnt = replace(weighted.parameters, residual=bent.parameters.residual)
        return replace(weighted, parameters=learnt)

    def _residual_weight(self, state: State, weighted: State) -> float:
        """Return what a voxel counts for where residual warps are found, at most 1.

        Images of the fit leave less noise than others, since modes have learnt them by heart, and
        residuals of neighbouring voxels are alike. Taken at their word, voxels would make residual
        warps explain what the modes of appearance cannot. So each counts as the share that is
        independent, and less where there is more noise in images that the fit does not know. The
        root of that ratio is between what it would be if residual warps of other images were
        larger by as much, 1, and if they were not.

        Parameters
        ----------
        state : State
            Before residual warps.
        weighted : State
            The same with noise and weight of the likelihood for new images.
        """
        share = weighted.independent_share
        if not self.settings.likelihood.has_noise or share is None:
            return 1.0
        known = weighted.parameters.noise_precision / state.parameters.noise_precision
        return min(1.0, share * math.sqrt(float(known.mean())))

    def _with_weight(self, state: State) -> State:
        """Return the state with noise and weight of the likelihood for new images, if wanted."""
        if not self.settings.estimates_weight:
            return state
        latents, likelihood = state.latents, self.settings.likelihood
        self.sites.publish(state.parameters)
        sums = self.sites.ask(
            "leave_one_out",
            inverse_scatter=self._inverse_scatter(state),
            n_images=latents.n_images,
        )
        parameters, ratio = state.parameters, 1.0
        if likelihood.has_noise:
            precision = likelihood.noise_precision(
                sums["squares"], sums["observed"], power_of(parameters.mean)
            )
            # What was tried was a weight on the precision that the fit had.
            ratio = float((parameters.noise_precision / precision).mean())
            parameters = replace(parameters, noise_precision=precision)
        share = independent_share(
            sums["correlation"], sums["squared_correlation"], latents.n_images
        )
        # Where the variance of a voxel follows from its mean, as that of classes does, residuals
        # may be anything but noise: of maps of probabilities they are much too small.
        expected = min(1.0, share / ratio) if likelihood.has_noise else None
        if not np.isfinite(sums["errors_by_weight"]).any():
            logger.warning(
                "No image could be predicted from the others: how far to trust a new image is not "
                "known, and the model takes every voxel at its word; intensities or settings are "
                "far from what is usual"
            )
        weight = ratio * best_weight(sums["errors_by_weight"], expected)
        return replace(
            state,
            parameters=parameters,
            prediction_weight=min(1.0, weight * self.settings.decimation),
            independent_share=share,
        )

    def _inverse_scatter(self, state: State) -> Float64Array:
        """Return M = (ZZ' + Q)^-1 of latents that vary, and 0 of those that are 0 but for rounding.

        The penalties put an end to the latter: no image determines their bases, or has leverage.
        """
        latents = state.latents
        alive = np.ix_(latents.is_alive, latents.is_alive)
        inverse = np.zeros_like(latents.scatter)
        inverse[alive] = np.linalg.inv((latents.scatter + self._penalty_scatter(state))[alive])
        return inverse

    def _penalty_scatter(self, state: State) -> Float64Array:
        """Return what the penalties of the bases add to ZZ', where images determine the bases.

        Column k of the bases minimises c^z_kk w'Hw / 2 + (lambda_1 N + lambda_2 c^z_kk) w'Lw / 2,
        less a linear term: its penalty counts for (lambda_1 N + lambda_2 c^z_kk) c_kk / w'Hw images
        more. The Hessian w'Hw of a latent is that of S_n less the prior.
        """
        latents, parameters = state.latents, state.parameters
        weights = np.diag(self._basis_weights(latents)) * np.diag(parameters.basis_energy)
        # Before the first iteration nothing is known of S_n.
        spread = np.maximum(np.diag(latents.covariance_sum), _LEAST_SCATTER)
        prior = np.diag(parameters.prior_precision(self.settings))
        curvature = np.maximum(latents.n_images / spread - prior, _LEAST_SCATTER)
        least = _LEAST_SCATTER * np.diag(latents.scatter).max()
        return np.diag(np.maximum(weights / curvature, least))

    def regroup(self, state: State) -> State:
        """Return the state for the sites that answer now, where others answered before.

        Two totals of the same thing over different sites would give away their difference.
        Instead, the latents of the sites that answer now take a step, and the new state has the
        sums after this step. Before the first iteration they must start again: without bases a
        step ends in 0.
        """
        self.sites.publish(state.parameters)
        self.sites.ask("propose_latents")
        state, *_ = self._update_latents(state, -np.inf)
        return replace(state, turn=None)

    def _iterate_once(self, state: State, shape_derivatives: Sums) -> tuple[State, Sums]:
        """Return the next state, and the shape derivatives there."""
        start = before = self._joint(
            shape_derivatives.scalar("log_likelihood"), state.parameters, state.latents
        )
        for question in self._sweeps:
            state, before, appearance_derivatives = self._update_shape_basis(
                state, before, shape_derivatives
            )
            state, before, shape_derivatives = self._update_appearance_basis(
                state, before, appearance_derivatives, question
            )
        state, before, latent_mean = self._update_latents(state, before)
        pose_mean = None
        if self.settings.has_poses:
            state, before, pose_mean = self._update_poses(state, before)
            # To move the mean image is to interpolate it, which blurs it: only if it is worth it.
            if self.settings.frame.motion(pose_mean[None])[0] <= _FARTHEST_MEAN_POSE:
                pose_mean = None
        if self.settings.residual == INSIDE and len(state.objective) >= MODES_FIRST:
            if state.residual_weight is None:
                weight = self._residual_weight(state, self._with_weight(state))
                state = replace(state, residual_weight=weight)
            state, before, price = self._update_residuals(state, before, _RESIDUAL_STEPS)
            start += price  # which F does not know
        return self._update_mean(state, before, latent_mean, start, pose_mean)

    # ---- w_k <- w_k - (H_kk + (lambda_1 N + lambda_2 c^z_kk) L)^-1 (g_k + ...)

    def _update_shape_basis(
        self, state: State, before: float, derivatives: Sums
    ) -> tuple[State, float, Sums]:
        """Update W^v; return also the appearance derivatives that the trial brought along."""
        parameters, after, step, answer = self._update_basis(
            "shape", state, before, derivatives, "appearance_derivatives"
        )
        return replace(state, parameters=parameters, step=step), after, answer

    def _update_appearance_basis(
        self, state: State, before: float, derivatives: Sums, question: str = _LAST_OF_SWEEPS
    ) -> tuple[State, float, Sums]:
        """Update W^a; return also the answer to the question that its trial asked.

        By default the trial leaves proposals for the latents with the images.
        """
        parameters, after, _, answer = self._update_basis(
            "appearance", state, before, derivatives, question
        )
        return replace(state, parameters=parameters), after, answer

    def _update_basis(
        self, name: BasisName, state: State, before: float, derivatives: Sums, question: str
    ) -> tuple[Parameters, float, float, Sums]:
        """Take a step of all columns of a basis, halved until F does not fall.

        Returns the parameters, F, the step to begin with next time, and the answer to the question
        that tried it. If no step will do, the parameters are the old ones.
        """
        old, columns = state.parameters, self.settings.layout.columns(name)
        weights = self._basis_weights(state.latents)[columns, columns]
        is_exact = self.settings.differentiates_exactly
        has_own_step = name == "appearance" and is_exact
        step = 1.0 if has_own_step else state.step
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
            if self._is_good(before, after):
                if name == "shape" and is_exact:
                    slope = self.regularisation.basis_slope(
                        name, old.basis(name), derivatives, weights, direction
                    )
                    step = next_step(step, slope, after - before)
                elif name == "shape":
                    step = min(1.0, _STEP_GROWTH * step)
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
        self, parameters: Parameters, name: BasisName, basis: Float32Array
    ) -> Parameters:
        """Return parameters with a new basis, and with C = W^v' L^v W^v + W^a' L^a W^a."""
        if name == "shape":
            self._warp_version += 1
            parameters = replace(parameters, shape_basis=basis, warp_version=self._warp_version)
        else:
            parameters = replace(parameters, appearance_basis=basis)
        return replace(parameters, basis_energy=self.regularisation.basis_energy(parameters))

    def _basis_weights(self, latents: LatentSums) -> Float64Array:
        """Return lambda_1 N I + lambda_2 ZZ', the weights of the penalties of the bases."""
        weight_1, weight_2 = self.settings.balance
        identity = np.eye(len(latents.scatter))
        return np.asarray(weight_1 * latents.n_images * identity + weight_2 * latents.scatter)

    # ---- Z, S, C^z <- UpdateLatentVariables(F, Z, mu, W^a, W^v, lambda_1 A + lambda_2 C)

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
        parameters, log_likelihood = self._with_noise(state.parameters, sums)
        after = self._joint(log_likelihood, parameters, latents)
        self._check_rise("latents", before, after)
        state = replace(state, parameters=parameters, latents=latents)
        return state, after, sums["latent_sum"] / sums.n_images

    def _with_noise(self, parameters: Parameters, sums: Sums) -> tuple[Parameters, float]:
        """Return parameters with the noise that residuals have, and ln p(f | z) with it."""
        likelihood, value = self.settings.likelihood, sums.scalar("log_likelihood")
        if not likelihood.has_noise:
            return parameters, value
        squares, observed, weight = sums["squares"], sums["observed"], self.settings.decimation
        rest = 0.0
        # What the template does not explain, the prior of poses, the density of gains.
        if self.settings.has_poses or self.settings.matches_intensities:
            before = parameters.noise_precision
            rest = value - weight * likelihood.log_likelihood_of_sums(squares, observed, before)
        precision = likelihood.noise_precision(squares, observed, power_of(parameters.mean))
        value = weight * likelihood.log_likelihood_of_sums(squares, observed, precision)
        return replace(parameters, noise_precision=precision), value + rest

    # ---- R_n <- exp(e) R_n, where images have poses

    def _update_poses(self, state: State, before: float) -> tuple[State, float, Float64Array]:
        """Update poses, and the noise variance again; return also the mean of the poses."""
        self.sites.publish(state.parameters)
        sums = self.sites.ask("update_poses", n_steps=_POSE_STEPS)
        if n_unimproved := int(sums.scalar("n_unimproved")):
            logger.info("Poses of %d images stay as they are", n_unimproved)
        parameters, log_likelihood = self._with_noise(state.parameters, sums)
        after = self._joint(log_likelihood, parameters, state.latents)
        self._check_rise("poses", before, after)
        return replace(state, parameters=parameters), after, sums["pose_sum"] / sums.n_images

    # ---- r_n, where images have residual warps

    def _update_residuals(
        self, state: State, before: float, n_steps: int
    ) -> tuple[State, float, float]:
        """Update residual warps, their precision, and the noise variance again.

        Returns also by how much ln p(r) falls, which F does not count: it is never more than what
        F gains.
        """
        self.sites.publish(state.parameters)
        seed = len(state.objective)
        sums = self.sites.ask("update_residuals", n_steps=n_steps, seed=seed)
        if n_unimproved := int(sums.scalar("n_unimproved")):
            logger.info("Residual warps of %d images stay as they are", n_unimproved)
        energy, precision = sums.scalar("energy"), state.parameters.residual_precision
        price = 0.5 * precision * (energy - sums.scalar("energy_before"))
        parameters, log_likelihood = self._with_noise(state.parameters, sums)
        after = self._joint(log_likelihood, parameters, state.latents)
        self._check_rise("residual warps", before, after - price)
        if energy > _LEAST_ENERGY and sums.scalar("determined") > 0:
            weight = 1.0 if state.residual_weight is None else state.residual_weight
            precision = sums.scalar("determined") / (weight * energy)
        learnt = np.array([precision, *parameters.noise_precision])
        return replace(state, parameters=replace(parameters, residual=learnt)), after, price

    def _with_residuals(self, state: State, n_rounds: int) -> State:
        """Return the state with what residual warps say at the end of a fit."""
        bent = state
        for _ in range(n_rounds):
            bent, *_ = self._update_residuals(bent, -np.inf, _RESIDUAL_STEPS_AFTER)
        learnt = replace(state.parameters, residual=bent.parameters.residual)
        return replace(state, parameters=learnt)

    # ---- mu <- mu - (H^mu + L^mu)^-1 (g^mu + L^mu mu), then T and A

    def _update_mean(
        self,
        state: State,
        before: float,
        latent_mean: Float64Array,
        start: float,
        pose_mean: Float64Array | None = None,
    ) -> tuple[State, Sums]:
        """Centre the latents, update the mean, then orthogonalise; return the shape derivatives.

        Centring alone lowers F, and the mean makes up for it: if the two together do not, even
        with shorter steps of the mean, both are taken back. T and A follow from sums that are
        known before the mean is tried: the trial turns the latents too, and brings along the
        shape derivatives that the next iteration needs. F was `start` when the iteration began.

        Where images have poses, all are composed with the inverse of their mean, and the mean image
        moves by it, in the same guarded step.
        """
        old, n_images = state.parameters, state.latents.n_images
        centring = Move.by(-latent_mean)
        if pose_mean is not None:
            centring = replace(centring, pose=-pose_mean)
            old = replace(old, mean=moved_mean(self.settings, old, pose_mean))
        direction = self._mean_direction(old, centring)
        centred = replace(
            state.latents,
            scatter=state.latents.scatter - n_images * np.outer(latent_mean, latent_mean),
        )
        transform, turned = self._orthogonalise(replace(state, latents=centred))
        move: Move | None = Move.turning(transform)
        for halvings in range(_MOST_MEAN_HALVINGS + 1):
            mean = old.mean - np.float32(0.5**halvings) * direction
            mean = self.settings.likelihood.remove_redundancy(mean[None])[0].astype(np.float32)
            candidate = replace(turned.parameters, mean=mean)
            self.sites.publish(candidate)
            derivatives = self.sites.ask("shape_derivatives", move=move)
            move = None  # the latents are turned now
            after = self._joint(
                derivatives.scalar("log_likelihood"), replace(old, mean=mean), centred
            )
            if self._is_good(before, after):
                end = replace(turned, parameters=candidate)
                gain = after - start + self._gain_of_turn(replace(state, latents=centred), end)
                return self._with_objective(end, derivatives, gain), derivatives
        back: Float64Array = np.linalg.inv(transform).astype(np.float64, copy=False)
        self.sites.ask("transform_latents", move=Move(back, latent_mean, pose=pose_mean))
        if pose_mean is not None:  # which blurs the mean: perhaps it can be improved where it is
            return self._update_mean(state, before, latent_mean, start)
        return self._keep_mean(state, start)

    def _mean_direction(self, parameters: Parameters, centring: Move) -> Float32Array:
        """Return (H^mu + N L)^-1 (g^mu + N L mu), (C, *space), of centred latents."""
        self.sites.publish(parameters)
        derivatives = self.sites.ask("mean_derivatives", move=centring)
        gradient, hessian = derivatives["gradient"][0], derivatives["hessian"][0]
        return self.regularisation.mean_direction(
            parameters.mean, gradient, hessian, derivatives.n_images
        ).astype(np.float32)

    def _keep_mean(self, state: State, start: float) -> tuple[State, Sums]:
        """Orthogonalise what is there, where mean and centre are not improved."""
        logger.info("The mean and the centre of the latents stay as they are")
        transform, turned = self._orthogonalise(state)
        self.sites.publish(turned.parameters)
        derivatives = self.sites.ask("shape_derivatives", move=Move.turning(transform))
        after = self._joint(derivatives.scalar("log_likelihood"), state.parameters, state.latents)
        gain = after - start + self._gain_of_turn(state, turned)
        return self._with_objective(turned, derivatives, gain), derivatives

    def _orthogonalise(self, state: State) -> tuple[Float64Array, State]:
        """Return T (Algorithm 8), and the state in which z became T z, with A as it is then."""
        settings, latents = self.settings, state.latents
        # T <- OrthogonalisationMatrix(C, C^z, S, N)
        transform = orthogonalising_transform(
            state.parameters.basis_energy,
            latents.scatter,
            latents.covariance_sum,
            latents.n_images,
            settings.prior_dof,
            settings.layout.blocks,
        )
        # C^z <- T C^z T', S <- T S T'
        latents = latents.transformed(transform)
        parameters = replace(
            # W^a <- W^a T^-1, W^v <- W^v T^-1
            state.parameters.transformed(transform, settings),
            # A <- (N + nu0) (C^z + S + Lambda_0^-1)^-1
            latent_precision=expected_precision(
                latents.scatter + latents.covariance_sum, latents.n_images, settings.prior_dof
            ),
        )
        turn = Turn(transform, state.parameters.shape_basis)
        return transform, replace(state, parameters=parameters, latents=latents, turn=turn)

    # ---- F, which no step lowers, and the objective that people see

    def _with_objective(self, state: State, derivatives: Sums, gain: float) -> State:
        """Return the state with its objective appended, given what the iteration gained."""
        if len(state.objective) != state.level_begins[-1]:
            value = state.objective[-1] + gain
        else:
            value = approximate_evidence(
                derivatives.scalar("log_likelihood"),
                state.latents,
                state.parameters.basis_energy,
                self.regularisation.mean_energy(state.parameters.mean),
                self.settings.balance,
                self.settings.prior_dof,
            )
        return replace(state, objective=(*state.objective, value))

    def _gain_of_turn(self, before: State, after: State) -> float:
        """Return by how much a turn of the latents, and A as it is then, raise the objective."""
        return self.settings.balance[0] * gain_of_turn(
            before.latents,
            before.parameters.latent_precision,
            before.parameters.basis_energy,
            after.latents,
            after.parameters.basis_energy,
            self.settings.prior_dof,
        )

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

    # ---- the mean and the noise at the start

    def _starting_mean(self, moments: Sums) -> tuple[Float32Array, Float64Array]:
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
                observed = to_host(count.sum(axis=space))
                precision = likelihood.noise_precision(squares, observed, power_of(mean))
        return mean.astype(np.float32), precision
