"""Which images to look at first, and what may be wrong with them, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import ImageCollection
from anamorph.images.grid import Grid
from anamorph.report.measures import count_observed
from anamorph.report.oddities import (
    Oddities,
    find_oddities,
    name_of_axis,
    robust_deviation,
    robust_deviations,
    sides_of_axis,
)

#: Robust standard deviations from which on something is told.
REMARKABLE = 4.0

_ORDINARY = REMARKABLE / 2  # robust standard deviations, below which an image is like others
_LEAST_GAIN = 0.01  # of a correlation, by mirroring or turning
_NOTHING, _MOSTLY = 0.95, 0.5  # share of an image that is empty, and of it that is missing
_SOLID = 0.85  # of what is empty, at one end of a cropped image
#: Least standard deviations: what differs less than this among images differs by chance.
_FLOORS = {"correlation": 0.01, "gain": 0.02, "angle": 2.0, "empty": 0.01, "voxels": 1.0}


@dataclass(frozen=True)
class Judgement:
    """What was found out about an image.

    Attributes
    ----------
    number : int
        Of the image, from 0.
    name : str
    oddness : float
        The largest of all deviations from other images, in robust standard deviations.
    reasons : tuple of str
        What may be wrong with it, most likely first; empty where nothing is remarkable.
    fit : float
        Log-likelihood per observed voxel.
    distance : float
        Of the latents from zero, in standard deviations.
    correlation : float
        With the mean image.
    """

    number: int
    name: str
    oddness: float
    reasons: tuple[str, ...]
    fit: float
    distance: float
    correlation: float


def judge_images(
    model: ShapeAppearanceModel,
    images: ImageCollection,
    latents: Float64Array,
    names: Sequence[str],
    poses: Float64Array | None = None,
) -> list[Judgement]:
    """Return judgements of images, the oddest first.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images : ImageCollection
        N images, as the model needs them.
    latents : array of shape (N, K)
    names : N strings
    poses : array of shape (N, P), optional
        Of a model with poses; by default they are found.

    Returns
    -------
    list of Judgement
    """
    if model.settings_.has_poses and poses is None:
        poses = model.poses(images)
    odd = find_oddities(model, images, poses)
    fit = model.log_likelihood(images, latents, poses) / count_observed(images)
    distance = np.sqrt(np.einsum("nk,kl,nl->n", latents, model.latent_precision_, latents))
    grid = Grid(model.settings_.space, model.origin_.affine)
    found = _Deviations.of(odd, fit, distance, model.settings_.voxel_size)
    lying = _Lying.of(model, poses) if poses is not None else None
    largest = found.largest if lying is None else np.maximum(found.largest, lying.deviation)
    judged = [
        Judgement(
            n,
            str(names[n]),
            float(largest[n]),
            (*_find_reasons(n, odd, found, grid), *([] if lying is None else lying.reasons(n))),
            float(fit[n]),
            float(distance[n]),
            float(odd.correlation[n]),
        )
        for n in range(len(images))
    ]
    return sorted(judged, key=lambda one: -one.oddness)


@dataclass(frozen=True)
class _Lying:
    """Poses of images, compared with those of others.

    Attributes
    ----------
    shift, turn : (N,)
        How far from the median pose, in mm and in degrees.
    deviation : (N,)
        The same in robust standard deviations, the larger of the two.
    """

    shift: Float64Array
    turn: Float64Array
    deviation: Float64Array

    @classmethod
    def of(cls, model: ShapeAppearanceModel, poses: Float64Array) -> _Lying:
        names = model.pose_names_
        away = poses - np.median(poses, axis=0)
        sizes = {}
        for kind, unit in (("shift", 1.0), ("turn", float(np.rad2deg(1)))):
            columns = [n for n, name in enumerate(names) if name.startswith(kind)]
            sizes[kind] = unit * np.linalg.norm(away[:, columns], axis=1)
        voxel = _FLOORS["voxels"] * min(model.settings_.voxel_size)
        far = robust_deviations(sizes["shift"], voxel)
        turned = robust_deviations(sizes["turn"], _FLOORS["angle"])
        return cls(sizes["shift"], sizes["turn"], np.maximum(far, turned))

    def reasons(self, n: int) -> list[str]:
        """Return what is remarkable about the pose of an image."""
        if self.deviation[n] <= REMARKABLE:
            return []
        return [
            f"lies otherwise than others: {self.shift[n]:.0f} mm away, turned by "
            f"{self.turn[n]:.0f} degrees"
        ]


@dataclass(frozen=True)
class _Deviations:
    """How far each measure is from that of other images, in robust standard deviations."""

    misfit: Float64Array
    distance: Float64Array
    unlike: Float64Array
    mirrored: Float64Array
    unlike_mirrored: Float64Array
    angle: Float64Array
    empty: Float64Array
    shift: Float64Array

    @classmethod
    def of(
        cls,
        odd: Oddities,
        fit: Float64Array,
        distance: Float64Array,
        voxel_size: tuple[float, ...],
    ) -> _Deviations:
        mirrored = _by_column(odd.mirrored, _FLOORS["gain"])
        unlike = robust_deviations(-odd.correlation, _FLOORS["correlation"])
        usual = robust_deviation(odd.correlation, _FLOORS["correlation"])
        angle = np.abs(_by_column(odd.angle, _FLOORS["angle"]))
        voxel = _FLOORS["voxels"] * min(voxel_size)
        return cls(
            misfit=robust_deviations(-fit, 1e-3 * max(float(np.abs(fit).max()), 1e-3)),
            distance=robust_deviations(distance, 0.1),
            unlike=unlike,
            mirrored=np.where(odd.mirrored > _LEAST_GAIN, mirrored, 0.0),
            unlike_mirrored=unlike[:, None] - odd.mirrored / usual,
            angle=np.where(odd.turned[:, None] > _LEAST_GAIN, angle, 0.0),
            empty=robust_deviations(odd.empty, _FLOORS["empty"]),
            shift=np.abs(_by_column(odd.shift, voxel)),
        )

    @property
    def largest(self) -> Float64Array:
        """The largest of all, (N,), of images as they are."""
        columns = [self.misfit, self.distance, self.unlike, self.empty]
        columns += [rows.max(axis=1) for rows in (self.mirrored, self.angle, self.shift)]
        return np.asarray(np.max(columns, axis=0))


def _by_column(values: Float64Array, floor: float) -> Float64Array:
    return np.stack([robust_deviations(column, floor) for column in values.T], axis=1)


def _find_reasons(n: int, odd: Oddities, found: _Deviations, grid: Grid) -> list[str]:
    """Return what may be wrong with an image, most likely first."""
    if odd.empty[n] > _NOTHING:
        if odd.unseen[n] > _MOSTLY:
            return ["elsewhere: nothing of it was found to lie where others have content"]
        return ["empty: there is next to nothing where others have content"]
    reasons = []
    axis, plane = int(odd.mirrored[n].argmax()), int(found.angle[n].argmax())
    # Where images are much the same mirrored, the gain is small, but then all is well with them.
    is_mended = found.unlike[n] > REMARKABLE and found.unlike_mirrored[n, axis] < _ORDINARY
    is_mirrored = found.mirrored[n, axis] > REMARKABLE or is_mended
    is_turned = found.angle[n, plane] > REMARKABLE
    is_cropped = found.empty[n] > REMARKABLE and odd.solid[n] > _SOLID
    if is_cropped:
        place, end = odd.emptiest[n]
        reasons.append(
            f"cropped: {100 * odd.empty[n]:.0f} % of what others have is empty, at "
            f"the {sides_of_axis(place, grid)[end]}"
        )
    shifted = int(found.shift[n].argmax())
    is_shifted = found.shift[n, shifted] > REMARKABLE and not is_cropped
    if is_shifted:
        length, unit = abs(odd.shift[n, shifted]), "mm" if grid.affine is not None else "voxels"
        side = sides_of_axis(shifted, grid)[int(odd.shift[n, shifted] > 0)]
        reasons.append(f"shifted: its content is {length:.0f} {unit} towards the {side}")
    if is_mirrored and odd.mirrored[n, axis] >= odd.turned[n]:
        before, after = odd.correlation[n], odd.correlation[n] + odd.mirrored[n, axis]
        reasons.append(
            f"flipped: with {name_of_axis(axis, grid)} exchanged it is more like the others "
            f"(correlation {after:.2f} instead of {before:.2f})"
        )
    elif is_turned and not is_shifted:
        where = "" if len(grid.space) == 2 else f" in the plane {_name_plane(plane, grid)}"
        reasons.append(f"tilted by about {abs(odd.angle[n, plane]):.0f} degrees{where}")
    if found.unlike[n] > REMARKABLE and not reasons:
        is_foreign = max(found.misfit[n], found.empty[n]) > REMARKABLE
        what = "of another contrast or kind" if is_foreign else "unlike the others, perhaps rare"
        reasons.append(
            f"{what}: bright and dark are not where others have them (correlation "
            f"{odd.correlation[n]:.2f})"
        )
    if found.misfit[n] > REMARKABLE:
        reasons.append("explained badly by the model")
    if found.distance[n] > REMARKABLE:
        reasons.append("its latents are far from those of others")
    return reasons


def _name_plane(number: int, grid: Grid) -> str:
    """Return the axes of a plane, e.g. "left-right and back-front"."""
    axes = list(combinations(range(len(grid.space)), 2))[number]
    return " and ".join("-".join(sides_of_axis(axis, grid)) for axis in axes)
