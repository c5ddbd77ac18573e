"""What the experiments share: options, data, steps that are done once, results and pictures.

An experiment is a list of steps. Each is computed once and remembered in a work folder, so that a
run that was interrupted goes on where it stopped:

    experiment = Experiment.from_options("mnist", parser("mnist", __doc__).parse_args())
    arrays = experiment.arrays("n1000/part-3", lambda: {"evidence": ...})

What a reader wants ends up in the results folder: ``results.json``, with an entry for each part of
the experiment that says where its numbers come from, and pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.run import duration
from anamorph.storage.replace import replacing
from examples.paper.provenance import ROOT, joined, present_provenance

DATA_VARIABLE = "ANAMORPH_DATA"
MOST_BYTES_PER_PICTURE = 300_000


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that every experiment has."""
    options = argparse.ArgumentParser(
        prog=f"python -m examples.paper.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "--data", type=Path, help=f"folder of the data; by default the variable {DATA_VARIABLE}"
    )
    options.add_argument(
        "--out", type=Path, help=f"folder of results; by default docs/results/{name}"
    )
    options.add_argument(
        "--work", type=Path, help=f"folder to go on from; by default paper-work/{name}"
    )
    options.add_argument(
        "--small", action="store_true", help="a version of seconds, on data that ship or are drawn"
    )
    options.add_argument("--device", default="cpu", help="cpu or cuda; by default cpu")
    options.add_argument("--threads", type=int, help="by default as many as processors")
    options.add_argument("--seed", type=int, default=0, help="of what is random; by default 0")
    return options


@dataclass(frozen=True)
class Experiment:
    """One run of an experiment.

    Attributes
    ----------
    name : str
    results : Path
        Folder of what readers see.
    work : Path
        Folder of steps that are done.
    data : Path or None
        Folder of the data, if one was given.
    is_small : bool
        Whether this is the version of seconds.
    device : str
        Where models compute.
    n_threads : int or None
    seed : int
    """

    name: str
    results: Path
    work: Path
    data: Path | None = None
    is_small: bool = False
    device: str = "cpu"
    n_threads: int | None = None
    seed: int = 0
    _made: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_options(cls, name: str, options: argparse.Namespace) -> Experiment:
        """Return the experiment that a command line asks for."""
        work = options.work or ROOT / "paper-work" / (f"{name}-small" if options.small else name)
        # A small version is no result: what it writes stays with its work.
        results = work / "results" if options.small else ROOT / "docs" / "results" / name
        given = options.data or os.environ.get(DATA_VARIABLE)
        return cls(
            name=name,
            results=options.out or results,
            work=work,
            data=Path(given) if given else None,
            is_small=options.small,
            device=options.device,
            n_threads=options.threads,
            seed=options.seed,
        )

    @property
    def computing(self) -> dict[str, Any]:
        """Arguments of `ShapeAppearanceModel` that say where and how to compute."""
        return {"device": self.device, "n_threads": self.n_threads, "random_state": self.seed}

    def say(self, text: str) -> None:
        """Print a line that tells how it goes, with the time."""
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", flush=True)

    # ---- data

    def load(self, file: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of an ``.npz`` file of the data folder."""
        if self.data is None:
            raise SystemExit(
                f"{file} is needed: give its folder with --data or the variable {DATA_VARIABLE}"
            )
        path = self.data / file
        if not path.is_file():
            raise SystemExit(f"{path} does not exist: give the folder of {file} with --data")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    # ---- steps that are done once

    def arrays(
        self, step: str, compute: Callable[[], Mapping[str, ArrayLike]]
    ) -> dict[str, NDArray[Any]]:
        """Compute arrays once, and remember them.

        Parameters
        ----------
        step : str
            Says what is computed, with every option that it depends on, e.g. ``n1000/part-3``.
        compute : callable
            Called if the step is not yet done.
        """

        def write(path: Path) -> None:
            found = {name: np.asarray(value) for name, value in compute().items()}
            for name, value in found.items():
                if value.dtype.hasobject:
                    raise TypeError(f"{name} must be numbers or strings, got objects")
            np.savez_compressed(path, **found)  # type: ignore[arg-type]

        with np.load(self._once(step, ".npz", write), allow_pickle=False) as arrays:
            return dict(arrays)

    def model(self, step: str, fit: Callable[[Path], ShapeAppearanceModel]) -> ShapeAppearanceModel:
        """Fit a model once, and remember it (without the latents of its images).

        Parameters
        ----------
        step : str
        fit : callable
            Called, if the step is not yet done, with the path of a checkpoint to go on from.
        """
        checkpoint = self.work / f"{step}.checkpoint"

        def write(path: Path) -> None:
            fit(checkpoint).save(path)

        path = self._once(step, ".safetensors", write)
        checkpoint.unlink(missing_ok=True)
        return ShapeAppearanceModel.load(path)

    def _once(self, step: str, suffix: str, write: Callable[[Path], None]) -> Path:
        """Return the file of a step, written first if it is not there."""
        path = self.work / f"{step}{suffix}"
        note = self.work / f"{step}.json"
        if not note.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            begun = time.perf_counter()
            with replacing(path) as temporary:
                write(temporary)
            seconds = time.perf_counter() - begun
            # The note is last: a step without one is not done.
            made = present_provenance(self.seed, self.device, self.n_threads, seconds)
            _write_json(note, made)
            self.say(f"{step} took {duration(seconds)}")
        self._made[step] = json.loads(note.read_text(encoding="utf-8"))
        return path

    def provenance(self, prefix: str = "") -> dict[str, Any]:
        """Return where the steps of this run come from whose names begin with `prefix`."""
        return joined(made for step, made in self._made.items() if step.startswith(prefix))

    # ---- results

    @property
    def published(self) -> dict[str, Any]:
        """The entries of ``results.json``, of this run and of earlier ones."""
        path = self.results / "results.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def publish(self, entry: str, numbers: Mapping[str, Any], steps: str = "") -> None:
        """Write an entry of ``results.json``, and leave the others as they are.

        Parameters
        ----------
        entry : str
            The part of the experiment that the numbers are of.
        numbers : mapping
            Numbers, strings, lists and mappings of them.
        steps : str
            What the names of the steps begin with that the numbers come from.
        """
        self.results.mkdir(parents=True, exist_ok=True)
        made = self.provenance(steps)
        _write_json(
            self.results / "results.json", self.published | {entry: {**numbers, "made": made}}
        )

    def draw(self, name: str, figure: Figure, dpi: int = 110, n_colours: int | None = None) -> Path:
        """Write a figure as a PNG file that is small enough to be kept.

        Parameters
        ----------
        name : str
        figure : Figure
        dpi : int
            Pixels per inch.
        n_colours : int, optional
            Show only so many, up to 256, which makes files of grey images a third as large.
        """
        self.results.mkdir(parents=True, exist_ok=True)
        path = self.results / f"{name}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=dpi, facecolor="white")
            if n_colours is not None:
                with Image.open(temporary) as picture:
                    reduced = picture.convert("RGB").quantize(n_colours, dither=Image.Dither.NONE)
                reduced.save(temporary, optimize=True)
        if path.stat().st_size > MOST_BYTES_PER_PICTURE:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, and a picture may have "
                f"{MOST_BYTES_PER_PICTURE}: show less, or lower its dpi"
            )
        return path


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as temporary:
        text = json.dumps(content, indent=1, default=_plain, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return what JSON can hold of an array or a number of NumPy."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"results must be numbers, strings, lists and mappings, got {type(value)}")
