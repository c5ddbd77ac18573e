"""Images made for benchmarks: volumes of labels, warped at random."""

from __future__ import annotations

import numpy as np

from anamorph.geometry import pull, shoot, velocity

PENALTY = (0.001, 0.0, 10.0, 0.1, 0.2)


def label_volume(space: tuple[int, ...], seed: int) -> np.ndarray:
    """Return nested ellipsoids of three classes, (*space) uint8, warped by a diffeomorphism."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((len(space), *space)).astype(np.float32)
    v = velocity(noise - noise.mean(axis=tuple(range(1, noise.ndim)), keepdims=True), PENALTY)
    v *= 0.04 * min(space) / np.abs(v).max()
    grid = np.meshgrid(*[np.linspace(-1, 1, n, dtype=np.float32) for n in space], indexing="ij")
    radius = np.sqrt(sum((x / 0.75) ** 2 for x in grid))
    warped = pull(radius[None], shoot(v, PENALTY))[0]
    return ((warped < 1).astype(np.uint8) + (warped < 0.6)).astype(np.uint8)
