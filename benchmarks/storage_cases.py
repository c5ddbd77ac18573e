"""Random cases of stored files and of settings, for `benchmarks.fuzz` and for a test.

A case gets a random generator and an empty folder, tries something, and returns what became of it
in a word. It may end with a ModelFileError, TableError, ImageError or ArgumentError; every other
exception is a failure, an `AssertionError` about a wrong result included.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.fitting.errors import FitError
from anamorph.storage.tables import read_latents, write_latents
from anamorph.storage.tensors import read_tensors, write_tensors
from anamorph.storage.verify import verify_file
from benchmarks.damage import damaged_copies

_OPTIONS: dict[str, Any] = {"n_components": 2, "n_iter": 2, "random_state": 0, "n_threads": 1}
_LIKELIHOODS = ("gaussian", "bernoulli", "poisson")
_LAYOUTS = ("joint", "shape", "appearance")


def _images(generator: np.random.Generator, n_images: int = 6) -> Any:
    y, x = np.mgrid[-1:1:9j, -1:1:8j]
    rows, columns = generator.uniform(-0.3, 0.3, (2, n_images, 1, 1))
    blobs = np.exp(-((y - rows) ** 2 + (x - columns) ** 2) / 0.3)
    return (blobs + 0.02 * generator.random(blobs.shape)).clip(0, 1)


@cache
def _stored(folder: Path) -> tuple[bytes, bytes]:
    """Return the contents of a model file, and of the checkpoint before its last iteration."""
    images = _images(np.random.default_rng(0))
    path, checkpoint = folder / "model.safetensors", folder / "checkpoint"
    ShapeAppearanceModel(**_OPTIONS | {"n_iter": 1}).fit(images, checkpoint=checkpoint)
    ShapeAppearanceModel(**_OPTIONS).fit(images).save(path)
    return path.read_bytes(), checkpoint.read_bytes()


@cache
def _contents() -> tuple[bytes, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return _stored(Path(folder))


def _damaged(content: bytes, generator: np.random.Generator) -> bytes:
    seed, skipped = int(generator.integers(2**31)), int(generator.integers(7))
    copies = [copy for _, copy in damaged_copies(content, 8, seed)]
    return copies[min(skipped, len(copies) - 1)]


def damaged_models(generator: np.random.Generator, folder: Path) -> str:
    """Load a damaged model: it must be refused."""
    path = folder / "model.safetensors"
    path.write_bytes(_damaged(_contents()[0], generator))
    ShapeAppearanceModel.load(path)
    raise AssertionError("a damaged model was loaded")


def damaged_checkpoints(generator: np.random.Generator, folder: Path) -> str:
    """Resume from a damaged checkpoint: it must be refused."""
    path = folder / "checkpoint"
    path.write_bytes(_damaged(_contents()[1], generator))
    images = _images(np.random.default_rng(0))
    ShapeAppearanceModel(**_OPTIONS).fit(images, checkpoint=path)
    raise AssertionError("a damaged checkpoint was resumed from")


def forged_models(generator: np.random.Generator, folder: Path) -> str:
    """Load a model with a right checksum and wrong contents: refused, or it works."""
    path = folder / "model.safetensors"
    path.write_bytes(_contents()[0])
    arrays, facts = read_tensors(path, "model", 1)
    name = str(generator.choice(sorted(arrays)))
    values = [np.nan, np.inf, -1.0, 0.0, 1e30, 1e-30]
    with np.errstate(over="ignore"):
        changed = arrays[name].astype(str(generator.choice(["f4", "f8", "i4"])))
        if changed.size:
            changed.flat[generator.integers(changed.size)] = np.float64(
                generator.choice(values if changed.dtype.kind == "f" else [0, -1, 9])
            )
    arrays[name] = changed if generator.random() < 0.7 else changed[..., :-1]
    group = str(generator.choice(["settings", "format", "origin", "arguments"]))
    if generator.random() < 0.5:
        key = str(generator.choice(sorted(facts[group])))
        odd: list[Any] = [None, -1, 0, "x", [], {}, [1, 2], 1e300, True]
        facts[group][key] = odd[generator.integers(len(odd))]
    write_tensors(path, "model", 1, arrays, facts)
    verify_file(path)
    model = ShapeAppearanceModel.load(path)
    assert np.isfinite(model.mean_).all()
    return "loaded"


def extreme_settings(generator: np.random.Generator, folder: Path) -> str:
    """Fit with settings and intensities of any size: a model that can be stored, or one line."""

    def number(low: float = -12, high: float = 12) -> float:
        return float(10 ** generator.uniform(low, high))

    options: dict[str, Any] = {
        "likelihood": str(generator.choice(_LIKELIHOODS)),
        "latents": str(generator.choice(_LAYOUTS)),
        "shape_penalty": tuple(number() for _ in range(5)),
        "appearance_penalty": tuple(number() for _ in range(3)),
        "mean_penalty": tuple(number() for _ in range(3)),
        "balance": (number(), number()),
        "decimation": number(),
        "voxel_size": (number(-6, 6), number(-6, 6)),
        "prior_dof": 2 + number(-6, 9),
        "n_steps": int(generator.integers(1, 12)),
    }
    kept = {name for name in options if generator.random() < 0.3} | {"likelihood", "latents"}
    images = _images(generator)
    if options["likelihood"] == "gaussian" and generator.random() < 0.5:
        images = images * number(-30, 30)
    elif options["likelihood"] == "poisson":
        images = np.rint(images * number(1, 9))
    model = ShapeAppearanceModel(**_OPTIONS | {name: options[name] for name in kept})
    logger = logging.getLogger("anamorph")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        model.fit(images)
    except FitError as error:
        if "\n" in str(error):
            raise AssertionError("an error of several lines") from error
        return "stopped"
    finally:
        logger.setLevel(level)
    for name in ("mean_", "shape_basis_", "appearance_basis_", "latents_", "objective_"):
        assert np.isfinite(getattr(model, name)).all(), f"{name} is not finite"
    model.save(folder / "model.safetensors")
    verify_file(folder / "model.safetensors")
    return "fitted"


def odd_names(generator: np.random.Generator, folder: Path) -> str:
    """Write a table with names of any characters: it is read back, or refused."""
    alphabet = [*"ab\t\n\r\x00 -/.,\"'#", "\udcff", "\u2028", "é", "名", "🙂", "\ufeff", "\x85"]
    names = ["".join(generator.choice(alphabet, generator.integers(1, 6))) for _ in range(3)]
    if len(set(names)) < len(names):
        return "repeated"
    latents = generator.standard_normal((3, 2)) * 10.0 ** generator.integers(-300, 300)
    write_latents(folder / "latents.tsv", names, latents)
    found, values = read_latents(folder / "latents.tsv", 2)
    assert found == names, (found, names)
    assert np.array_equal(values, latents)
    return "written"


#: All cases, by name.
STORAGE_CASES = (damaged_models, damaged_checkpoints, forged_models, extreme_settings, odd_names)
