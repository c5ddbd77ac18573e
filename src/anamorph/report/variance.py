"""How much of the variety of images each mode carries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamorph.estimator import ShapeAppearanceModel
from anamorph.geometry import pull
from anamorph.latents import mode_standard_deviations

Array = NDArray[np.floating]
Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModeShares:
    """Shares of the variance of images, by mode.

    Attributes
    ----------
    together : array of shape (K,)
        Of each mode, summing to 1.
    shape, appearance : arrays of shape (K,)
        The same had the mode only its shape, or only its appearance. They need not add up to
        `together`, since one may undo what the other does.
    """

    together: Float64Array
    shape: Float64Array
    appearance: Float64Array


def mode_shares(model: ShapeAppearanceModel) -> ModeShares:
    """Return how much each mode changes images, in the units of images.

    The variance of a mode is the mean squared difference to the mean image of those at one
    standard deviation to either side of it. Warps are taken to first order, psi = id - v, so that
    this costs two pulls per mode, and not two shootings.
    """
    layout = model.settings_.layout
    deviations = mode_standard_deviations(model.latent_precision_)
    no_appearance = np.zeros_like(model.mean_)
    no_shape = np.zeros((len(model.settings_.space), *model.settings_.space), np.float32)
    variances = np.zeros((layout.n_latents, 3))
    for mode, deviation in enumerate(deviations):
        appearance, velocity = no_appearance, no_shape
        if mode < layout.n_appearance:
            appearance = deviation * model.appearance_basis_[mode]
        if 0 <= mode - layout.first_shape < layout.n_shape:
            velocity = deviation * model.shape_basis_[mode - layout.first_shape]
        changes = ((appearance, velocity), (no_appearance, velocity), (appearance, no_shape))
        variances[mode] = [_variance(model, *change) for change in changes]
    total = max(variances[:, 0].sum(), np.finfo(np.float64).tiny)
    return ModeShares(*(variances / total).T)


def _variance(model: ShapeAppearanceModel, appearance: Array, velocity: Array) -> float:
    expectation = model.settings_.likelihood.expectation
    mean = expectation(model.mean_[None])
    difference = 0.0
    for sign in (np.float32(-1), np.float32(1)):
        warped = pull(model.mean_ + sign * appearance.astype(np.float32), -sign * velocity)
        difference += float(np.square(expectation(warped[None]) - mean).sum(dtype=np.float64))
    return difference / 2
