"""Arguments of the estimator: checked one by one, with an error that says what is accepted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64Array = NDArray[np.float64]


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


def check_integer(name: str, value: object, lowest: int) -> None:
    """Raise a ValueError unless a value is an integer that is not below the lowest."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < lowest:
        raise ValueError(f"{name} must be an integer >= {lowest}, got {value!r}")


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
