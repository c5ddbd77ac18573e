"""Label maps: integers in arrays and files, one channel per class in a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError

MISSING = -1
MOST_CLASSES = 256


def as_labels(path: Path, voxels: NDArray[Any]) -> NDArray[np.int16]:
    """Return integers of any type as labels, MISSING for NaN."""
    if voxels.dtype.kind == "f":
        missing = np.isnan(voxels)
        voxels = np.where(missing, 0, voxels)
        if (voxels != np.rint(voxels)).any():
            raise ImageError(
                f"{path} holds fractions, not labels 0, 1, 2, ...: give channel_axis if these are "
                "probabilities of classes, or another likelihood"
            )
    else:
        missing = np.False_
    lowest, highest = voxels.min(), voxels.max()
    if lowest < 0 or highest >= MOST_CLASSES:
        raise ImageError(
            f"{path} holds {lowest:.6g} to {highest:.6g}, and labels are 0 to "
            f"{MOST_CLASSES - 1}: is it a label map?"
        )
    return np.where(missing, np.int16(MISSING), voxels.astype(np.int16))


def one_hot(labels: NDArray[Any], n_classes: int) -> NDArray[np.float32]:
    """Return labels (n, *space) as channels (n, n_classes, *space), NaN where missing."""
    classes = np.arange(n_classes, dtype=np.int16).reshape(-1, *(1,) * (labels.ndim - 1))
    channels = np.asarray(labels[:, None] == classes, np.float32)
    np.moveaxis(channels, 1, -1)[labels == MISSING] = np.nan
    return channels
