"""Overlap of labels in the space of a template: our warps beside those of dipy and ANTs.

    python -m examples.warps.overlap --data FOLDER

Images are aligned by their grey values alone; labels that no method saw are warped along, and the
mean Dice of all pairs of images tells how well they lie on each other. Every method builds its
template from the same images, and brings images that it was not built from onto it. dipy and ANTs
build theirs in rounds: all images are registered to the mean of those of the round before.

Slices are T1, with grey and white matter as labels; hippocampi have labels as their grey values.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph import ShapeAppearanceModel
from anamorph.geometry import corner_determinants, jacobian_determinant

Array = NDArray[Any]
_ROUNDS = 3
_LONG_SCHEDULE = [200, 100, 50]
_RADIUS = {2: 4, 3: 2}  # the default, and what the coarsest grid of small volumes has room for
# Of appearance 25 times the paper's penalty, since so many modes of few images would explain with
# appearance what warps can; of bending less than the default.
_FIRM_APPEARANCE = (100.0, 12800.0, 1600.0)
# The mean of grey slices is smooth: what is sharp in it is noise of few images, and warps follow
# it; and scans are not equally bright. Label maps are sharp and alike, and half as many steps of
# shooting do for them.
_SETTINGS: dict[int, dict[str, Any]] = {
    2: {
        "shape_penalty": (1e-3, 0.0, 1.0, 1.0, 1.0),
        "appearance_penalty": _FIRM_APPEARANCE,
        "mean_penalty": (0.1, 100.0, 100.0),
        "intensity": "per image",
    },
    3: {
        "shape_penalty": (1e-3, 0.0, 2.0, 2.0, 2.0),
        "appearance_penalty": _FIRM_APPEARANCE,
        "n_steps": 4,
    },
}
# Modes alone gain by exact gradients of the shape basis, which fits through several grids have, and
# by more iterations; label maps lose by coarse grids, and residual warps gain nothing. Where only
# overlap is wanted, latents need no appearance.
_SETTINGS_OF_MODES: dict[int, dict[str, Any]] = {
    2: {"levels": 2, "n_iter": 60, "latents": "shape"},
    3: {"latents": "shape"},
}
# Labels lie where images are equally bright: every voxel is taken at its word.
_AT_ITS_WORD = {"decimation": 1.0}
_MARGIN = 3  # voxels at the border, where warps of other tools are not periodic


#: Smallest Jacobian determinants of warps: central differences at voxels, and at corners of cells,
#: between which warps are linear along each axis.
Smallest = tuple[float, float]


@dataclass(frozen=True)
class Data:
    """Images and the labels that they are judged by.

    Attributes
    ----------
    images : (N, *space)
        From 0 to 1.
    labels : dict of (N, *space) bool
        By name.
    n_held_out : int
        How many of the images, the last ones, no template is built from.
    """

    images: Array
    labels: dict[str, Array]
    n_held_out: int

    def part(self, held_out: bool) -> Data:
        """Return the images that are held out, or the others."""
        first = len(self.images) - self.n_held_out
        some = slice(first, None) if held_out else slice(0, first)
        return Data(self.images[some], {k: v[some] for k, v in self.labels.items()}, 0)


@dataclass(frozen=True)
class Brought:
    """Labels in the space of the template, and what it took.

    Attributes
    ----------
    labels : dict of (N, *space) bool
    smallest : two pairs of float
        Smallest Jacobian determinants at voxels and at corners of cells, of all warps that labels
        were brought by, on the grid of the template, and of their inverses; away from the border.
    seconds : float
        Of the processor, per image.
    """

    labels: dict[str, Array]
    smallest: tuple[Smallest, Smallest]
    seconds: float


#: Builds a template from images; returns it, and what brings images with labels onto it.
Method = Callable[[Array], Callable[[Data], Brought]]


#: What warps others along, the displacement on the grid of the template, and that of its inverse.
Registered = tuple[Callable[[Array], Array], Array, Array]
#: Registers an image to a template.
Register = Callable[[Array, Array], Registered]


def slices(folder: Path, n_images: int, n_held_out: int, first: int = 0) -> Data:
    """Return T1 slices at 2 mm, with grey and white matter."""
    with np.load(folder / "oasis200_slice16_2mm_104x88.npz") as data:
        some = slice(first, first + n_images + n_held_out)
        labels = {name: data[name][some] > 127 for name in ("gm", "wm")}
        return Data(data["t1"][some].astype(np.float32) / 255, labels, n_held_out)


def hippocampi(folder: Path, n_images: int, n_held_out: int, first: int = 0) -> Data:
    """Return label maps at half resolution, as grey values."""
    with np.load(folder / "hippocampus_labels_48x64x48.npz") as data:
        maps = data["labels"][first : first + n_images + n_held_out]
    parts = {"anterior": maps == 1, "posterior": maps == 2}
    coarse = {name: _halved(part.astype(np.float32)) for name, part in parts.items()}
    grey = np.clip(0.5 * coarse["anterior"] + coarse["posterior"], 0, 1)
    return Data(grey, {name: part > 0.5 for name, part in coarse.items()}, n_held_out)


def _halved(maps: Array) -> Array:
    n, *space = maps.shape
    blocks = maps.reshape(n, *itertools.chain(*((length // 2, 2) for length in space)))
    halved: Array = blocks.mean(axis=tuple(range(2, 2 * len(space) + 1, 2))).astype(np.float32)
    return halved


def overlap(labels: Array) -> float:
    """Return the mean Dice of all pairs of label maps (N, *space)."""
    flat = labels.reshape(len(labels), -1)
    pairs = itertools.combinations(range(len(flat)), 2)
    return float(
        np.mean([2 * (flat[i] & flat[j]).sum() / (flat[i].sum() + flat[j].sum()) for i, j in pairs])
    )


def nothing(images: Array) -> Callable[[Data], Brought]:
    """Leave images where they are."""
    return lambda data: Brought(data.labels, ((1.0, 1.0), (1.0, 1.0)), 0.0)


def ours(**arguments: Any) -> Method:
    """Return a method that fits a model, and warps by its modes, and residual warps if it has."""

    def build(images: Array) -> Callable[[Data], Brought]:
        model = ShapeAppearanceModel(random_state=0, n_threads=1, **arguments).fit(images)

        def bring(data: Data) -> Brought:
            started = time.process_time()
            encoded = model.encode(
                data.images, residual=model.settings_.has_residuals, exact_curvature=False
            )
            seconds = (time.process_time() - started) / len(data.images)
            into, out = (
                model.displacement(encoded.latents, residuals=encoded.residuals, inverse=inverse)
                for inverse in (True, False)
            )
            moved = {
                name: model.to_template(
                    labels.astype(np.float32),
                    encoded.latents,
                    kind="intensities",
                    residuals=encoded.residuals,
                )
                > 0.5
                for name, labels in data.labels.items()
            }
            smallest = _smallest_determinants(into), _smallest_determinants(out)
            return Brought(moved, smallest, seconds)

        return bring

    return build


def dipy(images: Array) -> Callable[[Data], Brought]:
    """Register with dipy's symmetric normalisation, cross-correlation, the long schedule."""
    from dipy.align.imwarp import SymmetricDiffeomorphicRegistration
    from dipy.align.metrics import CCMetric

    def register(template: Array, image: Array) -> Registered:
        search = SymmetricDiffeomorphicRegistration(
            metric=CCMetric(image.ndim, radius=_RADIUS[image.ndim]), level_iters=_LONG_SCHEDULE
        )
        search.verbosity = 0
        found = search.optimize(template.astype(np.float64), image.astype(np.float64))
        into, out = (np.moveaxis(np.asarray(one), -1, 0) for one in (found.forward, found.backward))
        return lambda other: found.transform(other.astype(np.float64)), into, out

    return _in_rounds(images, register)


