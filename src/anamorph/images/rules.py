"""Rules for images: how the numbers in them are read, and which images are refused.

What numbers mean: values that are missing, the integer that stands for 1, labels of classes,
colours. What is checked: lists of files, channels, the values that a likelihood explains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.format import BY_CONTENT, BY_TYPE, ImageFormat
from anamorph.images.integers import SCALES, read_unit
from anamorph.images.intensity import EQUALISING
from anamorph.images.labels import check_known, find_labels
from anamorph.likelihoods import Likelihood

if TYPE_CHECKING:
    from anamorph.images.readers.source import Source  # which needs these rules

AnyPath = str | os.PathLike[str]

ALMOST_ONE = 0.05  # how far a sum of probabilities may be from 1 and still be normalised
_COLOURS = (3, 4)  # channels of a picture
_ADVICE = (
    ", or use scale='none' (--scale none) to take all as they are, or scale='robust' (--scale "
    "robust) to scale each image by itself"
)


def missing_value_of(given: float | None, like: ImageFormat | None) -> float | None:
    """Return the value that stands for missing: as given, else that of a model, else None."""
    return like.missing_value if given is None and like is not None else given


def check_scaling(likelihood: Likelihood, scale: str | float | None, *, has_labels: bool) -> None:
    """Raise an ImageError if images cannot be scaled as somebody asked for.

    Parameters
    ----------
    likelihood : Likelihood
    scale : str or float, optional
    has_labels : bool
        Whether images are label maps.
    """
    changes = scale not in (None, "none")
    if has_labels and changes:
        raise ImageError(f"label maps are not scaled: leave scale={scale!r} out")
    if likelihood.holds_classes and changes:
        raise ImageError(f"probabilities of classes are not scaled: leave scale={scale!r} out")
    if isinstance(scale, str) and changes and not is_unbounded(likelihood):
        raise ImageError(
            f"scale={scale!r} is for likelihood='gaussian', and {likelihood.name} images must have "
            f"{likelihood.range_words}: divide by a number instead, e.g. scale=255"
        )


def is_unbounded(likelihood: Likelihood) -> bool:
    """Tell whether images may have any intensities."""
    return not np.isfinite(likelihood.value_range).any()


def compares_intensities(likelihood: Likelihood, scale: str | float | None) -> bool:
    """Tell whether images should be about equally bright, each not being scaled by itself."""
    return is_unbounded(likelihood) and scale not in EQUALISING


def divisor_of(dtype: np.dtype[Any], unit: float | str) -> float:
    """Return what values of a type are divided by, given the integer that stands for 1."""
    if dtype.kind not in "iu" or unit == BY_CONTENT:
        return 1.0
    return SCALES.get(dtype.newbyteorder("="), 1.0) if isinstance(unit, str) else unit


def found_classes(
    maps: Iterator[NDArray[np.int32]],
    name: Callable[[int], str],
    n_classes: int | None,
    like: ImageFormat | None,
) -> tuple[int, tuple[int, ...] | None]:
    """Return the number of classes of label maps, and their labels unless these are 0, 1, 2, ...

    Parameters
    ----------
    maps : iterator of arrays
        Labels of each image.
    name : callable
        Returns what to call an image, given its number.
    n_classes : int, optional
        As somebody asked for.
    like : ImageFormat, optional
        That of a model, whose labels are the only ones known.
    """
    known = None if n_classes is None else tuple(range(n_classes))
    known = known if like is None else like.class_labels
    if known is None:
        known = find_labels(maps, name)
    else:
        for n, labels in enumerate(maps):
            check_known(labels, known, name(n))
    return len(known), None if known == tuple(range(len(known))) else known


def looks_coloured(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Tell whether the last axis of an image is likely to hold colours, and not space."""
    return len(shape) == 3 and shape[-1] in _COLOURS and dtype == np.uint8 and min(shape[:2]) > 4


def find_unit_of_files(
    sources: Sequence[Source],
    known: float | str,
    load: Callable[[Source], NDArray[Any]],
    *,
    may_scale: bool,
    for_model: bool = False,
) -> float | str:
    """Return the integer that stands for 1, or the rule that finds it.

    Parameters
    ----------
    sources : list of Source
    known : float or str
        The rule of a model, "content" if there is none.
    load : callable
        Returns the voxels of a file, not scaled.
    may_scale : bool
        Whether errors may advise to scale each image by itself.
    for_model : bool
        Whether the rules are those of a fitted model; by default not.
    """
    by_type: dict[np.dtype[Any], list[Source]] = {}
    for source in sources:
        if source.integers is not None and source.integers.kind != "b":
            by_type.setdefault(source.integers, []).append(source)
    if known == BY_TYPE:  # other types are asked about, unless they hold masks
        by_type = {dtype: some for dtype, some in by_type.items() if dtype not in SCALES}
    elif known != BY_CONTENT:
        return known
    units = {
        dtype: _read_unit(dtype, some, load, for_model=for_model) for dtype, some in by_type.items()
    }
    if not units or known == BY_TYPE:
        return known
    if len(units) > 1 and all(SCALES.get(dtype) == unit for dtype, unit in units.items()):
        return BY_TYPE
    if len(set(units.values())) > 1:
        one, other = (by_type[dtype][0] for dtype in list(units)[:2])
        raise ImageError(
            f"{one.path} holds {one.integers} and {other.path} holds {other.integers}, which "
            f"stand for other values: convert them to one type"
            f"{_ADVICE if may_scale and not for_model else ''}"
        )
    return next(iter(units.values()))


def _read_unit(
    dtype: np.dtype[Any],
    sources: Sequence[Source],
    load: Callable[[Source], NDArray[Any]],
    *,
    for_model: bool,
) -> float:
    as_they_are = all(source.as_they_are for source in sources)
    voxels = map(load, sources)
    return read_unit(
        voxels, dtype, str(sources[0].path), as_they_are=as_they_are, for_model=for_model
    )


def check_one_unit(
    sources: Sequence[Source], unit: float | str, *, for_model: bool = False
) -> None:
    """Raise an ImageError if only some files hold integers that stand for 0 to 1.

    Parameters
    ----------
    sources : list of Source
    unit : float or str
        From `find_unit_of_files`.
    for_model : bool
        As there.
    """
    scaled = next((source for source in sources if _is_divided(source, unit)), None)
    other = next((source for source in sources if source.integers is None), None)
    if scaled is not None and other is not None:
        raise ImageError(
            f"{scaled.path} holds integers that stand for 0 to 1 and {other.path} does not: "
            f"convert them to one type{'' if for_model else _ADVICE}"
        )


def _is_divided(source: Source, unit: float | str) -> bool:
    return source.integers is not None and divisor_of(source.integers, unit) != 1


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


def check_contrast(images: NDArray[Any], first: int, name: Callable[[int], str]) -> None:
    """Raise an ImageError if an image is constant.

    An image with missing voxels may be constant where it is observed: NaN equals nothing.

    Parameters
    ----------
    images : array of shape (n, ...)
    first : int
        Number of the first of them in its collection.
    name : callable
        Returns what to call an image, given its number.
    """
    axes = tuple(range(1, images.ndim))
    for n in np.flatnonzero(images.min(axis=axes) == images.max(axis=axes)):
        raise ImageError(
            f"{name(first + int(n))} is constant ({images[n].flat[0]}): there is nothing to learn "
            "from it; leave it out"
        )
