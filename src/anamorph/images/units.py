"""The integer that stands for 1 in a collection of files, which may hold several types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.format import BY_CONTENT, BY_TYPE
from anamorph.images.integers import SCALES, read_unit
from anamorph.images.readers.source import Source
from anamorph.images.rules import divisor_of

_ADVICE = (
    ", or use scale='none' (--scale none) to take all as they are, or scale='robust' (--scale "
    "robust) to scale each image by itself"
)


def find_unit_of_files(
    sources: Sequence[Source],
    known: float | str,
    load: Callable[[Source], NDArray[Any]],
    *,
    may_scale: bool,
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
    """
    by_type: dict[np.dtype[Any], list[Source]] = {}
    for source in sources:
        if source.integers is not None and source.integers.kind != "b":
            by_type.setdefault(source.integers, []).append(source)
    if known == BY_TYPE:  # other types are asked about, unless they hold masks
        by_type = {dtype: some for dtype, some in by_type.items() if dtype not in SCALES}
    elif known != BY_CONTENT:
        return known
    units = {dtype: _read_unit(dtype, some, load) for dtype, some in by_type.items()}
    if not units or known == BY_TYPE:
        return known
    if len(units) > 1 and all(SCALES.get(dtype) == unit for dtype, unit in units.items()):
        return BY_TYPE
    if len(set(units.values())) > 1:
        one, other = (by_type[dtype][0] for dtype in list(units)[:2])
        raise ImageError(
            f"{one.path} holds {one.integers} and {other.path} holds {other.integers}, which "
            f"stand for other values: convert them to one type{_ADVICE if may_scale else ''}"
        )
    return next(iter(units.values()))


def _read_unit(
    dtype: np.dtype[Any], sources: Sequence[Source], load: Callable[[Source], NDArray[Any]]
) -> float:
    as_they_are = all(source.as_they_are for source in sources)
    voxels = map(load, sources)
    return read_unit(voxels, dtype, str(sources[0].path), as_they_are=as_they_are)


def check_one_unit(sources: Sequence[Source], unit: float | str) -> None:
    """Raise an ImageError if only some files hold integers that stand for 0 to 1.

    Parameters
    ----------
    sources : list of Source
    unit : float or str
        From `find_unit_of_files`.
    """
    scaled = next((source for source in sources if _is_divided(source, unit)), None)
    other = next((source for source in sources if source.integers is None), None)
    if scaled is not None and other is not None:
        raise ImageError(
            f"{scaled.path} holds integers that stand for 0 to 1 and {other.path} does not: "
            f"convert them to one type{_ADVICE}"
        )


def _is_divided(source: Source, unit: float | str) -> bool:
    return source.integers is not None and divisor_of(source.integers, unit) != 1
