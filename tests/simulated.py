"""Models, images and cohorts to test with: random ones, and those of the golden files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.ndimage import gaussian_filter

from anamorph import ShapeAppearanceModel
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.objective import joint_log_probability
from anamorph.fitting.sites import LocalSites
from anamorph.geometry import momentum, paths
from anamorph.geometry.operators import field_momentum
from anamorph.images.arrays import ImageFormat
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.settings import LatentLayout, Settings
from anamorph.storage.modelfile import Origin
from tests.conftest import GOLDEN

N_CHANNELS = defaultdict(lambda: 1, gaussian=2, categorical=3)
# Of mean and modes of appearance: rates of 0.1 to 10, and not of 1e-4 to 1e4.
STRENGTH = defaultdict(lambda: 1.0, poisson=0.5)


class Stack:
    """Images that are in memory."""

    def __init__(self, images):
        self.array = np.asarray(images, np.float32)

    def __len__(self):
        return len(self.array)

    def read(self, part):
        return self.array[part]


# ---- random models


def random_settings(likelihood, layout="joint", n_components=3, space=(12, 10), **changes):
    """Return settings that let shape and appearance both matter on a small grid."""
    layout = LatentLayout.named(layout, n_components)
    settings = Settings(
        likelihood_name=likelihood,
        layout=layout,
        space=space,
        n_channels=N_CHANNELS[likelihood],
        voxel_size=(1.0,) * len(space),
        shape_penalty=(0.01, 0.1, 1.0, 0.1, 0.1),
        appearance_penalty=(0.1, 0.2, 0.1),
        mean_penalty=(1e-3, 1e-2, 1e-2),
        balance=(0.9, 0.2),
        prior_dof=float(layout.n_latents),
        n_steps=8,
        decimation=1.0,
    )
    return replace(settings, **changes)


def smooth(generator, shape, n_dims, width=1.5):
    """Return smooth periodic noise of unit variance over the last n_dims axes."""
    sigma = (0,) * (len(shape) - n_dims) + (width,) * n_dims
    fields = gaussian_filter(generator.standard_normal(shape), sigma, mode="wrap")
    return fields / fields.std()


def random_parameters(settings, seed=0, motion=1.0, contrast=1.0):
    """Return a smooth model; a latent of 1 moves by about `motion` voxels."""
    generator = np.random.default_rng(seed)
    layout, space, n_dims = settings.layout, settings.space, settings.n_dims
    strength = STRENGTH[settings.likelihood_name]
    mean = 2 * strength * smooth(generator, (settings.n_channels, *space), n_dims)
    appearance = (
        contrast
        * strength
        * smooth(generator, (max(1, layout.n_appearance), settings.n_channels, *space), n_dims)
    )
    shape = motion * smooth(generator, (max(1, layout.n_shape), n_dims, *space), n_dims, 2.0)
    mean = settings.likelihood.remove_redundancy(mean[None])[0]
    appearance = settings.likelihood.remove_redundancy(appearance)
    precision = np.ones(settings.n_channels)
    if settings.likelihood.has_noise:
        precision = np.linspace(50, 90, settings.n_channels)
    parameters = Parameters(
        mean=mean.astype(np.float32),
        appearance_basis=appearance[: layout.n_appearance].astype(np.float32),
        shape_basis=shape[: layout.n_shape].astype(np.float32),
        basis_energy=np.zeros((layout.n_latents, layout.n_latents)),
        latent_precision=np.eye(layout.n_latents),
        noise_precision=precision,
    )
    return replace(parameters, basis_energy=basis_energy(settings, parameters))


def basis_energy(settings, parameters):
    """Return C = Wv'Lv Wv + Wa'La Wa, in float64."""
    layout = settings.layout
    energy = np.zeros((layout.n_latents, layout.n_latents))
    if layout.n_appearance:
        basis = parameters.appearance_basis.astype(np.float64)
        momenta = field_momentum(basis, settings.appearance_penalty, settings.voxel_size)
        energy[layout.appearance, layout.appearance] += _products(basis, momenta)
    if layout.n_shape:
        basis = parameters.shape_basis.astype(np.float64)
        momenta = momentum(basis, settings.shape_penalty, settings.voxel_size)
        energy[layout.shape, layout.shape] += _products(basis, momenta)
    return energy


def mean_energy(settings, mean):
    """Return mu' L_mu mu, in float64."""
    mean = mean.astype(np.float64)
    return float(np.vdot(mean, field_momentum(mean, settings.mean_penalty, settings.voxel_size)))


