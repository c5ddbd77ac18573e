"""Checks of image files: of their list, of what they hold together, and of one image's values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import ALMOST_ONE
from anamorph.images.errors import ImageError
from anamorph.images.readers.source import Source
from anamorph.likelihoods import Likelihood

AnyPath = str | os.PathLike[str]


def grouped(files: Sequence[AnyPath] | Sequence[Sequence[AnyPath]]) -> list[tuple[Path, ...]]:
    """Return the files of every image; raise an ImageError if images differ in their number.

    Parameters
    ----------
    files : list of paths, or list of lists of paths
    """
    if isinstance(files, str | os.PathLike):
        raise ImageError(f"{files} is one path: give a list of files")
    groups = [
        (Path(item),) if isinstance(item, str | os.PathLike) else tuple(map(Path, item))
        for item in files
    ]
    if not groups or not groups[0]:
        raise ImageError("no images: the list of files is empty")
    for group in groups:
        if len(group) != len(groups[0]):
            raise ImageError(
                f"every image needs as many files: {groups[0][0]} is one of {len(groups[0])}, and "
                f"another image has {len(group)}"
            )
    return groups


def check_channels(sources: Sequence[Source], *, are_tissues: bool) -> None:
    """Raise an ImageError if files differ in their channels.

    Parameters
    ----------
    sources : list of Source
    are_tissues : bool
        Whether they are tissue maps, which have none.
    """
    first = sources[0]
    for source in sources:
        if are_tissues and source.n_channels is not None:
            raise ImageError(f"{source.path} has channels: a tissue map is grey")
        if source.n_channels != first.n_channels:
            raise ImageError(
                f"{first.path} has {_count_channels(first)} and {source.path} has "
                f"{_count_channels(source)}: convert them to be alike"
            )


def check_values(
    name: str, voxels: NDArray[np.float32], likelihood: Likelihood, *, are_tissues: bool
) -> None:
    """Raise an ImageError if an image holds values that its likelihood does not explain.

    Parameters
    ----------
    name : str
        What to call the image.
    voxels : array of shape (C, *space)
        NaN where missing; something is observed.
    likelihood : Likelihood
    are_tissues : bool
        Whether channels are tissue maps, whose sum may lack something to 1.
    """
    observed = voxels[~np.isnan(voxels)]
    if np.isinf(observed).any():
        raise ImageError(f"{name} contains infinity: NaN marks missing voxels")
    slack = ALMOST_ONE if are_tissues else 0.0
    lowest, highest = observed.min(), observed.max()
    if not likelihood.accepts(lowest, highest, slack):
        raise ImageError(
            f"{name} holds {lowest:.4g} to {highest:.4g}, and {likelihood.name} images have "
            f"{likelihood.range_words}: {likelihood.range_advice}"
        )
    if not likelihood.holds_classes:
        return
    total = voxels.sum(axis=0)
    most_missing = np.inf if are_tissues else ALMOST_ONE  # the rest is background
    wrong = (total - 1 > ALMOST_ONE) | (1 - total > most_missing)  # not where it is NaN
    if wrong.any():
        raise ImageError(
            f"{name}: probabilities of classes sum to {total[wrong][0]:.4g} at a voxel, not to 1: "
            "normalise them, or add a background class"
        )


def _count_channels(source: Source) -> str:
    return "1 channel" if source.n_channels in (None, 1) else f"{source.n_channels} channels"
