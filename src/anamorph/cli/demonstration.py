"""A demonstration: fit images that everybody has, save what was learnt, and draw it.

Digits ship with the package; volumes are simulated. Both take about a minute on two processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.datasets import digits
from anamorph.datasets.simulated import brains
from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.progress import Progress
from anamorph.model.presets import preset
from anamorph.plots import (
    plot_fits,
    plot_imputed,
    plot_latents,
    plot_modes,
    plot_objective,
    plot_samples,
)
from anamorph.report import write_report
from anamorph.storage.replace import replacing
from anamorph.storage.tables import write_latents

_N_SHOWN = {2: 8, 3: 5}  # images in a row, by number of axes


@dataclass(frozen=True)
class _Subject:
    """What a demonstration is about."""

    name: str
    title: str
    images: NDArray[Any]
    labels: NDArray[Any]
    label_name: str
    model: ShapeAppearanceModel


def run_demo(
    folder: str | os.PathLike[str],
    *,
    volumes: bool = False,
    n_threads: int | None = None,
    say: Callable[[str], object] = print,
) -> list[Path]:
    """Fit a model to digits or volumes, and write it, its latents, pictures and a report.

    Parameters
    ----------
    folder : path
        Where files go; made if it does not exist.
    volumes : bool
        Whether to fit simulated volumes, and not digits.
    n_threads : int, optional
        As many as processors by default.
    say : callable
        Called with lines that tell how it goes.

    Returns
    -------
    list of Path
        The files, the report first.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    subject = _volumes() if volumes else _digits()
    subject.model.n_threads = n_threads
    say(f"Fitting {len(subject.images)} {subject.name}; the first time, kernels are compiled")

    def tell(progress: Progress) -> None:
        say(str(progress))

    subject.model.fit(subject.images, callback=tell)
    model_path = folder / f"{subject.name}.safetensors"
    subject.model.save(model_path)
    say("Drawing pictures and writing the report")
    paths = [
        _write_report(subject, folder),
        model_path,
        _write_latents(subject, folder),
        *_write_pictures(subject, folder),
    ]
    say("\n".join(["Wrote", *(f"  {path}" for path in paths)]))
    return paths


def _digits() -> _Subject:
    images, labels = digits()
    model = ShapeAppearanceModel(**preset("digits") | {"n_iter": 12})
    return _Subject("digits", "Handwritten digits", images, labels, "digit", model)


def _volumes() -> _Subject:
    images, ages = brains(32)
    model = ShapeAppearanceModel(5, likelihood="categorical", n_iter=5)
    return _Subject("volumes", "Simulated brains", images, ages, "age (years)", model)


def _write_report(subject: _Subject, folder: Path) -> Path:
    return write_report(
        subject.model,
        folder / "report.html",
        images=subject.images,
        latents=subject.model.latents_,
        labels=subject.labels,
        label_name=subject.label_name,
        title=subject.title,
    )


def _write_latents(subject: _Subject, folder: Path) -> Path:
    """Write a row per image: its name, its latents, what it is."""
    path = folder / f"{subject.name}.latents.tsv"  # where `anamorph report` looks for it
    names = [f"image-{n:03d}" for n in range(len(subject.images))]
    column = subject.label_name.split()[0]
    write_latents(path, names, subject.model.latents_, {column: subject.labels.tolist()})
    return path


def _write_pictures(subject: _Subject, folder: Path) -> list[Path]:
    model, images = subject.model, subject.images
    shown = range(_N_SHOWN[images.ndim - 1])
    labels = subject.labels
    figures = {
        "fits": plot_fits(model, images, model.latents_, shown),
        "modes": plot_modes(model),
        "samples": plot_samples(model, len(shown), 0),
        "latents": plot_latents(model.latents_, labels, label_name=subject.label_name).figure,
        "objective": plot_objective(model.objective_).figure,
    }
    if not model.image_format_.holds_labels:  # they cannot say that a voxel is missing
        figures["imputed"] = plot_imputed(model, _half_hidden(images[list(shown)]))
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        with replacing(path) as temporary:
            figure.figure.savefig(temporary, dpi=120)
        paths.append(path)
    return paths


def _half_hidden(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images from 0 to 1 whose upper half is missing."""
    hidden = (images / 255).astype(np.float32)
    hidden[:, : images.shape[1] // 2] = np.nan
    return hidden