def _products(basis, momenta):
    return basis.reshape(len(basis), -1) @ momenta.reshape(len(basis), -1).T


def draw_images(settings, parameters, latents, seed=0, missing=0.0):
    """Return images (N, C, *space) that the model could have made, some voxels NaN."""
    generator = np.random.default_rng(seed)
    expected = Generator(settings, parameters).expected_images(latents).astype(np.float64)
    likelihood = settings.likelihood
    images = likelihood.draw(expected, 1 / parameters.noise_precision, generator)
    n_masks = 1 if likelihood.holds_classes else settings.n_channels
    mask = generator.random((len(latents), n_masks, *settings.space)) < missing
    return np.where(mask, np.float32(np.nan), images)


def random_problem(likelihood, layout="joint", n_images=11, seed=0, missing=0.1, **changes):
    """Return settings, a model, latents and images drawn from it."""
    n_components = changes.pop("n_components", (2, 1) if layout == "separate" else 2)
    settings = random_settings(likelihood, layout, n_components, **changes)
    parameters = random_parameters(settings, seed)
    generator = np.random.default_rng(seed + 1)
    latents = generator.standard_normal((n_images, settings.layout.n_latents))
    return settings, parameters, latents, draw_images(
        settings, parameters, latents, seed + 2, missing
    )  # fmt: skip


def finished_model(likelihood, space, n_channels, voxel_size, *, n_images, n_components, **origin):
    """Return a model that was never fitted but knows what it takes, and images (N, ...) of it.

    Channels are the last axis of images, where there are any.
    """
    settings, parameters, _, images = random_problem(
        likelihood, n_components=n_components, n_images=n_images, missing=0.0,
        space=space, n_channels=n_channels, voxel_size=voxel_size,
    )  # fmt: skip
    has_labels = settings.likelihood.holds_classes
    channel_axis = None if n_channels == 1 or has_labels else len(space) + 1
    model = ShapeAppearanceModel(
        n_components, likelihood=likelihood, channel_axis=channel_axis, voxel_size=voxel_size
    )
    layout = ImageFormat(likelihood, space, n_channels, channel_axis)
    objective = [-9.0, -5.0, -4.0]
    model._set_fitted(layout, settings, parameters, objective, Origin(n_images, **origin))
    return model, images.argmax(axis=1) if has_labels else layout.to_user(images)


def cohort_with(settings, parameters, latents, images, **options):
    """Return a cohort of images that knows their latents and the parameters."""
    cohort = Cohort(Stack(images), settings, range(len(images)), **options)
    cohort.restore(np.array(latents, dtype=np.float64))
    cohort.publish(parameters)
    return cohort


def log_likelihoods(settings, parameters, latents, images):
    """Return ln p(f | z), (N,), computed from scratch."""
    generator = Generator(settings, parameters)
    return generator.log_likelihood(
        generator.appearance(latents), generator.displacement(latents), images
    )


# ---- fits under observation


