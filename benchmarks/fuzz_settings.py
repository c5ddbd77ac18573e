"""Random combinations of what a fit can do, and random commands with a model that was fitted.

Poses, coarse grids, gains, residual warps and missing voxels work one by one in the tests; here
they meet each other.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph import ShapeAppearanceModel
from anamorph.fitting.errors import FitError
from benchmarks.fuzz import REFUSED, case
from benchmarks.fuzz_images import call

Generator = np.random.Generator

CHOICES: dict[str, tuple[Any, ...]] = {
    "likelihood": ("gaussian", "gaussian", "bernoulli", "poisson", "categorical"),
    "latents": ("joint", "joint", "separate", "shape", "appearance"),
    "align": ("none", "none", "translation", "rigid", "similarity", "affine"),
    "levels": (1, 1, 2, 3, "auto"),
    "intensity": ("global", "global", "per image", "smooth"),
    "residual": ("none", "none", "after"),
}
STORED = ("mean_", "shape_basis_", "appearance_basis_", "objective_")
FITTED = (*STORED, "latents_")


def draw_blobs(generator: Generator, space: tuple[int, ...], n_images: int = 6) -> NDArray[Any]:
    """Return images (N, *space) from 0 to 1 of a blob that is never in the same place."""
    axes = np.meshgrid(*[np.linspace(-1, 1, length) for length in space], indexing="ij")
    centres = generator.uniform(-0.3, 0.3, (n_images, len(space)))
    squares = [sum((x - c) ** 2 for x, c in zip(axes, centre, strict=True)) for centre in centres]
    images = np.exp(-np.array(squares) / 0.3)
    return np.asarray((images + 0.02 * generator.random(images.shape)).clip(0, 1), np.float32)


def as_likelihood(images: NDArray[Any], likelihood: str) -> NDArray[Any]:
    """Return images from 0 to 1 as a likelihood takes them."""
    if likelihood == "categorical":
        return np.array([0, 2, 7])[(2.99 * images).astype(int)]
    return np.rint(40 * images) if likelihood == "poisson" else images


@case
def combinations(generator: Generator, folder: Path) -> str:
    """Fit, store, load and use a model of combined settings: all is finite, and loaded the same."""
    options = {name: some[generator.integers(len(some))] for name, some in CHOICES.items()}
    if options["likelihood"] != "gaussian" and generator.random() < 0.9:
        options["intensity"] = "global"  # others have no gain
    n_dims = 3 if generator.random() < 0.15 else 2
    images = draw_blobs(generator, tuple(generator.integers(8, 13, n_dims)))
    images = as_likelihood(images, options["likelihood"])
    if images.dtype == np.float32 and generator.random() < 0.3:
        images[generator.random(images.shape) < 0.2] = np.nan
    n_components = (1, 1) if options["latents"] == "separate" else 2
    model = ShapeAppearanceModel(n_components, n_iter=2, n_threads=1, random_state=0, **options)
    try:
        model.fit(images)
    except FitError as error:
        told = str(error)
    else:
        told = ""
    assert "\n" not in told, "an error of several lines"
    if told:
        return "stopped"
    for name in FITTED:
        assert np.isfinite(getattr(model, name)).all(), f"{name} is not finite"
    model.save(folder / "model.safetensors")
    loaded = ShapeAppearanceModel.load(folder / "model.safetensors")
    for name in STORED:
        assert np.array_equal(getattr(loaded, name), getattr(model, name)), f"another {name}"
    with_residual = options["residual"] != "none"
    encoded = loaded.encode(images[:2], residual=with_residual)
    assert np.isfinite(encoded.latents).all()
    assert np.isfinite(encoded.log_evidence).all()
    assert np.isfinite(loaded.reconstruct(images[:2])).all()
    assert np.isfinite(loaded.impute(images[:2])).all()
    assert np.isfinite(loaded.jacobians(encoded.latents)).all()
    return "fitted"


# ---- commands


@cache
def stored_model(likelihood: str) -> tuple[bytes, bytes]:
    """Return a model file of a likelihood, and a table of latents, made once."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images", np.random.default_rng(0), likelihood)
        model = folder / "model.safetensors"
        flags = ("-k", 2, "--iterations", 1, "--threads", 1, "--likelihood", likelihood)
        code, _, told = call("fit", folder / "images", "-o", model, *flags)
        assert code == 0, told
        return model.read_bytes(), (folder / "model.latents.tsv").read_bytes()


def write_images(folder: Path, generator: Generator, likelihood: str, n_images: int = 4) -> None:
    """Write small images such as a likelihood takes."""
    folder.mkdir()
    for n, image in enumerate(draw_blobs(generator, (9, 8), n_images)):
        np.save(folder / f"image{n}.npy", as_likelihood(image, likelihood))


def random_command(generator: Generator, folder: Path) -> list[object]:
    """Return a command about a model, with options of which some make no sense."""
    images, to = folder / "images", ("-o", folder / "out")
    source = ((images,), ("--latents", folder / "latents.tsv"))[generator.integers(2)]
    modes = ("--modes", generator.choice(["1", "2,1", "0", "9", "a"]))
    places = ("--at", generator.choice(["-3,0,3", "1", "1e9", "x", "", "nan", "0,0"]))
    odd_place = folder / generator.choice(["out", "out.png", "images/image0.npy"])
    commands: list[tuple[object, ...]] = [
        ("encode", images, "-o", folder / "out.tsv"),
        ("reconstruct", *source, *to),
        ("impute", images, "--missing-value", 0, *to),
        ("warp", *source, *to),
        ("warps", *source, *to),
        ("jacobians", *source, *to),
        ("modes", *modes, *places, "-o", odd_place),
        ("sample", "-n", generator.integers(-1, 4), *to),
        ("arithmetic", generator.choice(["image0 - image1", "2*image0", "a +", ""]), *source, *to),
        ("quality", images, "-o", folder / "out.html"),
        ("info",),
        ("verify",),
    ]
    odd: list[tuple[object, ...]] = [("--residual",), ("--force",), ("--threads", 0), ("--json",)]
    name, *rest = commands[generator.integers(len(commands))]
    more = odd[generator.integers(len(odd))] if generator.random() < 0.5 else ()
    return [name, folder / "model.safetensors", *rest, *more]


@case
def model_commands(generator: Generator, folder: Path) -> str:
    """Commands with a model end with an exit code and one line, and write nothing that is NaN."""
    likelihood = str(generator.choice(CHOICES["likelihood"]))
    model, latents = stored_model(likelihood)
    (folder / "model.safetensors").write_bytes(model)
    if generator.random() < 0.2:
        latents = latents.replace(b".", generator.choice([b"9", b"e", b"\t"]), 1)
    (folder / "latents.tsv").write_bytes(latents)
    write_images(folder / "images", generator, likelihood)
    before = {path: path.read_bytes() for path in (folder / "images").iterdir()}
    code, *_ = call(*random_command(generator, folder))
    assert {path: path.read_bytes() for path in before} == before, "an input was changed"
    for path in folder.glob("out/*.npy"):
        assert np.isfinite(np.load(path)).all(), f"{path.name} is not finite"
    return REFUSED if code else "done"
