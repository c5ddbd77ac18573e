"""Image files that tests of readers write."""

import nibabel as nib
import numpy as np
from PIL import Image

EVERYTHING = slice(None)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def rotated_affine(angle=0.3, size=(1.0, 1.5, 2.0), origin=(-20.0, 10.0, 5.0)):
    cosine, sine = np.cos(angle), np.sin(angle)
    affine = np.eye(4)
    affine[:2, :2] = [[cosine, -sine], [sine, cosine]]
    affine[:3, :3] *= size
    affine[:3, 3] = origin
    return affine


def save_nifti(path, voxels, affine=None, kind=nib.Nifti1Image):
    nib.save(kind(voxels, np.eye(4) if affine is None else affine), path)
    return path


def save_picture(path, pixels, mode=None, **options):
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path, **options)
    return path


def save_array(path, voxels):
    (np.save if path.suffix == ".npy" else np.savez_compressed)(path, voxels)
    return path
