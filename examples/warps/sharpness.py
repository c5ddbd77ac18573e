"""Sharpness of templates: our means, at default settings, beside templates that ANTs builds.

    python -m examples.warps.sharpness --data FOLDER [--pictures FOLDER]

Every method gets the same images, T1 slices or grey faces. A template is as sharp as its gradient
energy, the sum of squared differences of neighbours, in the central half of the picture; 1 is the
mean energy of the images themselves. ANTs builds two: means of registered images in three rounds,
as in `examples.warps.overlap`, and that of its own `build_template`, which sharpens the mean of
every round by a Laplacian filter. Energy alone does not tell edges from ghosts: see the pictures.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anamorph import ShapeAppearanceModel
from examples.warps.overlap import ants_in_rounds, slices

Array = NDArray[Any]
_LUMINANCE = (0.299, 0.587, 0.114)


def grey_faces(folder: Path, n_images: int) -> Array:
    """Return neutral faces of as many people, (N, *space), from 0 to 1."""
    with np.load(folder / "faces_london_128x96.npz") as data:
        is_neutral = data["expression"] == data["expression"][0]
        faces = data["x"][is_neutral][:n_images]
    grey: Array = (faces / 255 @ np.array(_LUMINANCE)).astype(np.float32)
    return grey


def central_energy(image: Array) -> float:
    """Return the sum of squared differences of neighbours, in the central half of each axis."""
    centre = image[tuple(slice(n // 4, n - n // 4) for n in image.shape)]
    return float(sum(np.square(np.diff(centre, axis=axis)).sum() for axis in range(centre.ndim)))


def our_mean(residual: str, n_components: int) -> Callable[[Array], Array]:
    """Return what fits a model with default settings, and takes its mean."""

    def build(images: Array) -> Array:
        model = ShapeAppearanceModel(n_components, residual=residual, random_state=0, n_threads=1)
        return np.asarray(model.fit(images).mean_).reshape(images.shape[1:])

    return build


def sharpened_by_ants(images: Array) -> Array:
    """Return the template of ANTsPy's `build_template`, with its defaults."""
    import ants

    template: Array = ants.build_template(
        image_list=[ants.from_numpy(image) for image in images],
        type_of_transform="SyNOnly",
    ).numpy()
    return template


def main() -> None:
    """Print how sharp templates are, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    n_images = options.images
    sets = {
        "slices": slices(options.data, n_images, 0).images,
        "faces": grey_faces(options.data, n_images),
    }
    methods: dict[str, Callable[[Array], Array]] = {
        "one image": lambda images: images[0],
        "mean of images": lambda images: images.mean(axis=0),
        "model": our_mean("none", n_images // 2),
        "model with residual warps inside": our_mean("inside", n_images // 2),
        "ANTs, mean of registered images": ants_in_rounds,
        "ANTs, build_template": sharpened_by_ants,
    }
    lines = []  # shown at the end, since ANTs prints much
    for (name, images), (method, build) in itertools.product(sets.items(), methods.items()):
        template = build(images)
        usual = np.mean([central_energy(image) for image in images])
        lines.append(f"{name}, {method}: {central_energy(template) / usual:.3f}")
        if options.pictures is not None:
            write_picture(options.pictures / f"{name}, {method}.png", template)
    print("\n".join(lines))


def write_picture(path: Path, template: Array) -> None:
    """Write a template of values from 0 to 1 as a grey picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.clip(template, 0, 1) * 255).astype(np.uint8)).save(path)


if __name__ == "__main__":
    main()
