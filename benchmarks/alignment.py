"""Affine alignment beside SimpleITK, in one run: ``python -m benchmarks.alignment brains.npz``.

Needs SimpleITK (``pip install -e .[benchmarks]``), and arrays `gm`, `wm` and `csf` of (N, *space)
with 255 for 1. Two questions:

- images are registered to one template by both: what is left of the difference, and how long does
  an image take? Both see the same picture, and one function measures the residuals of both;
- maps are explained by a model with poses, and by a model of maps that SimpleITK aligned before:
  what is left of the variance of the maps, on the grid of the template, where interpolation has
  blurred the maps, and on their own grid, where nothing has?
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.arrays.typing import Array, Float64Array
from anamorph.geometry.pose import PoseFrame
from anamorph.model.finding import find_poses
from anamorph.model.generator import Generator
from anamorph.model.pose_search import Target
from anamorph.model.posing import PosedGenerator
from anamorph.model.settings import LatentLayout, Settings

_CONTRAST = {"gm": 0.6, "wm": 1.0, "csf": 0.2}  # of the pictures that are registered
_ITERATIONS, _SHRINK, _BLUR = 200, (4, 2, 1), (2, 1, 0)


def main() -> None:
    """Print one line per question and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--voxel-size", type=float, default=4.0)
    parser.add_argument("--models", action="store_true", help="the second question too (slow)")
    options = parser.parse_args()
    with np.load(options.file) as file:
        tissues = {name: file[name].astype(np.float32) / 255 for name in _CONTRAST}
    size = (options.voxel_size,) * 3
    compare_registration(tissues, size)
    if options.models:
        compare_models(_classes(tissues), tissues, size)


def compare_registration(tissues: dict[str, Array], size: tuple[float, ...]) -> None:
    """Register every image to the first one, by both methods."""
    pictures = _pictures(tissues)
    template, images = pictures[0], pictures[1:]
    settings, generator = _registration(template, size)
    for name, register in (("anamorph", _by_poses), ("SimpleITK", _by_simpleitk)):
        register(generator, template, images[:1], size)  # compiled and imported
        started = time.process_time()
        matrices = register(generator, template, images, size)
        seconds = (time.process_time() - started) / len(images)
        frame = settings.frame
        before = _residuals(template, images, frame, np.repeat(_identity(), len(images), axis=0))
        after = _residuals(template, images, frame, matrices)
        print(
            f"{name:10} residual {after.mean():.4f} (before {before.mean():.4f}), worst image "
            f"{after.max():.4f}, processor time {seconds:.2f} s per image"
        )


def compare_models(maps: Array, tissues: dict[str, Array], size: tuple[float, ...]) -> None:
    """Fit a model with poses to maps, and one without to maps that SimpleITK aligned."""
    total = float(np.square(maps - maps.mean(axis=0)).sum())
    arguments: dict[str, Any] = {
        "likelihood": "categorical", "channel_axis": 1, "voxel_size": size, "n_iter": 8
    }  # fmt: skip
    model = ShapeAppearanceModel(6, align="affine", **arguments).fit(maps)
    frame = model.settings_.frame
    encoded = model.encode(maps)
    assert encoded.poses is not None
    matrices = frame.matrices(encoded.poses)
    explained = model.expected_images(encoded.latents)
    _tell("anamorph", maps, explained, frame, matrices, total)
    on_grid = np.square(maps - model.reconstruct(maps)).sum() / total
    print(f"{'anamorph':10} of the maps on their own grid, by reconstruct: {on_grid:.3f}")

    pictures = _pictures(tissues)
    _, generator = _registration(pictures.mean(axis=0), size)
    matrices = _by_simpleitk(generator, pictures.mean(axis=0), pictures, size)
    aligned = _unposed(maps, frame, matrices)
    model = ShapeAppearanceModel(6, **arguments).fit(aligned)
    explained = model.reconstruct(aligned)
    _tell("SimpleITK", maps, explained, frame, matrices, total)


def _tell(
    name: str, maps: Array, explained: Array, frame: PoseFrame, matrices: Array, total: float
) -> None:
    aligned = _unposed(maps, frame, matrices)
    between = np.square(aligned - aligned.mean(axis=0)).sum() / total
    blurred = np.square(aligned - explained).sum() / total
    back = np.square(maps - _posed(explained, frame, matrices)).sum() / total
    print(
        f"{name:10} of the variance is left between aligned maps: {between:.3f}, by the model of "
        f"aligned maps: {blurred:.3f}, of the maps on their own grid: {back:.3f}"
    )


# ---- the two methods


def _registration(template: Array, size: tuple[float, ...]) -> tuple[Settings, Generator]:
    """Return a model that is nothing but a template with noise."""
    settings = Settings(
        "gaussian", LatentLayout(1, 1, 0, 0), template.shape, 1, size,
        (1.0,) * 5, (1.0,) * 3, (1.0,) * 3, (1.0, 1.0), 1.0, 1, 1.0, align="affine",
    )  # fmt: skip
    target = Target(template[None], np.zeros(1), settings.frame)
    return settings, target.generator(settings)


