"""Speed on a GPU: time, the floor below which it cannot go, and their ratio.

Floors are the Fourier transforms that shooting cannot avoid, or the bytes that must be moved over
the bandwidth that a copy reaches. Compilation is not counted: everything runs once before.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from anamorph import EvidenceClassifier, ShapeAppearanceModel
from anamorph.arrays.devices import find_gpu
from anamorph.arrays.gpu_images import ImagesOnDevice
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.em import Fit
from anamorph.fitting.placement import plan_fit_on_gpu
from anamorph.fitting.sites import LocalSites
from anamorph.geometry import pull, push, shoot, velocity
from anamorph.images.arrays import ImageFormat
from anamorph.kernels.errors import DeviceError
from anamorph.model.presets import preset
from anamorph.model.settings import checked_settings
from anamorph.solvers import solve_velocity
from benchmarks.model import BRAINS, DIGITS

_STEPS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["kernels"], help="kernels, digits, volumes")
    parser.add_argument("--mnist", help="mnist.npz with x_train, y_train, x_test, y_test")
    parser.add_argument("--n-volumes", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--n-iter", type=int, default=8)
    options = parser.parse_args()
    try:
        cupy = find_gpu()
    except DeviceError as error:
        sys.exit(f"bench-gpu is skipped: {error}")
    print(f"{cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}")
    if "kernels" in options.cases:
        kernels(cupy)
    if "digits" in options.cases:
        digits(options.mnist)
    if "volumes" in options.cases:
        for n_volumes in options.n_volumes:
            volumes(cupy, n_volumes, options.n_iter)


def kernels(cupy: Any) -> None:
    """Print a row for each kernel and size."""
    bandwidth = _bandwidth(cupy)
    print(f"copies reach {bandwidth / 1e12:.2f} TB/s")
    print(f"{'case':44s} {'ms':>9s} {'floor ms':>9s} {'ratio':>6s}")
    penalty = DIGITS["shape_penalty"]
    for n, space in ((60000, (28, 28)), (6000, (28, 28)), (8, (64,) * 3), (8, (96, 112, 96)),
                     (1, (96, 112, 96)), (8, (91, 109, 91))):  # fmt: skip
        v = _smooth(cupy, n, space, penalty)
        floor = _STEPS * _milliseconds(cupy, lambda v=v: _transform_pair(v))
        row = _milliseconds(cupy, lambda v=v: shoot(v, penalty, n_steps=_STEPS))
        _print_row(f"shoot {n} x {_name(space)}", row, floor, "FFTs, limit 2x")
        image = cupy.random.standard_normal((n, 2, *space), dtype=np.float32)
        for warp in (pull, push):
            bytes_moved = image.nbytes * 2 + v.nbytes
            row = _milliseconds(cupy, lambda warp=warp, i=image, v=v: warp(i, v))
            name = f"{warp.__name__} of 2 channels, {n} x {_name(space)}"
            _print_row(name, row, 1e3 * bytes_moved / bandwidth, "bytes")
    space, n = (91, 109, 91), 8
    gradient = cupy.random.standard_normal((n, 3, *space), dtype=np.float32)
    hessian = cupy.ones((n, 6, *space), np.float32)
    hessian[:, 3:] = 0.1
    solve = lambda: solve_velocity(hessian, gradient, BRAINS["shape_penalty"], (1, 1, 1))  # noqa: E731
    row = _milliseconds(cupy, solve, rounds=3)
    cycles = solve().n_cycles.mean()
    bytes_moved = (4 * cycles + 2) * (4 * gradient.nbytes + hessian.nbytes)
    name = f"solve {n} x {_name(space)} ({cycles:.0f} cycles)"
    _print_row(name, row, 1e3 * bytes_moved / bandwidth, "bytes of the products")


def digits(path: str | None) -> None:
    """Train on all MNIST digits, classify all test digits, and say how long it took."""
    if path is None:
        from anamorph.datasets import mnist

        x_train, y_train, x_test, y_test = mnist()
    else:
        stored = np.load(path, allow_pickle=False)
        x_train, y_train, x_test, y_test = (
            stored[name] for name in ("x_train", "y_train", "x_test", "y_test")
        )
    model = ShapeAppearanceModel(**{**preset("digits"), "device": "cuda"})
    some = slice(0, 2000)
    warm_up = EvidenceClassifier(model).fit(x_train[some], y_train[some])
    warm_up.joint_log_evidence(x_test[:100])
    start = time.perf_counter()
    classifier = EvidenceClassifier(model).fit(x_train, y_train)
    fitted = time.perf_counter()
    errors = np.count_nonzero(classifier.predict(x_test) != y_test)
    end = time.perf_counter()
    print(
        f"MNIST: {len(x_train)} digits in 10 models, {fitted - start:.1f} s; {len(x_test)} digits "
        f"classified, {end - fitted:.1f} s; together {end - start:.1f} s (limit 60 s); "
        f"{errors} errors, {100 * errors / len(x_test):.2f} %",
        flush=True,
    )


def volumes(cupy: Any, n_volumes: int, n_iter: int) -> None:
    """Fit simulated brains of the size of the paper's largest experiment."""
    space = (91, 109, 91)
    images = SimulatedVolumes(cupy, n_volumes, space)
    model = ShapeAppearanceModel((30, 70), latents="separate", **BRAINS)
    image_format = ImageFormat("categorical", space, 3, None)
    settings = checked_settings(model.get_params(), image_format, n_volumes)
    plan = plan_fit_on_gpu(settings, n_volumes)
    start = time.perf_counter()
    on_device = ImagesOnDevice(images, plan.are_images_resident)
    cupy.cuda.Device().synchronize()
    made = time.perf_counter()
    cohort = Cohort(on_device, settings, range(n_volumes), plan.working_bytes)
    fit = Fit(LocalSites([cohort]), settings)
    states = fit.iterate(fit.start(cohort.moments(), seed=0))
    state = None
    for _ in range(n_iter):
        state = next(states)
        print(f"  {state.seconds[-1]:.2f} s, objective {state.objective[-1]:.6g}", flush=True)
    end = time.perf_counter()
    print(
        f"{n_volumes} volumes {_name(space)}, 3 classes, 30 + 70 latents, {n_iter} iterations: "
        f"{end - made:.1f} s after {made - start:.1f} s to make them; "
        f"{1e3 * median(state.seconds) / n_volumes:.2f} ms per volume and iteration; "
        f"{cupy.get_default_memory_pool().total_bytes() / 2**30:.0f} GiB of the GPU; "
        f"1913 would take {1913 / n_volumes * (end - made) / 60:.1f} min (limit 10 min)",
        flush=True,
    )


