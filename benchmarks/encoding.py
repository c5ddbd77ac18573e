"""Adjoint shooting against shooting, and what it takes to encode images a model has not seen."""

from __future__ import annotations

import numpy as np

from anamorph import ShapeAppearanceModel, preset
from anamorph.datasets import digits
from anamorph.geometry import shoot
from anamorph.geometry.adjoint import RecordedPath
from anamorph.kernels.threads import n_threads
from anamorph.model.encoding import encode
from benchmarks.geometry import N_STEPS, PENALTY, name, smooth_velocities
from benchmarks.paired import ratios

N_TRAINING = 200


def main() -> None:
    print(f"Adjoint shooting, {n_threads()} threads; ratio to shooting")
    for space, n_images in (((28, 28), 256), ((64, 48), 64), ((48, 64, 48), 1)):
        adjoint(space, n_images)
    unseen_digits()


def adjoint(space: tuple[int, ...], n_images: int) -> None:
    v = smooth_velocities(n_images, space, largest=3.0)
    covector = np.random.default_rng(1).standard_normal(v.shape, dtype=np.float32)
    settings = PENALTY, (1.0,) * len(space), N_STEPS
    path = RecordedPath(v, *settings)
    _, ratio = ratios(
        lambda: shoot(v, PENALTY, n_steps=N_STEPS),
        {
            "recorded": lambda: RecordedPath(v, *settings),
            "adjoint": lambda: path.differentiate(covector),
        },
        rounds=7,
    )
    print(f"  {name(space)} x {n_images}: ", end="")
    print(f"recorded shooting {ratio['recorded']:.2f}x, adjoint {ratio['adjoint']:.2f}x (2x)")


def unseen_digits() -> None:
    images = digits()[0]
    model = ShapeAppearanceModel(**preset("digits")).fit(images[:N_TRAINING])
    unseen = model.checked_images(images[N_TRAINING : N_TRAINING + 100])
    generator = model.generator_
    encoded = encode(generator, unseen.read(slice(0, len(unseen))))
    print(
        f"  {len(unseen)} unseen digits: {encoded.n_shootings.mean():.1f} shootings each, ", end=""
    )
    print(f"adjoint ones included, and {model.n_components} or more for the Hessian")


if __name__ == "__main__":
    main()
