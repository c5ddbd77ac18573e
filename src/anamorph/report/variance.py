"""The share of the variance of images that each mode explains."""

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
        Share of each mode; their sum is 1.
    shape, appearance : arrays of shape (K,)
        Shares of the shape alone and of the appearance alone of each mode. Their sum may differ
        from `together`, since one may undo what the other does.
    """

    together: Float64Array
    shape: Float64Array
    appearance: Float64Array


def mode_shares(model: ShapeAppearanceModel) -> ModeShares:
    """Return how much each mode changes images, measured in the units of images.

    The variance of a mode is the mean squared difference between the mean image and the images at
    one standard deviation to either side. Warps are first-order, psi = id - v, which costs two
    pulls per mode instead of two shootings.

    Parameters
    ----------
    model : ShapeAppearanceModel

    Returns
    -------
    ModeShares
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
        variances[mode] = [_measure_variance(model, *change) for change in changes]
    total = max(variances[:, 0].sum(), np.finfo(np.float64).tiny)
    return ModeShares(*(variances / total).T)


def _measure_variance(model: ShapeAppearanceModel, appearance: Array, velocity: Array) -> float:
    expectation = model.settings_.likelihood.expectation
    mean = expectation(model.mean_[None])
    difference = 0.0
    for sign in (np.float32(-1), np.float32(1)):
        warped = pull(model.mean_ + sign * appearance.astype(np.float32), -sign * velocity)
        difference += float(np.square(expectation(warped[None]) - mean).sum(dtype=np.float64))
    return difference / 2
