"""Landmarks that no model saw: how close together warps bring points that correspond.

    python -m examples.warps.landmarks

Images are drawn: a face-like template is shaded, warped by three modes and by a smooth warp of each
image's own, and gets noise. Seven landmarks go along. The table tells how far landmarks are from
their mean once warps bring them into the template, relative to before: as they are, and with a
similarity transform removed from both.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from anamorph import ShapeAppearanceModel
from anamorph.geometry import pull, shoot_both
from anamorph.geometry.inverses import move_points

Array = NDArray[Any]

SPACE = (48, 40)
PENALTY = (0.001, 0.0, 16.0, 1.0, 1.0)
MARKS = np.array([[18, 14], [18, 26], [32, 17], [32, 23], [25, 20], [14, 14], [14, 26]], float)


def template() -> Array:
    """Return a bright oval with dark eyes and mouth, and a nose."""
    rows, columns = np.mgrid[: SPACE[0], : SPACE[1]]

    def spot(row: int, column: int, width: float, height: float) -> Array:
        squares = (rows - row) ** 2 + (columns - column) ** 2
        return np.asarray(height * np.exp(-squares / (2 * width**2)))

    spots = ((24, 20, 12, 0.5), (18, 14, 2, -0.4), (18, 26, 2, -0.4), (32, 20, 3, -0.3))
    return np.asarray(sum(spot(*some) for some in (*spots, (25, 20, 2, 0.2))))


def drawn(n_images: int, seed: int) -> tuple[Array, Array]:
    """Return images (N, *space), and the landmarks of each, (N, M, 2)."""
    draws = np.random.default_rng(seed)

    def smooth(n_fields: int, width: float, largest: float) -> Array:
        white = draws.standard_normal((n_fields, 2, *SPACE))
        fields = gaussian_filter(white, (0, 0, width, width), mode="wrap")
        scaled = largest * fields / np.abs(fields).max(axis=(1, 2, 3), keepdims=True)
        return np.asarray(scaled)

    weights = draws.standard_normal((n_images, 3))
    velocity = np.tensordot(weights, smooth(3, 9, 2.0), 1) + smooth(n_images, 5, 1.2)
    forward, inverse = shoot_both(velocity.astype(np.float32), PENALTY, (1.0, 1.0), 8)
    shading = gaussian_filter(draws.standard_normal((n_images, *SPACE)), (0, 12, 12), mode="wrap")
    shaded = template() + 0.15 * shading / np.abs(shading).max()
    warped = pull(shaded[:, None].astype(np.float32), forward)[:, 0]
    images = warped + 0.02 * draws.standard_normal((n_images, *SPACE))
    return images.astype(np.float32), np.array([move_points(warp, MARKS) for warp in inverse])


def spread(points: Array) -> float:
    """Return how far landmarks (N, M, 2) are from their means."""
    return float(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=-1).mean()))


def without_similarity(points: Array) -> Array:
    """Return landmarks after each image's similarity transform onto the mean (Procrustes)."""
    mean = points.mean(axis=0)
    for _ in range(5):
        moved = []
        for some in points:
            here, there = some - some.mean(axis=0), mean - mean.mean(axis=0)
            left, sizes, right = np.linalg.svd(here.T @ there)
            moved.append(sizes.sum() / (here**2).sum() * here @ left @ right + mean.mean(axis=0))
        mean = np.mean(moved, axis=0)
    return np.array(moved)


def spreads(model: ShapeAppearanceModel, images: Array, marks: Array) -> dict[str, Array]:
    """Return both spreads relative to before, by modes and, if there are any, residual warps."""
    encoded = model.encode(images, residual=model.settings_.has_residuals)
    found = {"modes": spreads_by(model, encoded.latents, marks)}
    if encoded.residuals is not None:
        found["modes and residual"] = spreads_by(model, encoded.latents, marks, encoded.residuals)
    return found


def spreads_by(
    model: ShapeAppearanceModel, latents: Array, marks: Array, residuals: Array | None = None
) -> Array:
    """Return both spreads relative to before, by the warps of latents and residual velocities."""
    warps = model.displacement(latents, residuals=residuals)
    there = np.array([move_points(warp, some) for warp, some in zip(warps, marks, strict=True)])
    pairs = ((there, marks), (without_similarity(there), without_similarity(marks)))
    return np.array([spread(after) / spread(before) for after, before in pairs])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    images, marks = drawn(options.images, options.seed)
    for when in ("none", "after", "inside"):
        model = ShapeAppearanceModel(5, random_state=0, residual=when).fit(images)
        for name, (plain, similar) in spreads(model, images, marks).items():
            print(f"residual={when}, {name}: {plain:.3f}, without similarity {similar:.3f}")


if __name__ == "__main__":
    main()
