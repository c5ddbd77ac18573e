"""Hidden boxes: how well models predict what they do not see of new images, beside baselines.

    python -m examples.prediction.hidden --data FOLDER

A box of 29 % of every test image is hidden, and predicted from the rest of the image by models
that were learnt from other images. Errors are squared, and relative to that of predicting the mean
image. Everything that is chosen is chosen on training images. Splits are random; what is done is
kept in the work folder, so that a run that was interrupted resumes.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.storage.replace import replacing
from examples.paper.provenance import joined, present_provenance
from examples.prediction.baselines import (
    BASELINES,
    probabilistic_pca,
    relative_error,
)
from examples.prediction.datasets import DATASETS, Dataset, drawn

NUMBERS_OF_LATENTS = (4, 8, 16, 32, 64)
N_SPLITS = 5


@dataclass(frozen=True)
class Task:
    """One method on one split of one set of images.

    Attributes
    ----------
    dataset, method : str
        A name in `DATASETS`, and one in `BASELINES`, "PPCA evidence" or "anamorph".
    n_latents : int
        0 for baselines that choose it themselves.
    split : int
        Seed of the random choice of images and of their boxes.
    """

    dataset: str
    method: str
    n_latents: int
    split: int

    @property
    def file(self) -> str:
        """The name of the file that keeps the result."""
        words = (self.dataset, self.method, str(self.n_latents), str(self.split))
        return "-".join(words).replace(" ", "_") + ".json"


def opened(name: str, data: Path | None) -> Dataset:
    """Return a set of images by its name."""
    return drawn() if data is None else DATASETS[name](data)


def result_of(task: Task, data: Path | None, device: str = "cpu") -> dict[str, float]:
    """Return what a method achieves on a split; baselines use the CPU in any case."""
    dataset = opened(task.dataset, data)
    split = dataset.split(task.split)
    n_numbers = split.test[0].size
    if task.method == "PPCA evidence":
        rows = split.training.reshape(len(split.training), -1).astype(np.float64)
        model = probabilistic_pca(rows, task.n_latents)
        evidence = model.log_density(split.test.reshape(len(split.test), -1).astype(np.float64))
        return {"evidence": float(evidence.mean() / n_numbers)}
    if task.method != "anamorph":
        error, choice = relative_error(BASELINES[task.method], split, task.split)
        return {"error": error, "choice": float(choice)}
    fitted = ShapeAppearanceModel(
        task.n_latents,
        likelihood=dataset.likelihood,
        channel_axis=-1,
        device=device,
        n_threads=1,
    ).fit(split.training)
    images, deviations = fitted.impute(split.observed, return_std=True)
    hidden = split.is_hidden
    standardised = (split.test - images)[hidden] / np.maximum(deviations[hidden], 1e-6)
    evidence = fitted.score_samples(split.test) / n_numbers
    return {
        "error": split.relative_error(images),
        "evidence": float(evidence.mean()),
        "weight": float(fitted.settings_.prediction_weight or 1.0),
        "deviation": float(np.sqrt(np.square(standardised).mean())),
    }


def tasks_of(datasets: Iterable[str], splits: Iterable[int], numbers: Iterable[int]) -> list[Task]:
    """Return all that is to be done, what takes longest first."""
    slowest_first = sorted(datasets, key=lambda name: name != "hippocampi")
    ours = [("anamorph", number) for number in sorted(numbers, reverse=True)]
    evidences = [("PPCA evidence", number) for _, number in ours]
    methods = [*ours, *evidences, *((name, 0) for name in BASELINES)]
    return [
        Task(dataset, method, number, split)
        for method, number in methods
        for dataset in slowest_first
        for split in splits
    ]


def kept(
    task: Task, data: Path | None, work: Path, deadline: float = math.inf, device: str = "cpu"
) -> dict[str, Any] | None:
    """Return the result of a task and where it was made: computed now, or kept from before.

    None if it is not done, and it is later than the deadline, in seconds since the epoch.
    """
    path = work / task.file
    if not path.exists():
        if time.time() > deadline:
            return None
        started = time.perf_counter()
        found: dict[str, Any] = dict(result_of(task, data, device))
        found["made"] = present_provenance(0, device, 1, time.perf_counter() - started)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(found), encoding="utf-8")
        print(task, found, flush=True)
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def summary(results: dict[Task, dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard error over splits: by set of images, method and measure.

    Each set has also "made": where its numbers come from, and of which splits they are.
    """
    gathered: dict[str, dict[str, dict[str, list[float]]]] = {}
    made: dict[str, list[dict[str, Any]]] = {}
    for task, result in results.items():
        method = f"{task.method} {task.n_latents}" if task.n_latents else task.method
        entry = gathered.setdefault(task.dataset, {}).setdefault(method, {})
        for name, value in result.items():
            if name == "made":
                made.setdefault(task.dataset, []).append(result["made"])
            else:
                entry.setdefault(name, []).append(value)
    return {
        dataset: {
            method: {name: _mean_and_error(values) for name, values in measures.items()}
            for method, measures in methods.items()
        }
        | {
            "made": joined(made[dataset])
            | {"splits": sorted({task.split for task in results if task.dataset == dataset})}
        }
        for dataset, methods in gathered.items()
    }


