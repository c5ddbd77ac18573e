"""Shooting, pulling and pushing against the Fourier transforms that they cannot avoid."""

from __future__ import annotations

import numpy as np
import scipy.fft

from anamorph.geometry import pull, push, shoot, velocity
from anamorph.kernels.threads import n_threads
from benchmarks.paired import ratios

PENALTY = (0.002, 0.02, 2.0, 0.2, 0.2)
N_STEPS = 8


def main() -> None:
    print(f"Shooting and warps, {n_threads()} threads; ratio to the floor (limit)")
    shooting((28, 28), 512, limit=2.2)
    shooting((64, 64, 64), 2, limit=2.7)
    warps((28, 28), 512)
    warps((64, 64, 64), 2)  # where transforms are at their best
    warps((96, 112, 96), 2)


def shooting(space: tuple[int, ...], n_images: int, limit: float) -> None:
    v = smooth_velocities(n_images, space, largest=3.0)
    transforms = paired_transforms(v)
    floor, ratio = ratios(
        lambda: [transforms() for _ in range(N_STEPS)], {"shoot": lambda: shoot(v, PENALTY)}
    )
    per_image = floor / n_images * 1e6
    print(f"  shoot {name(space)} x {n_images}: floor {per_image:.1f} us per image, ", end="")
    print(f"shoot {ratio['shoot']:.2f}x ({limit}x)")


def warps(space: tuple[int, ...], n_images: int) -> None:
    displacement = shoot(smooth_velocities(n_images, space, largest=3.0), PENALTY)
    image = np.random.default_rng(1).standard_normal((n_images, 2, *space), dtype=np.float32)
    _, ratio = ratios(
        paired_transforms(image),
        {"pull": lambda: pull(image, displacement), "push": lambda: push(image, displacement)},
    )
    print(f"  2 channels {name(space)}: ", end="")
    print(f"pull {ratio['pull']:.2f}x, push {ratio['push']:.2f}x (0.6x)")


def name(space: tuple[int, ...]) -> str:
    return "x".join(map(str, space))


def smooth_velocities(n_images: int, space: tuple[int, ...], largest: float) -> np.ndarray:
    """Return random velocities (N, d, *space) whose largest component is given, in voxels."""
    noise = np.random.default_rng(0).standard_normal((n_images, len(space), *space))
    noise -= noise.mean(axis=tuple(range(2, noise.ndim)), keepdims=True)
    v = velocity(noise.astype(np.float32), PENALTY)
    axes = tuple(range(1, v.ndim))
    return v * (largest / np.abs(v).max(axis=axes, keepdims=True))


def paired_transforms(fields: np.ndarray):
    """Return a function that transforms all components there and back once."""
    axes = tuple(range(2, fields.ndim))
    space = fields.shape[2:]
    workers = n_threads()

    def transform() -> np.ndarray:
        spectrum = scipy.fft.rfftn(fields, axes=axes, workers=workers)
        return scipy.fft.irfftn(spectrum, s=space, axes=axes, workers=workers)

    return transform


if __name__ == "__main__":
    main()
