"""Poses that were simulated, found again: ``python -m benchmarks.recovered_poses brains.npz``.

One brain is turned by up to 30 degrees, made up to 20 % smaller or larger, and shifted along each
axis by up to 30 % of the field of view, which takes parts of it out. A model with poses is fitted
to these images. Poses are known up to one map that all share: it is removed, and what is left is
told in degrees, per cent and voxels. Then the same with a quarter of each image missing, a box
anywhere.

The file holds arrays `gm`, `wm` and `csf` of (N, *space), with 255 for 1.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import scipy.linalg
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

from anamorph import ShapeAppearanceModel
from anamorph.arrays.typing import Array, Float64Array

_DEGREES, _LOG_SIZE, _SHARE = 30.0, np.log(1.2), 0.3
_HIDDEN = 0.25  # of an image
_EXACT = {"degrees": 1.0, "% of size": 1.0, "voxels": 0.5}


def main() -> None:
    """Print how many images are found again, whole and with a quarter missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--brain", type=int, default=0, help="number of the brain that is moved")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with np.load(asked.file) as file:
        tissues = [file[name][asked.brain].astype(np.float32) / 255 for name in ("gm", "wm", "csf")]
    draws = np.random.default_rng(asked.seed)
    truth = draw_poses(asked.images, tissues[0].shape, draws)
    images = np.stack([moved(tissues, matrix) for matrix in truth])
    for share in (0.0, _HIDDEN):
        given = hide_boxes(images, share, draws) if share else images
        started = time.process_time()
        model = ShapeAppearanceModel(
            1, likelihood="categorical", channel_axis=1, align="similarity", n_iter=2
        ).fit(given)
        seconds = (time.process_time() - started) / asked.images
        found = model.settings_.frame.matrices(model.poses_)
        errors = errors_of(found, truth)
        good = np.all([errors[name] <= most for name, most in _EXACT.items()], axis=0)
        told = ", ".join(f"{np.median(e):.2g} {name}" for name, e in errors.items())
        print(
            f"{share:.0%} missing: {good.mean():.1%} of {asked.images} images found to 1 degree, "
            f"1 % and half a voxel; medians {told}; {seconds:.1f} s of processor per image",
            flush=True,
        )


def draw_poses(n_images: int, space: tuple[int, ...], draws: np.random.Generator) -> Float64Array:
    """Return maps from images to the brain, (N, 4, 4), in voxels about the centre of the box."""
    matrices = np.tile(np.eye(4), (n_images, 1, 1))
    axes = draws.standard_normal((n_images, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    angles = np.deg2rad(draws.uniform(-_DEGREES, _DEGREES, (n_images, 1)))
    sizes = np.exp(draws.uniform(-_LOG_SIZE, _LOG_SIZE, (n_images, 1, 1)))
    matrices[:, :3, :3] = sizes * Rotation.from_rotvec(angles * axes).as_matrix()
    matrices[:, :3, 3] = draws.uniform(-_SHARE, _SHARE, (n_images, 3)) * space
    return matrices


def moved(tissues: list[Array], matrix: Float64Array) -> Array:
    """Return probabilities of tissues and of background in an image with a pose, (C, *space)."""
    space = tissues[0].shape
    centre = (np.array(space).reshape(3, 1) - 1) / 2
    places = matrix[:3, :3] @ (np.indices(space).reshape(3, -1) - centre) + matrix[:3, 3:] + centre
    shown = np.stack([map_coordinates(tissue, places, order=1) for tissue in tissues])
    classes = np.concatenate([shown, np.clip(1 - shown.sum(axis=0, keepdims=True), 0, 1)])
    return (classes / classes.sum(axis=0)).reshape(-1, *space)


def hide_boxes(images: Array, share: float, draws: np.random.Generator) -> Array:
    """Return images with a box of this share of the voxels missing, somewhere else in each."""
    hidden = images.copy()
    lengths = np.ceil(share ** (1 / 3) * np.array(images.shape[2:])).astype(int)
    for image in hidden:
        first = [
            draws.integers(0, n - m + 1) for n, m in zip(image.shape[1:], lengths, strict=True)
        ]
        box = tuple(slice(one, one + m) for one, m in zip(first, lengths, strict=True))
        image[(slice(None), *box)] = np.nan
    return hidden


def errors_of(found: Float64Array, truth: Float64Array) -> dict[str, Float64Array]:
    """Return what is left of found poses (N, 3, 4), once a map that all share is removed, (N,)."""
    square = np.tile(np.eye(4), (len(found), 1, 1))
    square[:, :3] = found
    apart = square @ np.linalg.inv(truth)  # from the brain to the template, the same for all
    shared = np.eye(4)
    for _ in range(3):  # a mean of maps near each other
        rest = [np.real(scipy.linalg.logm(np.linalg.solve(shared, one))) for one in apart]
        shared = shared @ scipy.linalg.expm(np.median(rest, axis=0))
    left = np.linalg.solve(square, shared @ truth)  # in voxels of the image
    sizes = np.cbrt(np.linalg.det(left[:, :3, :3]))
    turns = Rotation.from_matrix(left[:, :3, :3] / sizes[:, None, None]).magnitude()
    shifts = np.linalg.norm(left[:, :3, 3], axis=1)
    return {
        "degrees": np.rad2deg(turns),
        "% of size": 100 * np.abs(sizes - 1),
        "voxels": shifts,
    }


if __name__ == "__main__":
    main()
