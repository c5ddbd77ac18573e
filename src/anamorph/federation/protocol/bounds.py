"""Public bounds on what an image contributes to each sum, and the fixed-point ranges they give.

Everybody computes them from what everybody knows: settings, the parameters of the fit, the agreed
number of images and range of intensities, and earlier totals. So the range of a masked sum is known
before its values are, no site ever has to say that its values do not fit, and a total that exceeds
the number of images times the bound is refused.

Norms of derivatives are bounded by ten times their root mean square over all images when the same
question was asked before, in units of the precision of the noise (or twice what follows, if that is
less), and the first time by twice those of the most extreme images that the agreed range of
intensities allows. Latents are bounded by ten times what the prior expects, coordinates of poses
by four times what theirs does: twice the extent of the box, 4 radian, and sizes from 1/7 to 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anamorph.arrays.typing import Array
from anamorph.federation.protocol.answers import N_IMAGES, AnswerSchema
from anamorph.federation.protocol.errors import MessageError, VerificationError
from anamorph.federation.protocol.questions import NORMS
from anamorph.federation.protocol.schemas import LEAST_EXPONENT, MOST_EXPONENT
from anamorph.fitting.limits import Limits
from anamorph.fitting.sums import Sums
from anamorph.model.generator import Generator
from anamorph.model.hyperparameters import GLOBAL
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings

#: How far above the usual contribution of an image the bound is.
_ROOM = 10.0
_ROOM_OF_EXTREMES = 2.0
# Latents at the start are drawn from a standard normal distribution, and beyond it never.
_STARTING_LATENT = 12.0
_LOG_DETERMINANT_PER_LATENT = 100.0
_DEVIATIONS_OF_POSE = 4.0
# Voxels of an image that its pose makes smaller count together at a voxel of the template: norms of
# what n of them give are up to the root of n times as large.
_MOST_AT_A_VOXEL = 64.0
_ROOM_OF_POSES = 4.0
#: Of an image in an analysis.
MOST_WEIGHT = 2.0**20
#: Two parties may round a bound to neighbouring powers of two.
_EXPONENT_SLACK = 1
_ROUNDING = 1.01
# Share of its bound by which a sum may be wrong that is added up in fixed and in floating point.
_SLACK = 1e-6
_NOT_NEGATIVE = {*NORMS, "count", "squares", "observed", "n_unimproved", "errors_by_weight"}


class Bounds:
    """What one image may contribute to the sums of one fit.

    Parameters
    ----------
    settings : Settings
    largest : float
        No intensity at any site exceeds this.
    norms : dict, optional
        By question, as its last total showed it: root mean squares of the norms of gradients and
        of Hessians, over the precision of the noise, and the mean log-likelihood. By default
        nothing was asked yet.
    """

    def __init__(
        self, settings: Settings, largest: float, norms: Mapping[str, list[float]] | None = None
    ) -> None:
        # Matched images are no more extreme than those that the agreed range allows.
        self._settings, self._largest = replace(settings, intensity=GLOBAL), largest
        self._matches_intensities = settings.matches_intensities
        self.norms = dict(norms or {})

    def limits(self, question: str, parameters: Parameters | None) -> Limits:
        """Return the limits of contributions to the answer to a question.

        Parameters
        ----------
        question : str
        parameters : Parameters or None
            That the question is about. None at the start, when there are none.
        """
        n_voxels = math.prod(self._settings.space)
        squares = n_voxels * (4 * self._largest) ** 2
        pose = tuple(_DEVIATIONS_OF_POSE / np.sqrt(self._settings.frame.prior_precision))
        if parameters is None or question == "start_latents":
            return Limits(_STARTING_LATENT, 0, 0, 0, 0, 0, squares, 0, pose=pose)
        generator = Generator(self._settings, parameters)
        precision = generator.prior_precision
        covariance = np.linalg.inv(precision)
        expected = np.trace(np.linalg.inv(parameters.latent_precision))
        extremes = self._extremes(generator, question)
        usual, room = extremes, _ROOM_OF_EXTREMES
        if question in self.norms:
            # A site that claims ever larger norms would raise the bound tenfold each time.
            units = _unit(parameters), _unit(parameters), 1.0
            seen = zip(units, self.norms[question], extremes, strict=True)
            usual = [min(unit * norm, _ROOM_OF_EXTREMES * most) for unit, norm, most in seen]
            room = _ROOM
        gradient, hessian, log_likelihood = (room * norm for norm in usual)
        n_latents = len(precision)
        log_determinant = abs(float(np.linalg.slogdet(precision)[1]))
        return Limits(
            latent=_ROOM * math.sqrt(expected),
            gradient=gradient,
            hessian=hessian,
            log_likelihood=log_likelihood + room * n_voxels * self._settings.n_channels,
            log_determinant=log_determinant + _LOG_DETERMINANT_PER_LATENT * n_latents,
            covariance=1.01 * float(covariance.diagonal().max()),
            squares=squares,
            errors=self._settings.n_channels * squares * float(parameters.noise_precision.max()),
            most_log_likelihood=self._log_likelihood_of_perfect_model(parameters),
            pose=pose,
        )

    def _log_likelihood_of_perfect_model(self, parameters: Parameters) -> float:
        """Return ln p(f | z) of an image that the model shows exactly: of no other is it larger."""
        likelihood, precision = self._settings.likelihood, parameters.noise_precision
        if not likelihood.has_noise:
            return 0.0  # probabilities
        if parameters.background is not None:  # which may explain any voxel, and surer
            precision = np.maximum(precision, parameters.background[1])
        n_voxels = math.prod(self._settings.space)
        observed = np.where(precision > 2 * np.pi, n_voxels, 0)
        density = likelihood.log_likelihood_of_sums(np.zeros(len(precision)), observed, precision)
        if self._matches_intensities:
            # In units of its own deviation: that of the matched image, which is in the range.
            deviation = max(1.0, _ROOM * self._largest)
            density += n_voxels * len(precision) * math.log(deviation)
        return self._settings.decimation * density

    def _extremes(self, generator: Generator, question: str) -> list[float]:
        """Return norms of derivatives, and log-likelihoods, of images as extreme as can be."""
        images = self._extreme_images()
        mean = np.broadcast_to(generator.parameters.mean, images.shape)
        appearance = np.ascontiguousarray(mean)
        derivatives = generator.derivatives(appearance, None, images)
        fields = derivatives.gradient, derivatives.hessian
        if question == "shape_derivatives" and self._settings.layout.n_shape:
            fields = generator.shape_derivatives(appearance, derivatives)
        room = _ROOM_OF_POSES if self._settings.has_poses else 1.0
        largest = float(np.abs(derivatives.log_likelihood).max())
        largest += self._largest_outside(generator.parameters, images)
        return [*(room * _norm_of(field) for field in fields), largest]

    def _largest_outside(self, parameters: Parameters, images: Array) -> float:
        """Return the most that background and prior of a pose add to a log-likelihood."""
        if parameters.background is None:
            return 0.0
        level, precision = parameters.background
        level = level.astype(np.float32).reshape(-1, *(1,) * self._settings.n_dims)
        appearance = np.ascontiguousarray(np.broadcast_to(level, images.shape))
        values = self._settings.likelihood.log_likelihood(appearance, images, precision)
        prior = self._settings.frame.n_coordinates * _DEVIATIONS_OF_POSE**2 / 2
        return self._settings.decimation * float(np.abs(values).max()) + prior

    def _extreme_images(self) -> Array:
        """Return images (n, C, *space) that are as bright or dark as can be everywhere."""
        likelihood, n_channels = self._settings.likelihood, self._settings.n_channels
        lowest, highest = likelihood.value_range
        colours = np.array(
            [[max(lowest, -self._largest)] * n_channels, [min(highest, self._largest)] * n_channels]
        )
        if likelihood.holds_classes:
            colours = np.eye(n_channels)
        ones = np.ones(self._settings.space)
        images: Array = np.multiply.outer(colours, ones).astype(np.float32)
        return images

    def of_fields(self, question: str, limits: Limits, schema: AnswerSchema) -> dict[str, float]:
        """Return the largest number that one image adds to any entry of each field."""
        n_voxels = math.prod(self._settings.space)
        weight = 1.0 if question == "mean_derivatives" else limits.latent
        z = limits.latent * (MOST_WEIGHT if question == "statistics" else 1.0)
        bounds = {
            N_IMAGES: 1.0,
            "count": 1.0,
            "total": self._largest,
            "squares": max(limits.squares, 1.0),
            "observed": float(n_voxels),
            "n_unimproved": 1.0,
            "latent_sum": z,
            "latent_scatter": z * limits.latent,
            "covariance_sum": limits.covariance,
            "log_likelihood": limits.log_likelihood,
            "log_determinant_sum": limits.log_determinant,
            "gradient": weight * limits.gradient,
            "hessian": weight**2 * limits.hessian,
            NORMS[0]: limits.gradient**2,
            NORMS[1]: limits.hessian**2,
            "errors_by_weight": limits.errors,
            "correlation": 1.0,
            "squared_correlation": 1.0,
            "group_size": MOST_WEIGHT,  # with room for the noise of private statistics
            "weight_sum": MOST_WEIGHT,
            "pose_sum": max(limits.pose, default=0.0),
        }
        if question == "border_moments":
            n_inner = math.prod(max(n - 2, 0) for n in self._settings.space)
            bounds |= _times(n_voxels - n_inner, bounds, "count", "total")
        elif question == "posed_moments":
            bounds |= _times(_MOST_AT_A_VOXEL, bounds, "count", "total")
        return {name: bounds[name] for name in schema.shapes}

    def exponents(
        self, question: str, limits: Limits, schema: AnswerSchema, n_images: int
    ) -> dict[str, int]:
        """Return e for each field: its total is at most 2^e.

        Parameters
        ----------
        question : str
        limits : Limits
        schema : AnswerSchema
        n_images : int
            At all sites that answer.
        """
        bounds = self.of_fields(question, limits, schema)
        for name, bound in bounds.items():
            if not math.isfinite(n_images * bound):
                raise MessageError(
                    f"the bound of {name} in {question} is not finite: bring the images of all "
                    "sites to a smaller scale"
                )
        exponents = {name: math.frexp(n_images * bound)[1] for name, bound in bounds.items()}
        return {name: min(max(e, LEAST_EXPONENT), MOST_EXPONENT) for name, e in exponents.items()}

    def check_total(self, question: str, limits: Limits, sums: Sums, n_images: int) -> None:
        """Raise a VerificationError if a total exceeds what the agreed images could add up to.

        Parameters
        ----------
        question : str
        limits : Limits
        sums : Sums
            The total.
        n_images : int
            As agreed, of all sites that answer.
        """
        if sums.n_images != n_images:
            raise VerificationError(
                f"the total of {question} is about {sums.n_images} images, but {n_images} were "
                "agreed on"
            )
        schema = AnswerSchema({name: field.shape for name, field in sums.fields.items()})
        for name, bound in self.of_fields(question, limits, schema).items():
            if name == N_IMAGES:
                continue
            most, field = n_images * bound, sums[name]
            if name in _NOT_NEGATIVE and np.min(field, initial=0.0) < -_SLACK * most:
                raise VerificationError(
                    f"{name} in the total of {question} is negative: a site answered wrong numbers"
                )
            if name == "pose_sum":  # each coordinate has a bound of its own
                field = field * bound / limits.pose
            if _largest(name, field) > _ROUNDING * most:
                raise VerificationError(
                    f"{name} in the total of {question} is {_largest(name, field):.3g}, more than "
                    f"{n_images} images can add up to: a site answered wrong numbers"
                )
            perfect = n_images * limits.most_log_likelihood
            if name == "log_likelihood" and float(field) > perfect + _SLACK * most:
                raise VerificationError(
                    f"{name} in the total of {question} is {float(field):.7g}, and that of a "
                    f"perfect model is {perfect:.7g}: a site answered wrong numbers"
                )

    def learn(self, question: str, sums: Sums, parameters: Parameters | None) -> Sums:
        """Learn from a total what is usual; return the total without the sums for that.

        Parameters
        ----------
        question : str
        sums : Sums
            The total.
        parameters : Parameters or None
            That the question was about.
        """
        if "log_likelihood" in sums.fields and parameters is not None:
            unit = _unit(parameters)
            squares = [float(sums.fields.get(name, 0.0)) / sums.n_images for name in NORMS]
            norms = [math.sqrt(max(square, 0.0)) / unit for square in squares]
            self.norms[question] = [*norms, abs(sums.scalar("log_likelihood")) / sums.n_images]
        fields = {name: value for name, value in sums.fields.items() if name not in NORMS}
        return Sums(sums.n_images, fields)


def check_exponents(announced: Mapping[str, int], own: Mapping[str, int]) -> None:
    """Raise a VerificationError unless announced exponents are those computed here, to rounding."""
    if announced.keys() != own.keys():
        raise VerificationError("the exponents are not those of the fields of this question")
    for name, exponent in own.items():
        if abs(announced[name] - exponent) > _EXPONENT_SLACK:
            raise VerificationError(
                f"the range of {name} is 2^{exponent} here, but 2^{announced[name]} was announced"
            )


def _unit(parameters: Parameters) -> float:
    """Return the precision of the noise as a power of two, which is the same at all sites.

    Derivatives are as large as it is, and one iteration may raise it tenfold.
    """
    return 2.0 ** math.frexp(float(parameters.noise_precision.max()))[1]


def _times(factor: float, bounds: Mapping[str, float], *names: str) -> dict[str, float]:
    return {name: factor * bounds[name] for name in names}


def _norm_of(fields: Array) -> float:
    """Return the largest norm of the fields (n, ...) of some images."""
    return float(np.linalg.norm(fields.reshape(len(fields), -1).astype(np.float64), axis=1).max())


def _largest(name: str, field: Any) -> float:
    """Return what is bounded of a sum: of derivatives the norm of a column, or else an entry."""
    if name in ("gradient", "hessian"):
        return max((float(np.linalg.norm(column)) for column in field), default=0.0)
    return float(np.abs(field).max()) if np.size(field) else 0.0
