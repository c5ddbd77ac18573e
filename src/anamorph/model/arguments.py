"""Arguments of the estimator: checked one by one, with an error that says what is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.geometry.fields import check_penalty, check_voxel_size
from anamorph.images.arrays import ImageFormat
from anamorph.latents import check_prior_dof
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.settings import LatentLayout, Settings

Float64Array = NDArray[np.float64]

LAYOUTS = ("joint", "separate", "shape", "appearance")


def checked_settings(
    arguments: Mapping[str, Any],
    image_format: ImageFormat,
    n_images: int,
    voxel_size: tuple[float, ...] | None = None,
) -> Settings:
    """Return the settings of a fit.

    Parameters
    ----------
    arguments : dict
        Those of the estimator.
    image_format : ImageFormat
    n_images : int
    voxel_size : 2 or 3 numbers, optional
        Of the images, unless an argument says otherwise.
    """
    check_choice("latents", arguments["latents"], LAYOUTS)
    layout = LatentLayout.named(arguments["latents"], checked_components(arguments["n_components"]))
    if layout.n_latents > n_images - 1:
        raise ValueError(
            f"n_components must be at most the number of images less one, got "
            f"{layout.n_latents} for {n_images} images"
        )
    check_integer("n_iter", arguments["n_iter"], 0)
    check_integer("n_steps", arguments["n_steps"], 1)
    for name in ("tol", "prior_dof"):
        if arguments[name] is not None:
            check_number(name, arguments[name])
    decimation = arguments["decimation"]
    if not is_number(decimation) or decimation == 0:
        raise ValueError(f"decimation must be a positive number, got {decimation!r}")
    if arguments["memory_budget"] is not None:
        check_integer("memory_budget", arguments["memory_budget"], 1)
    prior_dof = float(
        layout.n_latents if arguments["prior_dof"] is None else arguments["prior_dof"]
    )
    check_prior_dof(prior_dof, layout.n_latents)
    if arguments["voxel_size"] is not None:
        voxel_size = arguments["voxel_size"]
    return Settings(
        likelihood_name=image_format.likelihood,
        layout=layout,
        space=image_format.space,
        n_channels=image_format.n_channels,
        voxel_size=check_voxel_size(voxel_size, len(image_format.space)),
        shape_penalty=_checked_penalty("shape", arguments),
        appearance_penalty=_checked_penalty("appearance", arguments),
        mean_penalty=_checked_penalty("mean", arguments),
        balance=checked_balance(arguments["balance"]),
        prior_dof=prior_dof,
        n_steps=int(arguments["n_steps"]),
        decimation=float(decimation),
    )


def _checked_penalty(name: str, arguments: Mapping[str, Any]) -> tuple[float, ...]:
    """Return a penalty as given, or the default of the likelihood."""
    default = LIKELIHOODS[arguments["likelihood"]].default_penalties[name]
    given = arguments[f"{name}_penalty"]
    return check_penalty(default if given is None else given, len(default), f"{name}_penalty")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise a ValueError unless a value is one of some words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def checked_components(n_components: object) -> int | tuple[int, int]:
    """Return the number of latents, or the numbers for appearance and shape."""
    if isinstance(n_components, tuple | list):
        if len(n_components) != 2:
            raise ValueError(f"n_components must be an integer or a pair, got {n_components!r}")
        for number in n_components:
            check_integer("n_components", number, 1)
        return int(n_components[0]), int(n_components[1])
    check_integer("n_components", n_components, 1)
    return int(n_components)  # type: ignore[call-overload, no-any-return]


def check_integer(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    """Raise a ValueError unless a value is an integer, at least the lowest, at most the highest."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not lowest <= value <= (np.inf if highest is None else highest):  # type: ignore[operator]
        accepted = f">= {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ValueError(f"{name} must be an integer {accepted}, got {value!r}")


def is_number(value: object) -> bool:
    """Tell whether a value is a finite number that is not negative."""
    return isinstance(value, int | float | np.number) and 0 <= float(value) < np.inf


def check_number(name: str, value: object) -> None:
    """Raise a ValueError unless a value is a finite number that is not negative."""
    if not is_number(value):
        raise ValueError(f"{name} must be a number >= 0, got {value!r}")


def checked_balance(balance: object) -> tuple[float, float]:
    """Return lambda_1 > 0 and lambda_2 >= 0."""
    is_pair = isinstance(balance, Sequence | np.ndarray) and len(balance) == 2
    if not is_pair or not all(map(is_number, balance)) or not balance[0] > 0:  # type: ignore[call-overload, index]
        raise ValueError(f"balance must be two numbers, > 0 and >= 0, got {balance!r}")
    return float(balance[0]), float(balance[1])  # type: ignore[index]


def checked_seed(random_state: object) -> int:
    """Return the seed of the starting latents; None means 0."""
    if random_state is None:
        return 0
    check_integer("random_state", random_state, 0)
    return int(random_state)  # type: ignore[call-overload, no-any-return]


def checked_start(start: ArrayLike | None, n_images: int, n_latents: int) -> Float64Array | None:
    """Return starting latents (N, K), if any are given."""
    if start is None:
        return None
    try:
        latents = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"start must hold numbers, got {type(start).__name__}") from None
    if latents.shape != (n_images, n_latents):
        raise ValueError(f"start must have shape ({n_images}, {n_latents}), got {latents.shape}")
    if not np.isfinite(latents).all():
        raise ValueError("start must be finite, got NaN or infinity")
    return latents
