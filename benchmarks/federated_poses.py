"""Poses across sites: objective and poses against those of one fit to all images.

python -m benchmarks.federated_poses    three sites of 15 digits that are turned, shifted and scaled

Sites are in this process, with masks, verified totals and the default policy.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import affine_transform

from anamorph import ShapeAppearanceModel
from anamorph.arrays.typing import Float32Array
from anamorph.datasets import digits
from anamorph.federation import federated_fit, simulated_sites, split_images
from anamorph.images.collection import open_images
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.posing import posed_sums

N_IMAGES, N_SITES = 45, 3
FITS: tuple[dict[str, Any], ...] = (
    {"likelihood": "bernoulli", "align": "similarity"},
    {"likelihood": "gaussian", "align": "affine", "intensity": "per image"},
)


def unaligned_digits() -> Float32Array:
    """Return digits 4 and 9, turned by up to 0.5 radian, shifted by 5 pixels, 20 % larger."""
    images, labels = digits()
    random, centre = np.random.default_rng(0), np.array([13.5, 13.5])
    moved = []
    for image in images[np.isin(labels, [4, 9])][:N_IMAGES] / np.float32(255):
        angle, size = random.uniform(-0.5, 0.5), np.exp(random.uniform(-0.2, 0.2))
        turn = size * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        shift = random.uniform(-5, 5, 2)
        moved.append(affine_transform(image, turn, centre + shift - turn @ centre, order=1))
    return np.asarray(np.clip(moved, 0, 1), np.float32)


def compare(options: dict[str, Any]) -> None:
    """Fit digits at once, and across sites."""
    images = unaligned_digits()
    # Those of one machine would follow the images, which a coordinator does not see.
    defaults = LIKELIHOODS[options["likelihood"]].default_penalties
    penalties = {f"{name}_penalty": weights for name, weights in defaults.items()}
    options = options | penalties | {"n_iter": 5, "random_state": 0, "n_threads": 1}
    started = time.process_time()
    pooled = ShapeAppearanceModel(3, **options).fit(images)
    seconds = [time.process_time() - started]
    shared, poses = ShapeAppearanceModel(3, **options), np.zeros_like(pooled.poses_)
    with tempfile.TemporaryDirectory() as folder:
        collection = open_images(images, options["likelihood"])
        parts = split_images(N_IMAGES, N_SITES)
        transport = simulated_sites(collection, parts, Path(folder), n_threads=1)
        started = time.process_time()
        result = federated_fit(shared, transport, transport.names)
        seconds.append(time.process_time() - started)
        for part, agent in zip(parts, transport._agents.values(), strict=True):
            assert agent._fit is not None
            poses[part] = agent._fit.cohort.poses
    difference = np.abs(np.array(shared.objective_) / np.array(pooled.objective_) - 1).max()
    print(", ".join(f"{name}={value!r}" for name, value in options.items()))
    print(f"  objective differs by {difference:.1e} (1e-4), ", end="")
    print(f"shifts by {np.abs(poses - pooled.poses_)[:, :2].max():.1e} pixels")
    print(
        f"  {result.n_questions} questions; pooled {seconds[0]:.1f} s of processor time, ", end=""
    )
    print(f"all sites and the coordinator {seconds[1]:.1f} s")
    count = posed_sums(images[:, None], pooled.poses_, pooled.settings_.frame)[0][0]
    shares = ", ".join(f"{np.mean(count < n):.1%} by fewer than {n}" for n in (2, 5, 10))
    print(f"  voxels of the template that images reach: {shares} of {N_IMAGES}")


if __name__ == "__main__":
    for fit in FITS:
        compare(fit)
