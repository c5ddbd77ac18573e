"""What a page holds of images: latents, names, covariates, and the images themselves.

All of it may be personal. None goes into a page unless it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.explorer.encoding import packed_bytes
from anamorph.images.collection import ImageCollection

_MISSING = 255  # the byte of a missing voxel; others are 0 to 254
_LARGEST = 254


@dataclass(frozen=True)
class PackedImages:
    """What a page stores of images.

    Attributes
    ----------
    facts : dict
        What JSON holds: names, latents, columns of covariates.
    images : list of bytes
        Compressed images, of the first rows; perhaps none.
    """

    facts: dict[str, Any]
    images: list[bytes]


def pack_images(
    model: ShapeAppearanceModel,
    kept: Sequence[int],
    latents: Float64Array,
    names: Sequence[str],
    covariates: Mapping[str, ArrayLike],
    images: ImageCollection | None,
    palette: Mapping[str, Any],
    most_bytes: float,
) -> PackedImages:
    """Return latents and covariates of images, and as many images as fit.

    Parameters
    ----------
    model : ShapeAppearanceModel
    kept : list of int
        Latents that the page has.
    latents : array of shape (N, K)
    names : N strings
    covariates : dict of N values each
        Numbers or texts, None where missing.
    images : ImageCollection, optional
    palette : dict
        With the lowest and the highest value of each channel that is shown.
    most_bytes : float
        For images, compressed.
    """
    packed: list[bytes] = []
    n_bytes = 0
    for n in range(0 if images is None else len(images)):
        assert images is not None
        image = packed_bytes(_as_bytes(model, images.read(slice(n, n + 1))[0], palette))
        n_bytes += len(image)
        if n_bytes > most_bytes:
            break
        packed.append(image)
    facts = {
        "names": [str(name) for name in names],
        "latents": [[float(f"{z:.6g}") for z in row] for row in latents[:, list(kept)]],
        "columns": [
            {"name": str(name), **_column_facts(values)} for name, values in covariates.items()
        ],
        "nPictures": len(packed),
        "givesPictures": images is not None,
    }
    return PackedImages(facts, packed)


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