def _mean_and_error(values: list[float]) -> dict[str, float]:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {
        "mean": float(np.mean(values)),
        "standard_error": spread / len(values) ** 0.5,
        "n_splits": len(values),
    }


def table(found: dict[str, Any], measure: str) -> str:
    """Return a table of one measure, in Markdown: a row for each set of images."""
    methods = [
        method
        for method in dict.fromkeys(name for entries in found.values() for name in entries)
        if any(measure in entries.get(method, {}) for entries in found.values())
    ]
    lines = [f"| {measure} | " + " | ".join(methods) + " |", "|---|" + "---:|" * len(methods)]
    for dataset, entries in found.items():
        cells = [entries.get(method, {}).get(measure) for method in methods]
        shown = (f"{c['mean']:.3f} ± {c['standard_error']:.3f}" if c else "–" for c in cells)
        lines.append(f"| {dataset} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def run(
    data: Path | None,
    work: Path,
    out: Path,
    datasets: Iterable[str],
    splits: Iterable[int],
    numbers: Iterable[int],
    n_processes: int,
    deadline: float = math.inf,
    device: str = "cpu",
) -> dict[str, Any]:
    """Do what can be begun before the deadline, and write the summary."""
    work.mkdir(parents=True, exist_ok=True)
    tasks = tasks_of(datasets, splits, numbers)
    # Started anew, not forked: a GPU cannot be used by the fork of a process that has used it.
    with ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn")) as pool:
        futures = {task: pool.submit(kept, task, data, work, deadline, device) for task in tasks}
        results = {task: future.result() for task, future in futures.items()}
    found = summary({task: result for task, result in results.items() if result is not None})
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / "results.json") as temporary:
        temporary.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def main() -> None:
    """Read options, and show the tables."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, help="folder of the data; without, images are drawn")
    options.add_argument("--work", type=Path, default=Path("paper-work/prediction"))
    options.add_argument("--out", type=Path, default=Path("docs/results/prediction"))
    options.add_argument("--only", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    options.add_argument(
        "--latents",
        nargs="*",
        type=int,
        default=list(NUMBERS_OF_LATENTS),
        help="their numbers; none of them for baselines alone",
    )
    options.add_argument("--splits", type=int, default=N_SPLITS)
    options.add_argument("--seed", type=int, default=0, help="of the first split; others follow")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--minutes", type=float, default=math.inf, help="nothing begins later")
    given = options.parse_args()
    datasets = given.only if given.data else ["drawn faces"]
    numbers = given.latents if given.data else [4, 16]
    splits = range(given.seed, given.seed + given.splits)
    places = given.data, given.work, given.out
    deadline = time.time() + 60 * given.minutes
    found = run(*places, datasets, splits, numbers, given.processes, deadline, given.device)
    for measure in ("error", "evidence", "weight", "deviation"):
        print(table(found, measure), "\n")


if __name__ == "__main__":
    main()
