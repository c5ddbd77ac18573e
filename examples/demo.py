"""Learn a model of handwritten digits that ship with the package, and draw what it has learnt."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits

# The settings of the paper's experiment with MNIST.
model = ShapeAppearanceModel(
    16,
    likelihood="bernoulli",
    shape_penalty=(0.002, 0.02, 2, 0.2, 0.2),
    appearance_penalty=(0.002, 0.2, 0),
    mean_penalty=(1e-7, 1e-5, 0),
    balance=(0.95, 0.05),
    n_iter=12,
    verbose=True,
)


def rows_of_images() -> dict[str, np.ndarray]:
    """Fit the model, and return rows of eight images by what they show."""
    images, _ = digits()
    started = time.perf_counter()
    model.fit(images)
    print(f"Fitted {len(images)} digits in {time.perf_counter() - started:.1f} s")
    shown = images[:8] / 255
    latents = model.transform(images[:8])
    hidden = shown.copy()
    hidden[:, :14] = np.nan
    return {
        "digits": shown,
        "reconstructed": model.inverse_transform(latents),
        "shape only": model.inverse_transform(latents, part="shape"),
        "appearance only": model.inverse_transform(latents, part="appearance"),
        "upper half hidden": hidden,
        "imputed": model.impute(hidden),
        "first mode, -3 to 3 s.d.": mode(0),
        "second mode": mode(1),
        "drawn at random": model.sample(8, random_state=0)[0],
    }


def mode(k: int) -> np.ndarray:
    """Return images along one latent, from -3 to 3 standard deviations."""
    latents = np.zeros((8, len(model.latent_precision_)))
    deviation = np.sqrt(np.linalg.inv(model.latent_precision_)[k, k])
    latents[:, k] = np.linspace(-3, 3, 8) * deviation
    return model.inverse_transform(latents)


def draw(rows: dict[str, np.ndarray], path: Path) -> None:
    """Draw rows of images, each with its name."""
    figure, axes = plt.subplots(len(rows), 8, figsize=(8, 1.12 * len(rows)))
    for (name, images), row in zip(rows.items(), axes, strict=True):
        for image, axis in zip(images, row, strict=True):
            axis.imshow(image, cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[], facecolor="#7a5")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.subplots_adjust(left=0.24, right=0.99, top=0.99, bottom=0.01, wspace=0.05, hspace=0.05)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")
    folder.mkdir(parents=True, exist_ok=True)
    draw(rows_of_images(), folder / "digits.png")
    model.save(folder / "digits.safetensors")
    print(f"Wrote {folder / 'digits.png'} and {folder / 'digits.safetensors'}")
