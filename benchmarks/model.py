"""An iteration of a fit against one shooting of the same images."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.em import Fit
from anamorph.fitting.sites import LocalSites
from anamorph.images.arrays import ArrayImages
from anamorph.model.generator import Generator
from anamorph.model.settings import checked_settings
from benchmarks.paired import seconds
from benchmarks.simulate import label_volume

# The paper's settings for MNIST and for segmented brains.
DIGITS: dict[str, Any] = {
    "likelihood": "bernoulli",
    "shape_penalty": (0.002, 0.02, 2, 0.2, 0.2),
    "appearance_penalty": (0.002, 0.2, 0),
    "mean_penalty": (1e-7, 1e-5, 0),
    "balance": (0.95, 0.05),
}
BRAINS: dict[str, Any] = {
    "likelihood": "categorical",
    "shape_penalty": (0.001, 0, 10, 0.1, 0.2),
    "appearance_penalty": (0.01, 1, 50),
    "mean_penalty": (1e-5, 0.01, 0.1),
}
REFERENCE_MS = 55.0  # the reference implementation, per digit and iteration on one core


def main() -> None:
    print("One EM iteration per image, as a multiple of one shooting of that image (limit)")
    images = np.resize(digits()[0], (1000, 28, 28))  # some digits come twice
    ratio, time = iteration_ratio(images, 16, DIGITS, warm_up=2, rounds=8)
    print(f"  28x28, K = 16, N = 1000, binary: {ratio:.2f}x (5x), {time * 1e3:.3f} ms, ", end="")
    print(f"{REFERENCE_MS / time / 1e3:.0f}x faster than the reference (100x)")
    volumes = np.stack([label_volume((64, 64, 64), seed) for seed in range(50)])
    ratio, time = iteration_ratio(volumes, 20, BRAINS, warm_up=1, rounds=3)
    print(f"  64^3, K = 20, N = 50, 3 classes: {ratio:.2f}x (9x), {time * 1e3:.0f} ms")


def iteration_ratio(
    images: np.ndarray, n_components: int, options: dict[str, Any], warm_up: int, rounds: int
) -> tuple[float, float]:
    """Return the median ratio of an iteration to a shooting, and the time of one per image."""
    iterate, shoot = prepare(images, n_components, options)
    with threadpool_limits(1, "blas"):
        for _ in range(warm_up):
            iterate()
        shoot()
        pairs = [(seconds(iterate), seconds(shoot)) for _ in range(rounds)]
    return median(i / s for i, s in pairs), median(i for i, _ in pairs) / len(images)


def prepare(
    images: np.ndarray, n_components: int, options: dict[str, Any]
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return functions that do one iteration, and that shoot all images once."""
    source = ArrayImages(images, options["likelihood"])
    arguments = ShapeAppearanceModel(n_components, **options).get_params()
    settings = checked_settings(arguments, source.format, len(images))
    cohort = Cohort(source, settings, range(len(images)))
    fit = Fit(LocalSites([cohort]), settings)
    states = fit.iterate(fit.start(cohort.moments(), seed=0))
    latest = []

    def iterate() -> None:
        latest[:] = [next(states)]

    def shoot() -> None:
        generator = Generator(settings, latest[0].parameters)
        for first in range(0, len(images), 256):
            generator.displacement(cohort.latents[first : first + 256])

    return iterate, shoot


if __name__ == "__main__":
    main()
