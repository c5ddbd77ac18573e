"""An iteration on a cluster of two workers against the same on one machine.

python -m benchmarks.cluster     needs the extra [cluster], so not part of `make bench`

Workers are processes of this machine, one thread each, and one machine is two threads: what the
cluster takes longer is what it costs to send parameters, start tasks, add up and write latents.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from anamorph import ShapeAppearanceModel
from anamorph.cluster import fit_on_cluster
from anamorph.datasets import digits
from benchmarks.model import BRAINS, DIGITS
from benchmarks.simulate import label_volume

N_WORKERS = 2


def main() -> None:
    print(
        f"One EM iteration, {N_WORKERS} workers of a cluster and {N_WORKERS} threads of a process"
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        )
        client = stack.enter_context(Client(cluster, set_as_default=False))
        images = np.resize(digits()[0], (1000, 28, 28))
        compare("28x28, K = 16, N = 1000, binary", client, images, 16, DIGITS)
        volumes = np.stack([label_volume((48, 48, 48), seed) for seed in range(16)])
        compare("48^3, K = 8, N = 16, 3 classes", client, volumes, 8, BRAINS)


def compare(
    name: str,
    client: Client,
    images: np.ndarray,
    n_components: int,
    options: dict[str, Any],
    n_iter: int = 6,
) -> None:
    """Fit images in files both ways, and print the median time of an iteration after the first."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{n}.npy" for n in range(len(images))]
        for path, image in zip(files, images, strict=True):
            np.save(path, image)
        settings = {"n_iter": n_iter, **options}
        shared = Path(folder) / "shared"
        pooled = ShapeAppearanceModel(n_components, n_threads=N_WORKERS, **settings).fit(files)
        spread = fit_on_cluster(
            ShapeAppearanceModel(n_components, **settings), files, client, shared
        )
    ours, theirs = (median(model.origin_.seconds[1:]) for model in (spread, pooled))
    difference = max(
        abs(a / b - 1) for a, b in zip(spread.objective_, pooled.objective_, strict=True)
    )
    print(
        f"  {name}: {ours:.3f} s and {theirs:.3f} s, {ours / theirs:.2f}x, "
        f"{1000 * (ours - theirs):.0f} ms more; objectives differ by {difference:.0e}"
    )


if __name__ == "__main__":
    main()