def _by_poses(generator: Generator, template: Array, images: Array, size: Any) -> Float64Array:
    return generator.settings.frame.matrices(find_poses(generator, images[:, None]))


def _by_simpleitk(generator: Generator, template: Array, images: Array, size: Any) -> Float64Array:
    """Return affine maps from images to the template, (N, d, d + 1), in voxels about the centre."""
    import SimpleITK as sitk  # noqa: N813

    fixed, found = _itk_image(sitk, template, size), []
    for image in images:
        moving = _itk_image(sitk, image, size)
        start = sitk.CenteredTransformInitializer(
            fixed, moving, sitk.AffineTransform(3),
            sitk.CenteredTransformInitializerFilter.MOMENTS,
        )  # fmt: skip
        method = sitk.ImageRegistrationMethod()
        method.SetMetricAsMeanSquares()
        method.SetInterpolator(sitk.sitkLinear)
        method.SetOptimizerAsRegularStepGradientDescent(size[0], 0.005 * size[0], _ITERATIONS)
        method.SetOptimizerScalesFromPhysicalShift()
        method.SetShrinkFactorsPerLevel(list(_SHRINK))
        method.SetSmoothingSigmasPerLevel(list(_BLUR))
        method.SetInitialTransform(start, inPlace=False)
        found.append(_matrix(method.Execute(fixed, moving), template.shape, size))
    return np.stack(found)


def _itk_image(sitk: Any, image: Array, size: tuple[float, ...]) -> Any:
    itk = sitk.GetImageFromArray(np.ascontiguousarray(image, np.float32))
    itk.SetSpacing(size[::-1])
    return itk


def _matrix(transform: Any, space: tuple[int, ...], size: tuple[float, ...]) -> Float64Array:
    """Return the inverse of what SimpleITK found, which takes the template to the image."""
    voxel, centre = np.array(size), (np.array(space) - 1) / 2

    def moved(place: Float64Array) -> Float64Array:
        point = transform.TransformPoint(((place + centre) * voxel)[::-1].tolist())
        return np.array(point)[::-1] / voxel - centre

    origin = moved(np.zeros(3))
    linear = np.stack([moved(axis) - origin for axis in np.eye(3)], axis=1)
    back = np.linalg.inv(linear)
    return np.concatenate([back, -(back @ origin)[:, None]], axis=1)


# ---- what both are measured with


def _residuals(
    template: Array, images: Array, frame: PoseFrame, matrices: Float64Array
) -> Float64Array:
    """Return root mean squares of what is left of images on the grid of the template, (N,)."""
    aligned = _unposed(images[:, None], frame, matrices, outside=0.0)[:, 0]
    return np.sqrt(np.square(aligned - template).mean(axis=(1, 2, 3)))


def _unposed(
    images: Array, frame: PoseFrame, matrices: Float64Array, outside: float | None = None
) -> Array:
    """Return images on the grid of the template; beyond their ends they are background."""
    poser = _poser(images, frame, frame.poses_of(matrices))
    aligned = poser.unposed(images)
    around = _around(images) if outside is None else np.full((images.shape[1], 1, 1, 1), outside)
    filled = np.where(np.isnan(aligned), around, aligned).astype(np.float32)
    return filled.clip(images.min(), images.max())  # interpolation rounds


def _posed(images: Array, frame: PoseFrame, matrices: Float64Array) -> Array:
    """Return images of the template's grid as they are on their own."""
    return _poser(images, frame, frame.poses_of(matrices)).warp(images, None)


def _poser(images: Array, frame: PoseFrame, poses: Float64Array) -> PosedGenerator:
    settings = Settings(
        "gaussian", LatentLayout(1, 1, 0, 0), frame.box, images.shape[1], frame.voxel_size,
        (1.0,) * 5, (1.0,) * 3, (1.0,) * 3, (1.0, 1.0), 1.0, 1, 1.0, align=frame.align,
    )  # fmt: skip
    target = Target(images[0], _around(images).reshape(-1).astype(np.float64), frame)
    return PosedGenerator.of(target.generator(settings), poses)


def _around(images: Array) -> Array:
    """Return the background of maps, whose last class it is: (C, 1, 1, 1)."""
    around = np.zeros((images.shape[1], 1, 1, 1), np.float32)
    around[-1] = images.shape[1] > 1
    return around


def _identity() -> Float64Array:
    return np.eye(3, 4)[None]


def _pictures(tissues: dict[str, Array]) -> Array:
    return np.asarray(sum(_CONTRAST[name] * tissue for name, tissue in tissues.items()))


def _classes(tissues: dict[str, Array]) -> Array:
    """Return probabilities of tissues and of background, (N, 4, *space)."""
    maps = np.stack(list(tissues.values()), axis=1)
    maps = maps / np.maximum(maps.sum(axis=1, keepdims=True), 1)
    return np.concatenate([maps, 1 - maps.sum(axis=1, keepdims=True)], axis=1).clip(0, 1)


if __name__ == "__main__":
    main()
