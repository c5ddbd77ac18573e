"""Linear solves, counted in applications of their operator: L by Fourier transforms, plus H.

The alternative is conjugate gradients preconditioned by the Green's function of L + D, with D the
mean of H: one pair of transforms per iteration, since (H + L) z = r + (H - D) z for
z = (L + D)^-1 r. It is run with as many iterations as bring it to the errors of the default
tolerance, known from an accurate solution. Multigrid without its parts is compared in cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from anamorph.geometry.operators import (
    VELOCITY_WEIGHTS,
    angular_frequencies,
    apply_symbol,
    field_symbol,
    inverse_symbol,
    packed_pairs,
    velocity_symbol,
)
from anamorph.kernels.threads import n_threads
from anamorph.solvers import Solution, solve_field, solve_velocity
from anamorph.solvers.multigrid import multigrid
from anamorph.solvers.system_operator import Regulariser, SystemOperator
from anamorph.solvers.systems import FieldBlocks
from benchmarks.paired import ratios

Fields = NDArray[np.floating]
TOLERANCE = 1e-3
MOST_ITERATIONS = 300
DIGITS, BRAINS = (0.002, 0.02, 2, 0.2, 0.2), (1e-3, 0, 10, 0.1, 0.2)
DIGIT_APPEARANCE, BRAIN_APPEARANCE = (0.002, 0.2, 0), (0.01, 1, 50)
FACE_MEAN = (1e-4, 0.1, 0.1)


def main() -> None:
    print(f"Solves to {TOLERANCE:g}, {n_threads()} threads; in applications of the operator (40)")
    print("  " + "system".ljust(26) + "1 application   solve  cycles | Green's CG  iterations")
    for name, system in systems().items():
        solution = system.solve(TOLERANCE)
        n_iterations = system.iterations_needed(greens_conjugate_gradients(system))
        candidates = {"solve": lambda: system.solve(TOLERANCE)}  # noqa: B023
        if n_iterations:
            candidates["green"] = lambda: run(greens_conjugate_gradients(system), n_iterations)  # noqa: B023
        floor, ratio = ratios(lambda: system.apply(system.gradient), candidates, rounds=5)  # noqa: B023
        green = f"{ratio['green']:10.1f}  {n_iterations:10d}" if n_iterations else "fails".rjust(10)
        print(f"  {name:26s}{floor * 1e3:10.2f} ms {ratio['solve']:7.1f}", end="")
        print(f"{solution.n_cycles.max():8d} | {green}")
    growth()
    parts()


def growth() -> None:
    """Print how the cost per voxel grows from 32^3 to 96^3."""
    small, large = (velocity_system((n,) * 3, 1, BRAINS) for n in (32, 96))
    _, ratio = ratios(
        lambda: small.solve(TOLERANCE), {"large": lambda: large.solve(TOLERANCE)}, rounds=5
    )
    print(f"  cost per voxel, 96^3 to 32^3: {ratio['large'] / 27:.2f}x (1.3x)")


def parts() -> None:
    """Print the cycles that multigrid needs without full multigrid, or conjugate gradients."""
    print("  cycles: all parts | no full multigrid | no conjugate gradients")
    for name, system in systems().items():
        counts = [
            system.iterations_needed(multigrid_iteration(system, with_start, with_conjugation))
            for with_start, with_conjugation in ((True, True), (False, True), (True, False))
        ]
        print(f"  {name:26s}" + " | ".join(f"{n or '> 300':>5}" for n in counts))


@dataclass(frozen=True)
class System:
    """(H + L) x = g for one batch: hessian (K, P, *space), gradient (K, C, *space)."""

    hessian: Fields
    gradient: Fields
    penalty: tuple[float, ...]

    @property
    def space(self) -> tuple[int, ...]:
        """The shape of the grid."""
        return self.gradient.shape[2:]

    @property
    def voxel_size(self) -> tuple[float, ...]:
        """The size of its voxels."""
        return (1.0,) * len(self.space)

    def solve(self, tolerance: float, dtype: type = np.float32) -> Solution:
        """Return what the package finds."""
        function = solve_velocity if len(self.penalty) == VELOCITY_WEIGHTS else solve_field
        return function(
            self.hessian.astype(dtype, copy=False),
            self.gradient.astype(dtype, copy=False),
            self.penalty,
            self.voxel_size,
            tolerance=tolerance,
        )

    def apply(self, x: Fields) -> Fields:
        """Return (H + L) x."""
        result = multiplied(x, symbol(self.penalty, self.space, None))
        add_product(result, self.hessian, x)
        return result

    def iterations_needed(self, iteration: Iterator[Fields]) -> int | None:
        """Return when residual and energy are within the tolerance, or None if that takes long."""
        exact = self.solve(1e-8, np.float64).x.astype(np.float32)
        energy, scale = np.sum(exact * self.gradient), np.linalg.norm(self.gradient)
        for n, x in enumerate(islice(iteration, MOST_ITERATIONS), start=1):
            residual = self.apply(x - exact)
            is_close = np.sum((x - exact) * residual) < TOLERANCE**2 * energy
            if is_close and np.linalg.norm(residual) < TOLERANCE * scale:
                return n
        return None


def greens_conjugate_gradients(system: System) -> Iterator[Fields]:
    """Yield the iterates of conjugate gradients preconditioned by (L + D)^-1."""
    n = system.gradient.shape[1]
    shift = float(system.hessian[:, :n].mean())
    greens = symbol(system.penalty, system.space, shift)
    x = np.zeros_like(system.gradient)
    residual, direction, product = system.gradient.copy(), x.copy(), x.copy()
    slope = np.inf
    while True:
        z = multiplied(residual, greens)
        a_z = residual - np.float32(shift) * z
        add_product(a_z, system.hessian, z)
        previous, slope = slope, dots(residual, z)
        conjugation = slope / previous
        direction, product = z + conjugation * direction, a_z + conjugation * product
        length = slope / dots(direction, product)
        x = x + length * direction
        residual = residual - length * product
        yield x


def multigrid_iteration(
    system: System, with_start: bool, with_conjugation: bool
) -> Iterator[Fields]:
    """Yield the iterates of multigrid with or without its parts, all systems side by side."""
    blocks = FieldBlocks(system.space, len(system.gradient), np.dtype(np.float32))
    regulariser = Regulariser(system.penalty, system.voxel_size, system.gradient.shape[1])
    hessian = blocks.load(system.hessian)
    operator = SystemOperator(blocks, system.voxel_size, regulariser, hessian)
    level, g = multigrid(operator), blocks.load(system.gradient)
    x = level.solve_fully(g) if with_start else np.zeros_like(g)
    residual, direction, product = g.copy(), np.zeros_like(g), np.zeros_like(g)
    operator.subtract(residual, x)
    slope = np.full(blocks.lanes, np.inf)
    while True:
        z = level.cycle(residual)
        previous, slope = slope, blocks.dot(residual, z)
        blocks.scale_and_add(direction, with_conjugation * slope / previous, z)
        blocks.fill_halo(direction)
        operator.apply(product, direction)
        length = slope / blocks.dot(direction, product) if with_conjugation else slope / slope
        blocks.add_scaled(x, length, direction)
        blocks.add_scaled(residual, -length, product)
        yield blocks.unload(x)


def run(iteration: Iterator[Fields], n_iterations: int) -> None:
    for _ in islice(iteration, n_iterations):
        pass


def dots(a: Fields, b: Fields) -> Fields:
    return np.einsum("kn,kn->k", a.reshape(len(a), -1), b.reshape(len(b), -1)).reshape(
        -1, *(1 for _ in a.shape[1:])
    )


@lru_cache(maxsize=4)
def symbol(penalty: tuple[float, ...], space: tuple[int, ...], shift: float | None) -> Fields:
    """Return the symbol of L, or that of (L + shift)^-1: (frequency, packed)."""
    frequencies, voxel_size = angular_frequencies(space, half=True), (1.0,) * len(space)
    if len(penalty) == VELOCITY_WEIGHTS:
        packed = velocity_symbol(penalty, frequencies, voxel_size)
    else:
        packed = field_symbol(penalty, frequencies, voxel_size)[None]
    if shift is not None:
        packed[: len(space) if len(packed) > 1 else 1] += shift
        packed = inverse_symbol(packed)
    return np.ascontiguousarray(packed.reshape(len(packed), -1).T, np.float32)


def multiplied(x: Fields, packed: Fields) -> Fields:
    """Return fields multiplied by a symbol in the Fourier domain."""
    if packed.shape[1] > 1:
        return apply_symbol(x[..., None], packed, workers=n_threads())[..., 0]
    space = x.shape[2:]
    axes = tuple(range(2, x.ndim))
    spectrum = scipy.fft.rfftn(x, axes=axes, workers=n_threads())
    spectrum *= packed.reshape(spectrum.shape[2:])
    return scipy.fft.irfftn(spectrum, s=space, axes=axes, workers=n_threads(), overwrite_x=True)


def add_product(out: Fields, hessian: Fields, x: Fields) -> None:
    """Add H x to fields (K, C, *space)."""
    work = np.empty_like(x[:, 0])
    for packed, (i, j) in enumerate(packed_pairs(x.shape[1])[: hessian.shape[1]]):
        for row, column in {(i, j), (j, i)}:
            np.multiply(hessian[:, packed], x[:, column], out=work)
            out[:, row] += work


def systems() -> dict[str, System]:
    return {
        "velocity 28x28 x 16": velocity_system((28, 28), 16, DIGITS),
        "velocity 64x64x64 x 2": velocity_system((64, 64, 64), 2, BRAINS),
        "1 class 28x28 x 16": class_system(1, (28, 28), 16, DIGIT_APPEARANCE),
        "3 classes 128x128 x 16": class_system(3, (128, 128), 16, BRAIN_APPEARANCE),
        "3 classes 64x64x64 x 2": class_system(3, (64, 64, 64), 2, BRAIN_APPEARANCE),
        "mean, 3 channels 128x128": mean_system((128, 128), FACE_MEAN),
        "contrast 1e8, 128x128": contrast_system((128, 128), BRAIN_APPEARANCE),
    }


def object_in_background(space: tuple[int, ...], seed: int) -> Fields:
    """Return a smooth random image inside a box, far below 0 around it."""
    noise = np.random.default_rng(seed).standard_normal(space)
    image = gaussian_filter(noise, np.array(space) / 12, mode="wrap")
    far = np.max(
        [abs(2 * i / n - 1) for i, n in zip(np.indices(space), space, strict=True)], axis=0
    )
    return gaussian_filter(np.where(far < 0.7, 2 * image / image.std(), -6), 0.7, mode="wrap")


def velocity_system(space: tuple[int, ...], k: int, penalty: tuple[float, ...]) -> System:
    """Return the systems of shape updates for binary images: matrices of rank one."""
    rng = np.random.default_rng(0)
    image = object_in_background(space, seed=1)
    gradients = np.stack(np.gradient(image))
    s = 1 / (1 + np.exp(-image))
    likelihood = s * (1 - s) + 1e-4
    scale = rng.uniform(0.5, 1.5, (k, *(1 for _ in gradients.shape)))
    packed = [gradients[i] * gradients[j] for i, j in packed_pairs(len(space))]
    residuals = rng.standard_normal((k, 1, *space)) * np.sqrt(likelihood)
    hessian = scale * likelihood * np.stack(packed)
    return System(hessian.astype(np.float32), (residuals * gradients).astype(np.float32), penalty)


def class_system(
    n_classes: int, space: tuple[int, ...], k: int, penalty: tuple[float, ...]
) -> System:
    """Return the systems of appearance updates; for one class, of binary images."""
    rng = np.random.default_rng(0)
    a = np.stack([object_in_background(space, seed) for seed in range(n_classes)])
    s = np.exp(a) / (np.exp(a).sum(axis=0) + (n_classes == 1))
    pairs = packed_pairs(n_classes)
    hessian = np.stack([s[i] * (i == j) - s[i] * s[j] + 1e-4 * (i == j) for i, j in pairs])
    observed = gaussian_filter((rng.random(space) < 0.7).astype(float), 1, mode="wrap")
    scale = rng.uniform(0.5, 1.5, (k, 1, *(1 for _ in space)))
    gradient = rng.standard_normal((k, n_classes, *space)) * np.sqrt(s)
    return System(
        (scale * observed * hessian).astype(np.float32), gradient.astype(np.float32), penalty
    )


def mean_system(space: tuple[int, ...], penalty: tuple[float, ...]) -> System:
    """Return the system of a gaussian mean, noise 0.1, where a border is never observed."""
    rng = np.random.default_rng(0)
    is_observed = object_in_background(space, seed=0) > -5
    hessian = np.broadcast_to(100.0 * is_observed, (1, 3, *space))
    gradient = hessian * rng.standard_normal((1, 3, *space))
    return System(hessian.astype(np.float32), gradient.astype(np.float32), penalty)


def contrast_system(space: tuple[int, ...], penalty: tuple[float, ...]) -> System:
    """Return a system whose Hessian varies from voxel to voxel between 1e-4 and 1e4."""
    rng = np.random.default_rng(0)
    hessian = 10 ** rng.uniform(-4, 4, (1, 1, *space))
    hessian[..., : space[-1] // 2] = 0
    gradient = np.sqrt(hessian) * rng.standard_normal(hessian.shape)
    return System(hessian.astype(np.float32), gradient.astype(np.float32), penalty)


if __name__ == "__main__":
    main()
