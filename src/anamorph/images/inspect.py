"""Looking at image files one by one before a fit: what each is, and whether they go together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.facts import (
    ImageFacts,
    check_intensities,
    digest_of,
    facts_of,
    remark_on_copies,
    remark_on_missing,
)
from anamorph.images.grid import check_place
from anamorph.images.integers import SCALES, HeldIntegers
from anamorph.images.readers import open_image
from anamorph.images.readers.source import Source

LABELS, MASK, COLOURS, INTENSITIES = "labels", "mask", "colours", "intensities"

_MOST_COMPARED = 25  # files whose overlap with a file is looked at
_LITTLE = 0.5  # overlap


@dataclass(frozen=True)
class FileFacts:
    """What there is to know about an image file.

    Attributes
    ----------
    path : Path
    shape : tuple of int
        Of the grid.
    n_channels : int
    voxel_size : tuple of float, or None
        None where the file does not know it.
    units : str or None
        Unit of lengths that the header names.
    orientation : str or None
        Where axes lead, e.g. "RAS" for right, anterior, superior.
    place_is_guess : bool
        Whether the header does not say where voxels are.
    stored : str
        The type of its numbers, e.g. "uint8".
    lowest, highest, typical : float
        Range of values, and the median of the foreground.
    missing : float
        Share of voxels that are missing.
    centre : tuple of float
        Centre of mass: in mm where the file knows its place, else in voxels.
    overlap : float or None
        Share of it that is within the other files, on average; None where it has no place.
    looks_like : {"labels", "mask", "colours", "intensities"}
    """

    path: Path
    shape: tuple[int, ...]
    n_channels: int
    voxel_size: tuple[float, ...] | None
    units: str | None
    orientation: str | None
    place_is_guess: bool
    stored: str
    lowest: float
    highest: float
    typical: float
    missing: float
    centre: tuple[float, ...]
    overlap: float | None
    looks_like: str

    def plain(self) -> dict[str, Any]:
        """Return the facts in a form that JSON can hold: NaN is None."""
        return {name: _plain(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Inspection:
    """What was found out about some files.

    Attributes
    ----------
    files : list of FileFacts
        Of those that can be read.
    problems : list of str
        One line for each file that cannot be read.
    remarks : list of str
        What is odd about the others together, most important first.
    """

    files: list[FileFacts]
    problems: list[str]
    remarks: list[str]


def inspect_files(
    paths: Sequence[Path],
    channel_axis: int | None = None,
    *,
    as_labels: bool = False,
    missing_value: float | None = None,
) -> Inspection:
    """Read every file once, and say what is in it and how files go together.

    Parameters
    ----------
    paths : list of Path
    channel_axis : int, optional
        Axis of the stack of images that holds channels; by default there is none.
    as_labels : bool
        Whether images are meant to be label maps; by default not.
    missing_value : float, optional
        Value that stands for missing; by default there is none.

    Returns
    -------
    Inspection
    """
    sources, facts, kinds, problems = [], [], [], []
    for path in paths:
        try:
            source = open_image(path, channel_axis, as_labels=as_labels)
            voxels = source.load()
        except ImageError as error:
            problems.append(str(error))
            continue
        known = voxels.astype(np.float32)
        if missing_value is not None:
            known[voxels == missing_value] = np.nan
        sources.append(source)
        facts.append(replace(facts_of(known), digest=digest_of(known)))
        kinds.append(_kind_of(source, voxels, facts[-1]))
    files = [
        _described(source, fact, kind, _overlap_with_others(n, sources))
        for n, (source, fact, kind) in enumerate(zip(sources, facts, kinds, strict=True))
    ]
    return Inspection(files, problems, _find_remarks(files, sources, facts, as_labels))


def _described(source: Source, facts: ImageFacts, kind: str, overlap: float | None) -> FileFacts:
    affine = source.grid.affine
    centre = facts.centre
    if affine is not None:
        place = affine @ [*centre, *(0.0,) * (3 - len(centre)), 1.0]
        centre = tuple(float(length) for length in place[:3])
    return FileFacts(
        path=source.path,
        shape=source.grid.space,
        n_channels=source.n_channels or 1,
        voxel_size=None if affine is None else source.grid.voxel_size,
        units=None if affine is None else source.units,
        orientation=source.grid.orientation,
        place_is_guess=source.place_is_guess,
        stored=str(source.integers or "float"),
        lowest=facts.lowest,
        highest=facts.highest,
        typical=facts.typical,
        missing=facts.missing,
        centre=centre,
        overlap=overlap,
        looks_like=kind,
    )


def _kind_of(source: Source, voxels: NDArray[Any], facts: ImageFacts) -> str:
    """Return what an image looks like, from the values that it holds."""
    if source.n_channels is not None and source.integers == np.uint8:
        return COLOURS
    if voxels.dtype.kind == "f":
        known = voxels[~np.isnan(voxels)]
        if not known.size or (known != np.rint(known)).any() or np.abs(known).max() > 2**31:
            return INTENSITIES
        voxels = np.nan_to_num(voxels).astype(np.int64)
    held = HeldIntegers(source.integers or np.dtype(np.int64))
    held.add(voxels)
    is_full = facts.is_mask and facts.highest in SCALES.values()  # e.g. 0 and 255
    if held.are_masks or (is_full and (source.integers is None or not held.look_like_labels)):
        return MASK
    return LABELS if held.look_like_labels else INTENSITIES


def _overlap_with_others(n: int, sources: Sequence[Source]) -> float | None:
    """Return which share of an image is within others, on average over some of them."""
    grid = sources[n].grid
    step = max(1, len(sources) // _MOST_COMPARED)
    others = [
        other.grid
        for m, other in enumerate(sources)
        if m != n and m % step == 0 and len(other.grid.space) == len(grid.space)
    ]
    if grid.affine is None or any(other.affine is None for other in others) or not others:
        return None
    return float(np.mean([grid.share_inside(other) for other in others]))


def _find_remarks(
    files: Sequence[FileFacts],
    sources: Sequence[Source],
    facts: Sequence[ImageFacts],
    as_labels: bool,
) -> list[str]:
    def name(n: int) -> str:
        return str(files[n].path)

    if not files:
        return []
    remarks = [
        _remark_on_constants(files),
        None if as_labels else _remark_on_kinds(files),
        _remark_on_grids(files, sources),
        None if as_labels else _remark_on_types(files),
        None if as_labels else _remark_on_intensities(files, facts),
        check_place(sources),
        _remark_on_units(files),
        _remark_on_overlap(files),
        remark_on_copies(facts, name),
        remark_on_missing(facts, name),
    ]
    return [remark for remark in remarks if remark]


def _remark_on_constants(files: Sequence[FileFacts]) -> str | None:
    """Return a remark on images with the same value everywhere, or no value at all."""
    empty = [file for file in files if file.missing == 1 or file.lowest == file.highest]
    if not empty:
        return None
    return (
        f"{len(empty)} of {len(files)} files hold the same value everywhere, or none, e.g. "
        f"{empty[0].path}: there is nothing to learn from them; leave them out"
    )


def _remark_on_kinds(files: Sequence[FileFacts]) -> str | None:
    labels = [file for file in files if file.looks_like == LABELS]
    if not labels:
        return None
    return (
        f"{len(labels)} of {len(files)} files look like label maps, e.g. {labels[0].path}: fit "
        "them with --labels"
    )


def _remark_on_grids(files: Sequence[FileFacts], sources: Sequence[Source]) -> str | None:
    first = sources[0].grid
    different = [n for n, source in enumerate(sources) if first.difference(source.grid)]
    if not different:
        return None
    n = different[0]
    can = all(source.grid.affine is not None for source in sources)
    advice = "a fit brings them onto one" if can else "bring them to one size first"
    return (
        f"{len(different)} of {len(files)} files are on another grid than {files[0].path}, e.g. "
        f"{files[n].path} differs in {first.difference(sources[n].grid)}: {advice}"
    )


def _remark_on_types(files: Sequence[FileFacts]) -> str | None:
    types = sorted({file.stored for file in files})
    if len(types) == 1 or all(file.looks_like in (LABELS, MASK) for file in files):
        return None
    return (
        f"files hold numbers of several types ({', '.join(types)}), which may stand for other "
        "values: --scale robust scales each image by itself, --scale none takes all as they are"
    )


def _remark_on_intensities(files: Sequence[FileFacts], facts: Sequence[ImageFacts]) -> str | None:
    if any(file.looks_like in (LABELS, MASK) for file in files):
        return None
    try:
        return check_intensities(facts, lambda n: str(files[n].path))
    except ImageError as error:
        return str(error)


def _remark_on_units(files: Sequence[FileFacts]) -> str | None:
    odd = [file for file in files if file.units in ("m", "micron")]
    if not odd:
        return None
    return (
        f"{len(odd)} of {len(files)} files have lengths in {odd[0].units}, e.g. {odd[0].path}: "
        "they are read as if they were mm"
    )


def _remark_on_overlap(files: Sequence[FileFacts]) -> str | None:
    far = [file for file in files if file.overlap is not None and file.overlap < _LITTLE]
    if not far:
        return None
    worst = min(far, key=lambda file: file.overlap or 0.0)
    return (
        f"{len(far)} of {len(files)} files overlap little with the others, {worst.path} by "
        f"{worst.overlap:.0%}: align them first"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
