"""NIfTI-1 files, written completely or not at all."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.spatialimages import HeaderDataError
from numpy.typing import ArrayLike

from anamorph.images.errors import ImageError, short_reason
from anamorph.images.grid import Affine
from anamorph.images.readers.nifti import SUFFIXES
from anamorph.storage.replace import replacing


def write_nifti(path: str | os.PathLike[str], image: ArrayLike, affine: Affine | None) -> None:
    """Write an image to a NIfTI-1 file, completely or not at all.

    Parameters
    ----------
    path : path
        Ends with .nii or .nii.gz.
    image : array of shape (*space) or (x, y, z, C)
        May contain NaN. Written as float32 if it holds floats.
    affine : array of shape (4, 4), or None
        From voxels to mm; None for the identity.

    Raises
    ------
    ImageError
        If NIfTI cannot hold the image.
    WriteError
        If the file cannot be written.
    """
    path = Path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise ImageError(f"{path} must end with .nii or .nii.gz")
    voxels = np.asarray(image)
    if voxels.dtype.kind == "b":
        voxels = voxels.astype(np.uint8)
    elif voxels.dtype.kind == "f":
        voxels = voxels.astype(np.float32)
    try:
        volume = nib.Nifti1Image(voxels, np.eye(4) if affine is None else affine)
        volume.header.set_xyzt_units("mm")
    except HeaderDataError as error:
        raise ImageError(f"{path} cannot be written: {short_reason(error)}") from None
    with replacing(path, ".nii.gz" if path.name.lower().endswith(".gz") else ".nii") as temporary:
        nib.save(volume, temporary)
