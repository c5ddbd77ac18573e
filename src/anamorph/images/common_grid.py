"""The grid that the files of a collection share: found, checked, and what is odd about it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid, format_shape
from anamorph.images.readers.source import Source

_MOST_GROWTH = 8  # times the voxels of the largest image


def grid_for_all(sources: Sequence[Source], *, resample: bool) -> Grid:
    """Return the grid of the first file, or where grids differ one that holds all files.

    Parameters
    ----------
    sources : list of Source
    resample : bool
        Whether files may be resampled; if not, all must have the grid of the first.
    """
    first = sources[0].grid
    grids = [source.grid for source in sources]
    if not resample or any(grid.affine is None for grid in grids):
        return first
    if len({len(grid.space) for grid in grids}) > 1:
        return first  # refused as of other shapes
    if all(first.difference(grid) is None for grid in grids):
        return first
    found = _typical_grid(grids).holding(grids)
    largest = max(math.prod(grid.space) for grid in grids)
    if math.prod(found.space) > _MOST_GROWTH * largest:
        centres = np.array([grid.centre for grid in grids])
        distances = np.linalg.norm(centres - np.median(centres, axis=0), axis=1)
        farthest = sources[int(distances.argmax())]
        raise ImageError(
            f"a grid that holds all images would be {format_shape(found.space)}, "
            f"{math.prod(found.space) / largest:.3g} times the largest of them: {farthest.path} is "
            "far from the others; align the images, or give the grid of one of them as reference "
            "(--reference FILE)"
        )
    return found


def _typical_grid(grids: Sequence[Grid]) -> Grid:
    """Return the first grid with voxels of median size, along axes that most such grids have."""
    volumes = np.array([math.prod(grid.voxel_size) for grid in grids])
    distance = np.abs(np.log(volumes / np.median(volumes)))
    usual = [
        grid for grid, far in zip(grids, distance, strict=True) if far <= distance.min() + 0.01
    ]
    orientations = [grid.orientation for grid in usual]
    common = max(dict.fromkeys(orientations), key=orientations.count)
    return usual[orientations.index(common)]


def describe_grids(sources: Sequence[Source], grid: Grid) -> str | None:
    """Return how many files are brought onto a grid, in words; None if all are on it."""
    others = [source for source in sources if grid.difference(source.grid) is not None]
    if not others:
        return None
    size = " x ".join(f"{length:.3g}" for length in grid.voxel_size)
    return (
        f"{len(others)} of {len(sources)} files are on other grids, and are brought onto one of "
        f"{format_shape(grid.space)} voxels of {size} mm, axes {grid.orientation}, by their affines"
    )


def grids_must_match(
    sources: Sequence[Source], target: tuple[str, Grid] | None, *, may_resample: bool | None
) -> None:
    """Raise an ImageError if files cannot be brought onto one grid.

    Parameters
    ----------
    sources : list of Source
    target : pair of str and Grid, optional
        A grid with its name; by default that of the first file.
    may_resample : bool or None
        Whether files may be resampled by their affines; None: if their headers say where voxels
        are.
    """
    name, grid = target or (str(sources[0].path), sources[0].grid)
    for source in sources:
        difference = grid.difference(source.grid)
        advice = "use resample=True (--resample) to bring all images onto one grid"
        if grid.affine is None or source.grid.affine is None:
            advice = "bring them to one size first, only volumes can be resampled"
        elif len(grid.space) != len(source.grid.space):
            advice = "an image and a volume do not go together"
        elif may_resample is None and source.place_is_guess and difference is not None:
            raise ImageError(
                f"{source.path} does not say where its voxels are (neither sform nor qform is "
                f"set), and differs from {name} in {difference}: set its sform, or use "
                "resample=True (--resample) to rely on a guess, by which left may be right"
            )
        elif may_resample is not False:
            difference = None
        if difference is not None:
            raise ImageError(f"{name} and {source.path} differ in {difference}: {advice}")


def check_place(sources: Sequence[Source]) -> str | None:
    """Return a warning about files that do not say where their voxels are; None if all do."""
    guessed = [source for source in sources if source.place_is_guess]
    if not guessed:
        return None
    return (
        f"{len(guessed)} of {len(sources)} files do not say where their voxels are (neither sform "
        f"nor qform is set), e.g. {guessed[0].path}: place and orientation are guessed, and left "
        "may be right"
    )