def ants(images: Array) -> Callable[[Data], Brought]:
    """Register with ANTs' symmetric normalisation, with ANTsPy's defaults."""
    return _in_rounds(images, _register_by_ants)


def ants_in_rounds(images: Array) -> Array:
    """Return the mean of images that ANTs registered in rounds."""
    return _mean_of_rounds(images, _register_by_ants)


def _register_by_ants(template: Array, image: Array) -> Registered:
    import ants as antspy

    fixed = antspy.from_numpy(template.astype(np.float32))
    moving = antspy.from_numpy(image.astype(np.float32))
    found = antspy.registration(fixed, moving, type_of_transform="SyNOnly", random_seed=1)
    paths = found["fwdtransforms"][0], found["invtransforms"][-1]
    into, out = (np.moveaxis(antspy.image_read(path).numpy(), -1, 0) for path in paths)

    def transform(other: Array) -> Array:
        given = antspy.from_numpy(other.astype(np.float32))
        array: Array = antspy.apply_transforms(fixed, given, found["fwdtransforms"]).numpy()
        return array

    return transform, into, out


def _in_rounds(images: Array, register: Register) -> Callable[[Data], Brought]:
    template = _mean_of_rounds(images, register)

    def bring(data: Data) -> Brought:
        started = time.process_time()
        found = [register(template, image) for image in data.images]
        seconds = (time.process_time() - started) / len(data.images)
        moved = {
            name: np.stack([move(one) > 0.5 for (move, *_), one in zip(found, labels, strict=True)])
            for name, labels in data.labels.items()
        }
        _, into, out = zip(*found, strict=True)
        smallest = _smallest_determinants(np.stack(into)), _smallest_determinants(np.stack(out))
        return Brought(moved, smallest, seconds)

    return bring


