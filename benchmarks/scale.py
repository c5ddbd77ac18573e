"""Growth with the number of images, and memory: minutes to an hour, so not part of `make bench`.

python -m benchmarks.scale time      time per image and iteration, 500 and 8,000 digits
python -m benchmarks.scale digits    peak memory of a fit to 60,000 digits
python -m benchmarks.scale volumes   peak memory of a fit to 100 volumes in files
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from benchmarks.model import BRAINS, DIGITS, prepare
from benchmarks.paired import seconds
from benchmarks.simulate import label_volume


def growth_of_time(few: int = 500, many: int = 8000, rounds: int = 3) -> None:
    """Alternate iterations on few and many digits, and compare the time per image."""
    iterations = {}
    with threadpool_limits(1, "blas"):
        for n_images in (few, many):
            iterations[n_images], _ = prepare(
                np.resize(digits()[0], (n_images, 28, 28)), 16, DIGITS
            )
            iterations[n_images]()
        ratio = median(
            seconds(iterations[many]) / many / median(seconds(iterations[few]) / few for _ in "abc")
            for _ in range(rounds)
        )
    print(f"Time per image and iteration, {few} to {many} digits: {ratio:.2f}x (1.1x)")


def memory_of_digits(n_images: int = 60000) -> None:
    """Fit many digits for two iterations."""
    images = np.resize(digits()[0], (n_images, 28, 28))
    started = time.perf_counter()
    ShapeAppearanceModel(16, n_iter=2, **DIGITS).fit(images)
    report(f"{n_images} digits", started, 1.5)


def memory_of_volumes(n_images: int = 100, space: tuple[int, ...] = (96, 112, 96)) -> None:
    """Fit volumes of 3 classes in files for two iterations."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{n}.npy" for n in range(n_images)]
        for n, path in enumerate(paths):
            np.save(path, label_volume(space, n))
        started = time.perf_counter()
        ShapeAppearanceModel(10, n_iter=2, verbose=True, **BRAINS).fit(paths)
        report(f"{n_images} volumes of {space}", started, 6)


def report(what: str, started: float, limit: float) -> None:
    """Print time and peak memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    elapsed = time.perf_counter() - started
    print(f"2 iterations on {what}: {elapsed:.0f} s, peak memory {peak:.2f} GiB ({limit} GB)")


if __name__ == "__main__":
    tasks = {"time": growth_of_time, "digits": memory_of_digits, "volumes": memory_of_volumes}
    for name in sys.argv[1:] or tasks:
        tasks[name]()
