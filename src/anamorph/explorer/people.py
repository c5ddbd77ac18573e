"""What a page holds of images: latents, names, covariates, and the images themselves.

All of it may be personal. None goes into a page unless it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.explorer.encoding import packed_bytes
from anamorph.images.collection import ImageCollection

_MISSING = 255  # the byte of a missing voxel; others are 0 to 254
_LARGEST = 254


def people_facts(
    latents: Float64Array, names: Sequence[str], covariates: Mapping[str, ArrayLike]
) -> dict[str, Any]:
    """Return what JSON holds of images: names, latents (N, K) and covariates.

    Parameters
    ----------
    latents : array of shape (N, K)
    names : N strings
    covariates : dict of N values each
        Numbers or texts, None where missing.
    """
    return {
        "names": [str(name) for name in names],
        "latents": [[float(f"{z:.6g}") for z in row] for row in latents],
        "columns": [
            {"name": str(name), **_column_facts(values)} for name, values in covariates.items()
        ],
    }


def packed_pictures(
    model: ShapeAppearanceModel,
    images: ImageCollection,
    palette: Mapping[str, Any],
    most_bytes: float,
) -> list[bytes]:
    """Return the first images, as many as fit, compressed.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images : ImageCollection
    palette : dict
        With the lowest and the highest value of each channel that is shown.
    most_bytes : float
        For all images.
    """
    packed: list[bytes] = []
    for n in range(len(images)):
        image = packed_bytes(_as_bytes(model, images.read(slice(n, n + 1))[0], palette))
        most_bytes -= len(image)
        if most_bytes < 0:
            break
        packed.append(image)
    return packed


def _as_bytes(
    model: ShapeAppearanceModel, image: Array, palette: Mapping[str, Any]
) -> NDArray[np.uint8]:
    """Return an image (C, *space) as bytes: shares of the range shown, or the number of a class."""
    is_missing = np.isnan(image)
    if model.settings_.likelihood.holds_classes:
        labels = np.argmax(np.nan_to_num(image), axis=0)[None]
        return np.where(is_missing[:1], _MISSING, labels).astype(np.uint8)
    each = (-1, *(1,) * (image.ndim - 1))
    low, high = (np.reshape(palette[name], each) for name in ("lowest", "highest"))
    share = np.clip((np.nan_to_num(image) - low) / (high - low), 0, 1)
    return np.where(is_missing, _MISSING, np.rint(_LARGEST * share)).astype(np.uint8)


def _column_facts(values: ArrayLike) -> dict[str, Any]:
    """Return a covariate as numbers if all that is there are, else as texts; None is missing."""
    plain = [_plain(value) for value in np.asarray(values, dtype=object).tolist()]
    known = [value for value in plain if value is not None]
    if known and all(isinstance(value, float) for value in known):
        return {"kind": "number", "values": plain}
    return {"kind": "text", "values": [None if v is None else _as_words(v) for v in plain]}


def _plain(value: Any) -> float | str | None:
    if value is None:
        return None
    if isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, int | float | np.integer | np.floating):
        return float(value) if np.isfinite(value) else None
    return str(value)


def _as_words(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value
