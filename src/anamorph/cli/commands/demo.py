"""``anamorph demo``: fit images that everybody has, save the model, and draw it.

Digits ship with the package; volumes are simulated. Both take about a minute on two processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.messages import Messages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from anamorph.estimator import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph demo
anamorph demo --volumes -o demo-volumes/"""

_IMAGES_PER_ROW = {2: 8, 3: 5}  # by number of axes


@options.command()
def demo(
    volumes: Annotated[
        bool,
        typer.Option("--volumes", metavar="", help="Use simulated volumes (3D) instead of digits."),
    ] = False,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write to."),
    ] = Path("demo-output"),
    threads: options.Threads = None,
    *,
    messages: Messages,
) -> None:
    """Fit a model to handwritten digits that come with anamorph, and draw it.

    It takes about a minute, and ends with a report to open in a browser.
    """
    paths = run_demo(output, volumes=volumes, n_threads=threads, say=messages.say)
    messages.result(files=[str(path) for path in paths])


@dataclass(frozen=True)
class Subject:
    """The images of a demonstration, and the model to fit to them."""

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
        Where files go; created if it does not exist.
    volumes : bool
        Fit simulated volumes instead of digits; False by default.
    n_threads : int, optional
        One per processor by default.
    say : callable
        Called with lines of text about the progress; `print` by default.

    Returns
    -------
    list of Path
        The files, the report first.
    """
    from anamorph.report import write_report
    from anamorph.storage import write_latents

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    subject = volumes_subject() if volumes else digits_subject()
    model, images = subject.model, subject.images
    model.n_threads = n_threads
    say(f"Fitting {len(images)} {subject.name}; the first time, kernels are compiled")
    model.fit(images, callback=lambda progress: say(str(progress)))
    model_path = folder / f"{subject.name}.safetensors"
    model.save(model_path)
    say("Drawing pictures and writing the report")
    report = write_report(
        model,
        folder / "report.html",
        images=images,
        latents=model.latents_,
        labels=subject.labels,
        label_name=subject.label_name,
        title=subject.title,
    )
    table = folder / f"{subject.name}.latents.tsv"  # where `anamorph report` looks for it
    names = [f"image-{n:03d}" for n in range(len(images))]
    column = subject.label_name.split()[0]
    write_latents(table, names, model.latents_, {column: subject.labels.tolist()})
    paths = [report, model_path, table, *_write_pictures(subject, folder)]
    say("\n".join(["Wrote", *(f"  {path}" for path in paths)]))
    return paths


def digits_subject() -> Subject:
    """Return the 400 digits that ship with the package, and the model of the paper."""
    from anamorph import ShapeAppearanceModel, preset
    from anamorph.datasets import digits

    images, labels = digits()
    model = ShapeAppearanceModel(**preset("digits") | {"n_iter": 12})
    return Subject("digits", "Handwritten digits", images, labels, "digit", model)


def volumes_subject() -> Subject:
    """Return simulated label maps of brains, and a small model."""
    from anamorph import ShapeAppearanceModel
    from anamorph.datasets import brains

    images, ages = brains(32)
    model = ShapeAppearanceModel(5, likelihood="categorical", n_iter=5)
    return Subject("volumes", "Simulated brains", images, ages, "age (years)", model)


def _write_pictures(subject: Subject, folder: Path) -> list[Path]:
    from anamorph import plots
    from anamorph.storage.replace import replacing

    model, images, latents = subject.model, subject.images, subject.model.latents_
    shown = range(_IMAGES_PER_ROW[images.ndim - 1])
    scatter = plots.plot_latents(latents, subject.labels, label_name=subject.label_name)
    figures: dict[str, Any] = {
        "fits": plots.plot_fits(model, images, latents, shown),
        "modes": plots.plot_modes(model),
        "samples": plots.plot_samples(model, len(shown), 0),
        "latents": scatter.figure,
        "objective": plots.plot_objective(model.objective_).figure,
    }
    if not model.image_format_.holds_labels:  # label maps cannot say that a voxel is missing
        figures["imputed"] = plots.plot_imputed(model, _half_hidden(images[list(shown)]))
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120)
        paths.append(path)
    return paths


def _half_hidden(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images from 0 to 1 whose upper half is missing."""
    hidden = (images / 255).astype("float32")
    hidden[:, : images.shape[1] // 2] = float("nan")
    return hidden