class SimulatedVolumes:
    """Tissue maps of a drawn head, each seen through its own random diffeomorphism."""

    def __init__(self, cupy: Any, n_volumes: int, space: tuple[int, ...]) -> None:
        self._cupy, self._n_volumes = cupy, n_volumes
        places = np.indices(space, np.float32)
        centre = (np.array(space, np.float32).reshape(3, 1, 1, 1) - 1) / 2
        radius = np.sqrt((((places - centre) / (0.8 * centre)) ** 2).sum(axis=0))
        folds = 0.06 * np.sin(places[0] / 4) * np.sin(places[1] / 5) * np.sin(places[2] / 4)
        tissue = np.where(radius < 0.75 + folds, 2, np.where(radius < 1, 1, 0))
        self._template = cupy.asarray((tissue == np.arange(3).reshape(3, 1, 1, 1)), np.float32)

    def __len__(self) -> int:
        return self._n_volumes

    def read(self, part: slice) -> Any:
        """Return tissue maps (n, 3, *space), the same whenever they are asked for."""
        space, penalty = self._template.shape[1:], (0.01, 0.0, 20.0, 1.0, 1.0)
        out = self._cupy.empty((part.stop - part.start, *self._template.shape), np.float32)
        for row, n in enumerate(range(part.start, part.stop)):
            random = self._cupy.random.RandomState(n)
            field = velocity(random.standard_normal((1, 3, *space), dtype=np.float32), penalty)
            field -= field.mean(axis=(2, 3, 4), keepdims=True)
            field *= 8 / self._cupy.abs(field).max()
            out[row] = pull(self._template[None], shoot(field, penalty))[0]
        return out


def _smooth(cupy: Any, n: int, space: tuple[int, ...], penalty: tuple[float, ...]) -> Any:
    noise = cupy.random.standard_normal((n, len(space), *space), dtype=np.float32)
    v = velocity(noise, penalty)
    v -= v.mean(axis=tuple(range(2, v.ndim)), keepdims=True)
    return v * (3 / cupy.abs(v).max())


def _transform_pair(v: Any) -> Any:
    from cupyx.scipy import fft

    axes = tuple(range(2, v.ndim))
    return fft.irfftn(fft.rfftn(v, axes=axes), s=v.shape[2:], axes=axes, overwrite_x=True)


def _milliseconds(cupy: Any, task: Callable[[], object], rounds: int = 7) -> float:
    task()
    task()
    times = []
    for _ in range(rounds):
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        task()
        after.record()
        after.synchronize()
        times.append(cupy.cuda.get_elapsed_time(before, after))
    return median(times)


def _bandwidth(cupy: Any) -> float:
    source = cupy.random.standard_normal(2**29, dtype=np.float32)
    target = cupy.empty_like(source)
    milliseconds = _milliseconds(cupy, lambda: cupy.copyto(target, source))
    return 2 * source.nbytes / milliseconds * 1e3


def _print_row(name: str, time_ms: float, floor: float, what: str) -> None:
    print(f"{name:44s} {time_ms:9.3f} {floor:9.3f} {time_ms / floor:6.2f}  ({what})", flush=True)


def _name(space: tuple[int, ...]) -> str:
    return "x".join(map(str, space))


if __name__ == "__main__":
    main()