def _mean_of_rounds(images: Array, register: Register) -> Array:
    """Return the template that images are registered to in the last round."""
    template: Array = images.mean(axis=0)
    for _ in range(_ROUNDS - 1):
        template = np.mean([register(template, image)[0](image) for image in images], axis=0)
    return template


def _smallest_determinants(fields: Array) -> Smallest:
    """Return the smallest determinants of displacements (N, d, *space), in the interior."""
    inside = (..., *(slice(_MARGIN, -_MARGIN),) * fields.shape[1])
    given = np.ascontiguousarray(fields, dtype=np.float32)
    at_voxels, at_corners = jacobian_determinant(given), corner_determinants(given)
    return float(at_voxels[inside].min()), float(at_corners[inside].min())


def rows(data: Data, methods: dict[str, Method]) -> Iterator[dict[str, Any]]:
    """Yield a row of the table for each method, and for images it learnt from or not."""
    for name, method in methods.items():
        started = time.process_time()
        bring = method(data.part(held_out=False).images)
        built = (time.process_time() - started) / (len(data.images) - data.n_held_out)
        for held_out in (False, True):
            found = bring(data.part(held_out))
            (at_voxels, at_corners), (inverse_at_voxels, inverse_at_corners) = found.smallest
            yield {
                "method": name,
                "images": "held out" if held_out else "of the template",
                **{label: overlap(maps) for label, maps in found.labels.items()},
                "smallest determinant": at_voxels,
                "at corners": at_corners,
                "of the inverse": inverse_at_voxels,
                "at its corners": inverse_at_corners,
                "seconds per image": found.seconds,
                "seconds to build, per image": built,
            }


def methods_for(n_images: int, n_dims: int, only: Sequence[str]) -> dict[str, Method]:
    """Return the methods of the table, or some of them."""
    half = n_images // 2
    settings = {"n_components": half, **_SETTINGS[n_dims], **_AT_ITS_WORD}
    every: dict[str, Method] = {
        "before": nothing,
        "modes, defaults": ours(n_components=half),
        "modes": ours(**settings, **_SETTINGS_OF_MODES[n_dims]),
        "modes and residual": ours(residual="inside", **settings),
        "ANTs SyN": ants,
        "dipy SyN": dipy,
    }
    return {name: method for name, method in every.items() if not only or name in only}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--sets", nargs="+", default=["slices", "hippocampi"])
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--held-out", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first image")
    options = parser.parse_args()
    for name in options.sets:
        load = {"slices": slices, "hippocampi": hippocampi}[name]
        data = load(options.data, options.images, options.held_out, options.first)
        for row in rows(data, methods_for(options.images, data.images.ndim - 1, options.only)):
            shown = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
            print(f"{name}: " + ", ".join(map(": ".join, zip(row, shown, strict=True))), flush=True)


if __name__ == "__main__":
    main()
