"""Warps in files that other tools read: ITK (ANTs, Slicer), SPM, FSL, and X5 (nitransforms).

All of them say, for every voxel of a reference grid, where to look in another image: a warp *to*
the template has the grid of the template and points into an image, and brings the image to the
template when it is given to a tool that resamples. They differ in coordinates:

- ITK: displacements in mm, with x and y negated (LPS), (x, y, z, 1, 3) with the code for vectors.
- SPM: coordinates in mm (y_*.nii), (x, y, z, 1, 3).
- FSL: displacements in mm along the axes of the voxels, the first axis reversed where the affine
  has a positive determinant (relative warps of FNIRT), (x, y, z, 3).
- X5: displacements in mm (RAS), in HDF5.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import Array, Float64Array
from anamorph.geometry.inverses import move_points
from anamorph.images.grid import Affine, Grid
from anamorph.images.world import World
from anamorph.storage.errors import WriteError
from anamorph.storage.replace import replacing

#: Suffixes of the files of each format.
WARP_FORMATS = {"itk": ".nii.gz", "spm": ".nii", "fsl": ".nii.gz", "x5": ".x5"}

_VECTOR = 1007  # without this intent code, ANTs takes the file for five-dimensional
_FNIRT_FIELD = 2006
_LPS = np.array([-1.0, -1.0, 1.0])


def write_warp(
    path: Path,
    displacement: Array,
    grid: Grid,
    kind: str,
    *,
    reference: Grid | None = None,
    source: Grid | None = None,
    before: Affine | None = None,
    after: Affine | None = None,
) -> None:
    """Write a warp, completely or not at all.

    Parameters
    ----------
    path : Path
    displacement : array of shape (d, *grid.space)
        In voxels of the grid.
    grid : Grid
        With its margin; without affine, voxels are taken for mm.
    kind : {"itk", "spm", "fsl", "x5"}
    reference : Grid, optional
        The grid that images are resampled onto; by default `grid`.
    source : Grid, optional
        The grid of the image that is resampled, which only FSL has to know; by default `grid`.
    before, after : arrays of shape (4, 4), optional
        Affines from mm to mm to apply before and after the warp: the pose of an image. By default
        none.
    """
    grid, reference, source = (_placed(some or grid) for some in (grid, reference, source))
    targets = find_targets(displacement, grid, reference, before, after)
    if kind == "x5":
        _write_x5(path, targets - _own_places(reference), reference)
        return
    image = _IMAGES[kind](targets, reference, source)
    image.header.set_xyzt_units("mm")
    with replacing(path, WARP_FORMATS[kind]) as temporary:
        nib.save(image, temporary)


def find_targets(
    displacement: Array,
    grid: Grid,
    reference: Grid,
    before: Affine | None = None,
    after: Affine | None = None,
) -> Float64Array:
    """Return where a warp takes the voxels of a reference grid, (x, y, z, 3), in mm.

    Parameters are those of `write_warp`; the grids have affines.
    """
    points = _own_places(reference)
    shape, flat = points.shape, points.reshape(-1, 3)
    world = World.of_grid(grid)
    flat = flat if before is None else _transformed(before, flat)
    voxels, across = world.split(flat)
    targets = world.join(move_points(np.asarray(displacement, np.float64), voxels), across)
    targets = targets if after is None else _transformed(after, targets)
    return targets.reshape(shape)


def _placed(grid: Grid) -> Grid:
    return grid if grid.affine is not None else Grid(grid.space, np.eye(4))


def _own_places(grid: Grid) -> Float64Array:
    """Return the coordinates of the voxels of a grid, (x, y, z, 3), in mm."""
    space = (*grid.space, *(1,) * (3 - len(grid.space)))
    voxels = np.moveaxis(np.indices(space).astype(np.float64), 0, -1)
    return _transformed(np.asarray(grid.affine), voxels)


def _transformed(affine: Affine, points: Float64Array) -> Float64Array:
    moved: Float64Array = points @ affine[:3, :3].T + affine[:3, 3]
    return moved


def _itk_image(targets: Float64Array, reference: Grid, source: Grid) -> Any:
    vectors = (targets - _own_places(reference)) * _LPS
    return _vector_image(vectors[..., None, :], reference, _VECTOR)


def _spm_image(targets: Float64Array, reference: Grid, source: Grid) -> Any:
    return _vector_image(targets[..., None, :], reference, _VECTOR)


def _fsl_image(targets: Float64Array, reference: Grid, source: Grid) -> Any:
    there = _transformed(_to_fsl(source) @ np.linalg.inv(np.asarray(source.affine)), targets)
    to_here = _to_fsl(reference) @ np.linalg.inv(np.asarray(reference.affine))
    here = _transformed(to_here, _own_places(reference))
    return _vector_image(there - here, reference, _FNIRT_FIELD)


_IMAGES = {"itk": _itk_image, "spm": _spm_image, "fsl": _fsl_image}


def _to_fsl(grid: Grid) -> Affine:
    """Return the affine from voxels to the coordinates of FSL."""
    affine = np.asarray(grid.affine)
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    scaled = np.diag([*sizes, 1.0])
    if np.linalg.det(affine[:3, :3]) > 0:
        scaled[0] = [-sizes[0], 0, 0, sizes[0] * (grid.space[0] - 1)]
    return scaled


def _vector_image(vectors: NDArray[np.float64], reference: Grid, intent: int) -> Any:
    image = nib.Nifti1Image(vectors.astype(np.float32), reference.affine)
    image.header.set_intent(intent, allow_unknown=True)
    return image


def _write_x5(path: Path, vectors: Float64Array, reference: Grid) -> None:
    try:
        import h5py
    except ImportError:
        raise WriteError("X5 files need h5py: install anamorph[x5], or choose itk") from None
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["Format"], file.attrs["Version"] = "X5", np.uint16(1)
        group = file.create_group("TransformGroup").create_group("0")
        group.attrs["Type"], group.attrs["SubType"] = "nonlinear", "densefield"
        group.attrs["Representation"], group.attrs["ArrayLength"] = "displacements", 1
        group.attrs["Metadata"] = json.dumps({"WrittenBy": "anamorph"})
        group.create_dataset("Transform", data=vectors)
        kinds = [b"space"] * 3 + [b"vector"]
        group.create_dataset("DimensionKinds", data=np.array(kinds))
        domain = group.create_group("Domain")
        domain.create_dataset("Grid", data=np.uint8(1))
        domain.create_dataset("Size", data=np.array(vectors.shape[:3]))
        domain.create_dataset("Mapping", data=reference.affine)
        domain.attrs["Coordinates"] = "cartesian"
