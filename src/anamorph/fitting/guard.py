"""A guard of the numbers of a fit: NaN and infinity stop it, and it says what is suspected.

The state before is whole, and so is the checkpoint that holds it.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from anamorph.arrays.batches import split_evenly
from anamorph.fitting.errors import FitError
from anamorph.fitting.objective import LatentSums
from anamorph.fitting.state import State
from anamorph.images.collection import ImageCollection
from anamorph.model.hyperparameters import HYPERPARAMETERS, MODEL
from anamorph.model.settings import Settings

logger = logging.getLogger("anamorph")

_LARGEST_VALUE = 1e15  # squares of larger ones, summed up, leave float32
_OUTLYING = 1e4  # times the median of the largest values of all images
_EXTREME = 1e6  # times the default, or a millionth of it
_FALL = 0.05  # of the range of the objective, which a healthy fit does not lose
_BLOCK_BYTES = 2**26


@contextmanager
def finite_numbers(where: str) -> Iterator[None]:
    """Turn what NaN and infinity do to a part of a fit into a FitError.

    Parameters
    ----------
    where : str
        E.g. "in iteration 3".
    """
    # The error says it once, where NumPy would warn many times, in other threads too.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"anamorph\.")
        try:
            yield
        except (ArithmeticError, np.linalg.LinAlgError):
            raise FitError(f"the fit met numbers that are not finite {where}") from None
        except ValueError as error:  # of the checks of solvers and of geometry
            if "finite" not in str(error):
                raise
            raise FitError(f"the fit met numbers that are not finite {where}") from None


def next_state(iterations: Iterator[State], number: int) -> State:
    """Return the state after the next iteration, or raise a FitError if it is not finite.

    Parameters
    ----------
    iterations : iterator of State
    number : int
        Of the iteration, from 1.
    """
    with finite_numbers(f"in iteration {number}"):
        state = next(iterations)
    if not math.isfinite(state.objective[-1]):
        raise FitError(f"the objective is {state.objective[-1]} after iteration {number}")
    return state


def warn_of_objective(objective: Sequence[float]) -> None:
    """Warn if the objective of a fit is well below where it was, or has not moved at all."""
    if len(objective) < 2:
        return
    highest, last = max(objective), objective[-1]
    if len(objective) > 2 and highest == min(objective):
        logger.warning(
            "The objective did not change: nothing was learnt; intensities or settings are far "
            "from what is usual"
        )
    if highest - last > _FALL * (highest - min(objective)) and highest - last > 1e-4 * abs(highest):
        logger.warning(
            "The objective fell from %.7g to %.7g: do not trust the model; intensities or settings "
            "are far from what is usual",
            *(highest, last),
        )


def warn_of_latents(latents: LatentSums, settings: Settings) -> None:
    """Warn if the latents of all images are 0, or so near it that only rounding tells them apart.

    Parameters
    ----------
    latents : LatentSums
        At the end of a fit.
    settings : Settings
        Of the fit.
    """
    if latents.is_alive.any():
        return
    named = [_describe(name, value) for name, value in _extreme_settings(settings)]
    logger.warning(
        "No latent differs between images: the model is its mean image and nothing else; %s",
        f"{' and '.join(named)}: come closer to the default"
        if named
        else "the images may be the same, or the penalties too strong for them",
    )


def suspected_cause(images: ImageCollection, settings: Settings) -> str:
    """Return which image or setting is suspected where a fit has met NaN or infinity.

    Parameters
    ----------
    images : ImageCollection
    settings : Settings
        Of the fit.
    """
    largest = _largest_values(images)
    worst, median = int(largest.argmax()), float(np.median(largest))
    if largest[worst] > min(_LARGEST_VALUE, _OUTLYING * median):
        return (
            f"{images.name(worst)} has values up to {largest[worst]:.2g}, and the median of all "
            f"images is {median:.2g}: divide large values by a common factor, or leave it out"
        )
    settings_named = [_describe(name, value) for name, value in _extreme_settings(settings)]
    if settings_named:
        return f"{' and '.join(settings_named)}: come closer to the default"
    return "no image and no setting stands out: try larger penalties, or fewer components"


def _largest_values(images: ImageCollection) -> Any:
    """Return the largest absolute value of each image, (N,)."""
    first = images.read(slice(0, 1))
    size = max(1, _BLOCK_BYTES // first.nbytes)
    found = []
    for part in split_evenly(slice(0, len(images)), size):
        values = np.abs(images.read(part)).reshape(part.stop - part.start, -1)
        found.append(np.nan_to_num(values, nan=0.0).max(axis=1))
    return np.concatenate(found)


def _extreme_settings(settings: Settings) -> list[tuple[str, Any]]:
    """Return names and values of settings that are far from their defaults."""
    likelihood = settings.likelihood
    defaults: dict[str, Any] = {
        f"{name}_penalty": weights
        for name, weights in likelihood.default_penalties.items()
        # Other defaults are in units of intensity: see `model.scaled_penalties`.
        if name == "shape" or not likelihood.has_noise
    }
    defaults |= {
        name: entry.default
        for name, entry in HYPERPARAMETERS.items()
        if entry.group == MODEL and isinstance(entry.default, float | tuple)
    }
    defaults["decimation"] = 1.0  # of the fit, where it is not given
    defaults["voxel_size"] = (1.0,) * settings.n_dims
    defaults["prior_dof"] = float(settings.layout.n_latents)
    return [
        (name, value)
        for name, default in defaults.items()
        # Penalties of second derivatives go with the fourth power of the size of voxels.
        if _is_extreme(value := getattr(settings, name), default, 4 if name == "voxel_size" else 1)
    ]


def _is_extreme(value: Any, default: Any, power: int) -> bool:
    values, usual = (np.atleast_1d(np.asarray(one, np.float64)) for one in (value, default))
    if values.shape != usual.shape or not usual.max() > 0:
        return False
    ratio = (values.max() / usual.max()) ** power
    return bool(ratio > _EXTREME or ratio < 1 / _EXTREME)


def _describe(name: str, value: Any) -> str:
    return f"{name}={value!r}"
