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
    """Return the grid of the first file, which with resampling is extended to hold all files.

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
    found = first.holding(grids)
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


def grids_must_match(
    sources: Sequence[Source], target: tuple[str, Grid] | None, *, may_resample: bool
) -> None:
    """Raise an ImageError if files cannot be brought onto one grid.

    Parameters
    ----------
    sources : list of Source
    target : pair of str and Grid, optional
        A grid with its name; by default that of the first file.
    may_resample : bool
        Whether files may be resampled by their affines.
    """
    name, grid = target or (str(sources[0].path), sources[0].grid)
    for source in sources:
        difference = grid.difference(source.grid)
        advice = "use resample=True (--resample) to bring all images onto one grid"
        if grid.affine is None or source.grid.affine is None:
            advice = "bring them to one size first, only volumes can be resampled"
        elif len(grid.space) != len(source.grid.space):
            advice = "an image and a volume do not go together"
        elif may_resample:
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