class WatchedSites(LocalSites):
    """Cohorts that note down F, evaluated from scratch, at every point of a fit.

    `trace` holds (step, F after it) pairs; of several trials of one step the last is kept, which
    is the one that the fit goes on from. F is that of the iteration it belongs to: with A, and in
    the coordinates of the latents, as they were when it began. `likelihood_errors` are relative
    differences between the log-likelihoods that cohorts answer and those from scratch.
    """

    STEPS: ClassVar = {
        "appearance_derivatives": "shape",
        "propose_latents": "appearance",
        "update_latents": "latents",
        "shape_derivatives": "mean",
    }

    def __init__(self, cohorts):
        super().__init__(cohorts)
        self.settings = cohorts[0].settings
        self.trace = []
        self.likelihood_errors = []
        self.questions = []
        self._turn = np.eye(self.settings.layout.n_latents)
        self._next = None  # F as the next iteration sees it, and its A

    def publish(self, parameters):
        super().publish(parameters)
        self.parameters = parameters

    def ask(self, question, **arguments):
        self.questions.append(question)
        if question == "appearance_derivatives" and self._next is not None:
            self._begin_iteration()
        if question == "mean_derivatives":
            self._note("noise", self._joint())
        answer = super().ask(question, **arguments)
        if question in ("shape_derivatives", "transform_latents"):
            move = arguments.get("move")
            self._turn = self._turn if move is None else move.matrix @ self._turn
        if question in self.STEPS:
            self._check_likelihood(question, answer)
        if question == "shape_derivatives":
            if self.trace:
                self._note("mean", self._joint())
            self._next = self.parameters.latent_precision
        elif question in self.STEPS:
            self._note(self.STEPS[question], self._joint())
        return answer

    def _begin_iteration(self):
        self._turn = np.eye(len(self._turn))
        self._precision, self._next = self._next, None
        self.trace.append(("start", self._joint_at(self._evaluated)))

    def _note(self, step, value):
        if self.trace and self.trace[-1][0] == step:
            self.trace.pop()
        self.trace.append((step, value))

    def _check_likelihood(self, question, answer):
        expected = self._log_likelihood()
        if question == "shape_derivatives":
            self._evaluated = (self.parameters, self._latents(), expected)
        error = abs(answer.scalar("log_likelihood") - expected) / self._likelihood_scale
        self.likelihood_errors.append(error)

    def _latents(self):
        return np.concatenate([cohort.latents for cohort in self.cohorts])

    def _log_likelihood(self):
        images = np.concatenate([cohort.images.read(slice(None)) for cohort in self.cohorts])
        values = log_likelihoods(self.settings, self.parameters, self._latents(), images)
        self._likelihood_scale = float(np.abs(values).sum())  # their sum may be almost zero
        return float(values.sum())

    def _joint(self):
        return self._joint_at((self.parameters, self._latents(), self._log_likelihood()))

    def _joint_at(self, state):
        parameters, latents, log_likelihood = state
        back = latents @ np.linalg.inv(self._turn).T
        return joint_log_probability(
            log_likelihood,
            back.T @ back,
            self._precision,
            self._turn.T @ basis_energy(self.settings, parameters) @ self._turn,
            mean_energy(self.settings, parameters.mean),
            len(latents),
            self.settings.balance,
        )


# ---- golden files


def load(name):
    """Return a golden file as a dictionary."""
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


def golden_settings(file):
    """Return the settings of a golden em or latents file."""
    assert not file["separate"]
    n_latents = int(file["n_shape"])
    mean = file["mean"] if "mean" in file else file["initial_mean"]
    return Settings(
        likelihood_name=str(file["likelihood"]),
        layout=LatentLayout.named("joint", n_latents),
        space=mean.shape[1:],
        n_channels=len(mean),
        voxel_size=tuple(map(float, file["voxel_size"])),
        shape_penalty=tuple(map(float, file["velocity_penalty"])),
        appearance_penalty=tuple(map(float, file["appearance_penalty"])),
        mean_penalty=tuple(map(float, file["mean_penalty_per_image"])),
        balance=tuple(map(float, file["lambdas"])),
        prior_dof=float(file["nu0"]),
        n_steps=int(file["n_steps"]),
        decimation=1.0,
    )


def golden_images(name):
    """Return the images of a golden run: where one gaussian channel is missing, so are all."""
    images = load(f"em_{name}")["images"]
    return np.where(np.isnan(images).any(axis=1, keepdims=True), np.float32(np.nan), images)


def golden_parameters(settings, file, prefix="", latent_precision=None):
    """Return the model in a golden file."""
    n_latents = settings.layout.n_latents
    parameters = Parameters(
        mean=file[f"{prefix}mean"],
        appearance_basis=file[f"{prefix}appearance_basis"],
        shape_basis=file[f"{prefix}velocity_basis"],
        basis_energy=np.zeros((n_latents, n_latents)),
        latent_precision=np.eye(n_latents) if latent_precision is None else latent_precision,
        noise_precision=np.broadcast_to(
            file[f"{prefix}noise_precision"], settings.n_channels
        ).astype(np.float64),
    )
    return replace(parameters, basis_energy=basis_energy(settings, parameters))


def multiply_translations(monkeypatch, gain):
    """Make shooting multiply G at frequency zero by a gain, as the float32 of the reference does.

    The momentum of a translation is conserved along a geodesic, so that the total velocity after
    the first step is the gain times that of the initial velocity.
    """
    exact = paths.sum_over_space

    def inexact(fields, is_penalised):
        return float(np.squeeze(gain)) * exact(fields, is_penalised)

    monkeypatch.setattr(paths, "sum_over_space", inexact)
