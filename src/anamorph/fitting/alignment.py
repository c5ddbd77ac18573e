"""Poses first: images are brought onto their evolving mean before anything else is learnt.

    background <- what images have at their borders            "border_moments"
    R_n <- translation of the centre of mass to the centre     "start_poses"
    on grids from coarse to fine, a few times each:
        template <- mean of the images at their poses          "posed_moments"
        R_n <- the best match with the template                "match_poses"
        R_n <- M^-1 R_n, with the mean pose M
    on the model's own grid:
        mu <- mean of the images at their poses                "posed_moments"
        R_n <- steps on ln p(f_n, q_n | mu)                    "update_poses"

This is registration of a group without modes. Nothing but sums over images leaves the sites.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Float32Array, Float64Array, ReadableImages
from anamorph.fitting.sites import Sites
from anamorph.fitting.sums import Move, Sums
from anamorph.geometry.pose import PoseFrame
from anamorph.model.background import background_image, background_level, border_sums
from anamorph.model.parameters import Parameters
from anamorph.model.pose_search import centre_poses, search_levels
from anamorph.model.settings import Settings

_SEARCHES, _MATCHES, _FINEST_ROUNDS = 3, 2, 2
_FINEST_STEPS = 4
_MOST_LOOKED_AT = 64
_FEW_VOXELS, _SMALL_SHARE = 2.5, 0.06  # of an axis, by which centres of mass may differ
_PRIOR_COUNT = 0.2  # voxels of background that each voxel of a template counts in addition

#: From the answer to "posed_moments" on the grid of the model to a mean and a noise precision.
MeanOf = Callable[[Sums], tuple[Float32Array, Float64Array]]


class Alignment:
    """The first poses of the images at some sites.

    Parameters
    ----------
    sites : Sites
    settings : Settings
    mean_of : callable
    """

    def __init__(self, sites: Sites, settings: Settings, mean_of: MeanOf) -> None:
        self._sites, self._settings, self._mean_of = sites, settings, mean_of

    def start(self) -> tuple[Float32Array, Float64Array, Float64Array]:
        """Find poses; return mean (C, *space), noise precision (C,) and background (2, C)."""
        background = self._background()
        expected = background_image(self._settings, background)
        precision = background[1] if self._settings.likelihood.has_noise else 0 * background[1]
        sums = self._sites.ask("start_poses", background=np.stack([expected, precision]))
        self._centre(sums)
        *coarse, finest = search_levels(self._settings)
        for number, frame in enumerate(coarse or [finest]):
            for _ in range(_SEARCHES if number == 0 else _MATCHES):
                self._match(expected, frame.factors, search=number == 0)
        for _ in range(_FINEST_ROUNDS):
            mean, precision = self._mean(finest.factors)
            around = _cautious(background, precision)
            self._sites.publish(self._parameters(mean, precision, around))
            question = "update_poses"
            self._centre(self._sites.ask(question, n_steps=_FINEST_STEPS, has_modes=False))
        mean, precision = self._mean(finest.factors)
        return mean, precision, _cautious(background, precision)

    def background(self, precision: Float64Array) -> Float64Array:
        """Return the background (2, C) of images whose noise precision (C,) is known."""
        return _cautious(self._background(), precision)

    def _background(self) -> Float64Array:
        sums = self._sites.ask("border_moments")
        return background_level(
            self._settings.likelihood, sums["count"], sums["total"], sums["squares"]
        )

    def _match(self, background: Float64Array, factors: tuple[int, ...], *, search: bool) -> None:
        sums = self._sites.ask("posed_moments", factors=factors)
        count, total = to_host(sums["count"]), to_host(sums["total"])
        level = background.reshape(-1, *(1,) * (count.ndim - 1))
        template = (total + _PRIOR_COUNT * level) / (count + _PRIOR_COUNT)
        self._centre(
            self._sites.ask(
                "match_poses",
                template=template.astype(np.float32),
                background=background,
                factors=factors,
                search=search,
            )
        )

    def _centre(self, sums: Sums) -> None:
        """Take the mean pose away from all poses."""
        move = Move.posing(self._settings.layout.n_latents, -sums["pose_sum"] / sums.n_images)
        self._sites.ask("transform_latents", move=move)

    def _mean(self, factors: tuple[int, ...]) -> tuple[Float32Array, Float64Array]:
        return self._mean_of(self._sites.ask("posed_moments", factors=factors))

    def _parameters(
        self, mean: Float32Array, precision: Float64Array, background: Float64Array
    ) -> Parameters:
        """Return a model that is nothing but a mean."""
        layout, space = self._settings.layout, self._settings.space
        n_latents = layout.n_latents
        zeros = np.zeros_like
        return Parameters(
            mean=mean,
            appearance_basis=zeros(mean, shape=(layout.n_appearance, *mean.shape)),
            shape_basis=zeros(mean, shape=(layout.n_shape, len(space), *space)),
            basis_energy=np.zeros((n_latents, n_latents)),
            latent_precision=np.eye(n_latents),
            noise_precision=precision,
            background=background,
        )


def remark_on_places(images: ReadableImages, settings: Settings) -> str | None:
    """Return what to say if objects in images are far from each other; None if they are not.

    Centres of mass of at most some dozens of images are looked at.
    """
    step = -(-len(images) // _MOST_LOOKED_AT)
    some = [images.read(slice(n, n + 1)) for n in range(0, len(images), step)]
    background = background_level(
        settings.likelihood, *np.sum([border_sums(one) for one in some], axis=0)
    )
    around = np.stack([background_image(settings, background), background[1]])
    if not settings.likelihood.has_noise:
        around[1] = 0
    frame = PoseFrame("translation", settings.space, settings.voxel_size)
    centres = np.concatenate([centre_poses(one, around, frame) for one in some]) / frame.size
    spread = centres.std(axis=0)
    worst = int(np.argmax(spread / settings.space))
    if spread[worst] < max(_FEW_VOXELS, _SMALL_SHARE * settings.space[worst]):
        return None
    share = spread[worst] / settings.space[worst]
    return (
        f"Objects are not at the same place: centres of mass differ by {share:.0%} of axis {worst} "
        "(standard deviation). Without alignment, modes will be about places; align='rigid', "
        "'similarity' or 'affine' (--align) finds a pose for each image"
    )


def _cautious(background: Float64Array, precision: Float64Array) -> Float64Array:
    """Return a background (2, C) that is no surer of itself than a mean of its images is.

    Images that are dark all around would make it infinitely sure.
    """
    return np.stack([background[0], np.minimum(background[1], precision)])
