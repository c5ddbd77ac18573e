"""Random images: arrays, files of all kinds, damaged files, options of commands and of Python.

What is read is compared with what was meant: values with an interpretation that is written here
once more, labels with themselves, places with coordinates.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ArrayImages
from anamorph.images.files import FileImages
from benchmarks.fuzz import REFUSED, case

Generator = np.random.Generator

DTYPES = ("bool", "uint8", "uint16", "int8", "int16", "int32", "int64", "uint32")
FLOATS = ("float16", "float32", "float64")
HIGHEST = (1, 2, 7, 100, 255, 256, 1000, 4095, 65535, 10**6)
LIKELIHOODS = ("gaussian", "bernoulli", "poisson", "categorical")
EVERYTHING = slice(None)


# ---- arrays


def random_space(generator: Generator, n_dims: int | None = None) -> tuple[int, ...]:
    """Return the shape of a small image."""
    n_dims = int(generator.integers(2, 4)) if n_dims is None else n_dims
    return tuple(int(length) for length in generator.integers(3, 9, n_dims))


def random_values(
    generator: Generator, shape: tuple[int, ...], likelihood: str | None = None
) -> NDArray[Any]:
    """Return numbers of a random type and range, most often such as a likelihood accepts."""
    if likelihood is not None and generator.random() < 0.7:
        shares = generator.random(shape).astype(np.float32)
        if likelihood == "categorical":
            table = generator.choice([0, 1, 2, 5, 41, 530], 3, replace=False)
            return np.asarray(table[generator.integers(0, 3, shape)], np.int16)
        if likelihood == "poisson":
            return generator.integers(0, 90, shape).astype(np.int16)
        if generator.random() < 0.5:
            return shares
        bits = int(generator.choice([8, 12, 16]))
        return (shares * (2**bits - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    if generator.random() < 0.4:
        size = 10.0 ** generator.integers(-6, 7)
        return (size * generator.standard_normal(shape)).astype(str(generator.choice(FLOATS)))
    dtype: np.dtype[Any] = np.dtype(str(generator.choice(DTYPES)))
    largest = 1 if dtype.kind == "b" else np.iinfo(dtype).max
    highest = min(int(generator.choice(HIGHEST)), int(largest))
    return generator.integers(0, highest + 1, shape).astype(dtype)


def add_oddities(generator: Generator, images: NDArray[Any]) -> NDArray[Any]:
    """Return images of which some are missing, infinite, constant, masked or far brighter."""
    kind = generator.integers(8)
    some = int(generator.integers(len(images)))
    if kind == 0 and images.dtype.kind == "f":
        images[some] = np.nan
    elif kind == 1 and images.dtype.kind == "f":
        images[some].flat[0] = generator.choice([np.inf, -np.inf, np.nan])
    elif kind == 2:
        images[some] = images[some].flat[0]
    elif kind == 3:
        return np.ma.array(images, mask=generator.random(images.shape) < 0.3)
    elif kind == 4 and images.dtype.kind == "f":
        images[some] = images[some] * images.dtype.type(1000)
    return images


def expected_unit(values: NDArray[Any], dtype: np.dtype[Any]) -> float:
    """Return the integer that stands for 1, where images are accepted without a scale."""
    highest = values.max(initial=0)
    if dtype.kind not in "iu" or highest <= 1:
        return 1.0
    if dtype == np.uint8:
        return 255.0
    return next(2.0**bits - 1 for bits in (8, 10, 12, 14, 16) if highest < 2**bits)


@case
def arrays(generator: Generator, folder: Path) -> str:
    """Arrays of any type: what is read is what was given, scaled as the documentation says."""
    shape = (int(generator.integers(2, 6)), *random_space(generator))
    likelihood = str(generator.choice(LIKELIHOODS))
    given = add_oddities(generator, random_values(generator, shape, likelihood))
    scales = (*(None,) * 6, "none", "robust", "zscore", 3.0)
    scale = scales[generator.integers(len(scales))]
    as_list = bool(generator.random() < 0.3)
    images = ArrayImages(list(given) if as_list else given, likelihood, scale=scale)
    images.check(for_fit=True)
    read = images.read(EVERYTHING)
    missing = np.ma.getmaskarray(given) | np.isnan(np.ma.getdata(given).astype(np.float64))
    assert read.shape == (len(given), images.format.n_channels, *images.format.space)
    assert read.dtype == np.float32
    assert not np.isnan(read).all(axis=tuple(range(1, read.ndim))).any(), "nothing is observed"
    if likelihood == "categorical":
        seen = images.format.to_labels(read.argmax(axis=1))
        assert np.array_equal(np.isnan(read[:, 0]), missing)
        assert np.array_equal(seen[~missing], np.ma.getdata(given)[~missing])
        return "labels"
    values = np.ma.getdata(given)
    assert np.array_equal(np.isnan(read[:, 0]), missing)
    if scale is None:
        unit = 1.0 if likelihood == "poisson" else expected_unit(values[~missing], given.dtype)
        expected = values.astype(np.float32) / np.float32(unit)
        assert np.allclose(read[:, 0][~missing], expected[~missing], rtol=1e-5), "other values"
    if likelihood == "bernoulli":
        assert read[:, 0][~missing].min() >= 0
        assert read[:, 0][~missing].max() <= 1
    return "read"


@case
def channels(generator: Generator, folder: Path) -> str:
    """Arrays with channels anywhere, or where an axis may be taken for one."""
    shape = [int(generator.integers(2, 5)), *random_space(generator)]
    axis = int(generator.integers(1, len(shape) + 1))
    shape.insert(axis, int(generator.integers(1, 5)))
    likelihood = str(generator.choice(LIKELIHOODS[:3]))
    given = random_values(generator, tuple(shape), likelihood)
    said = axis if generator.random() < 0.7 else (None, -1, 0, 5)[generator.integers(4)]
    images = ArrayImages(given, likelihood, said)
    images.check(for_fit=True)
    if said is None:
        looks_coloured = given.ndim == 4 and given.shape[-1] in (3, 4) and given.dtype == np.uint8
        is_small = min(given.shape[1:3]) <= 4
        assert images.format.holds_labels or not looks_coloured or is_small
        return "without"
    read = images.format.to_user(images.read(EVERYTHING))
    assert read.shape == given.shape
    return "with"


# ---- files


def random_affine(generator: Generator) -> NDArray[np.float64]:
    """Return an affine of any orientation, near the origin or far from it."""
    affine = np.eye(4)
    order = generator.permutation(3)
    affine[:3, :3] = np.diag(generator.choice([-1, 1], 3) * generator.uniform(0.5, 2, 3))[order]
    affine[:3, 3] = generator.uniform(-5, 5, 3) * generator.choice([1, 1, 1, 100])
    return affine


def kinds_for(voxels: NDArray[Any]) -> list[str]:
    """Return the suffixes of files that can hold an image."""
    kinds = [".npy", ".npz"]
    if voxels.dtype in (np.uint8, np.int16, np.float32):
        kinds += [".nii", ".nii.gz", ".img"]
        if voxels.ndim == 3:
            kinds += [".mgz", ".mgh"]
    if voxels.ndim == 2 and voxels.dtype in (np.uint8, np.uint16):
        kinds += [".png", ".tif"]
    return kinds


def write_image(kind: str, stem: Path, voxels: NDArray[Any], affine: Any) -> Path:
    """Write an image to a file of one kind."""
    path = stem.with_name(stem.name + kind)
    if kind == ".npy":
        np.save(path, voxels)
    elif kind == ".npz":
        np.savez_compressed(path, voxels)
    elif kind in (".png", ".tif"):
        Image.fromarray(voxels).save(path)
    else:
        types = {".img": nib.Nifti1Pair, ".mgz": nib.MGHImage, ".mgh": nib.MGHImage}
        nib.save(types.get(kind, nib.Nifti1Image)(voxels, affine), path)
    return path


@case
def files(generator: Generator, folder: Path) -> str:
    """Files of any kind are read as arrays are; grids that differ are refused or resampled."""
    space = random_space(generator)
    likelihood = str(generator.choice(LIKELIHOODS))
    stack = random_values(generator, (int(generator.integers(2, 5)), *space), likelihood)
    affine = random_affine(generator)
    kind = str(generator.choice(kinds_for(stack[0])))
    may_differ = generator.random() < 0.2
    paths = []
    for n, image in enumerate(stack):
        place = affine
        if may_differ:
            kind, place = str(generator.choice(kinds_for(image))), random_affine(generator)
        paths.append(write_image(kind, folder / f"image{n}", image, place))
    options: dict[str, Any] = {"resample": bool(generator.random() < 0.5)}
    if generator.random() < 0.2:
        options["pad"] = int(generator.integers(1, 4))
    if generator.random() < 0.2:
        options["missing_value"] = float(stack.flat[0])
    images = FileImages(paths, likelihood, **options)
    images.check(for_fit=True)
    read = images.read(EVERYTHING)
    assert read.shape == (len(stack), images.format.n_channels, *images.format.space)
    assert not np.isnan(read).all(axis=tuple(range(1, read.ndim))).any(), "nothing is observed"
    if images.format.space == space and "missing_value" not in options:
        arrays_ = ArrayImages(stack, likelihood, like=images.format)
        if all(images.grid_of(n).difference(images.grid) is None for n in range(len(images))):
            assert np.array_equal(read, arrays_.read(EVERYTHING), equal_nan=True), "other values"
            return "same grid"
    return "other grid"


def damage(generator: Generator, content: bytearray) -> None:
    """Change some of the bytes of a file."""
    kind = generator.integers(4)
    start = int(generator.integers(len(content)))
    if kind == 0:
        del content[start:]
    elif kind == 1:
        content[start] ^= 1 << int(generator.integers(8))
    elif kind == 2:
        content[start : start + 8] = generator.bytes(8)
    else:
        head = int(generator.integers(min(len(content), 352)))
        content[head : head + 2] = generator.bytes(2)


@case
def damaged_files(generator: Generator, folder: Path) -> str:
    """Read a damaged file as an image of the shape that it says, or refuse it."""
    likelihood = str(generator.choice(LIKELIHOODS))
    image = random_values(generator, random_space(generator), likelihood)
    kind = str(generator.choice(kinds_for(image)))
    path = write_image(kind, folder / "image", image, random_affine(generator))
    content = bytearray(path.read_bytes())
    damage(generator, content)
    path.write_bytes(bytes(content))
    images = FileImages([path], likelihood)
    images.check(for_fit=True)
    read = images.read(EVERYTHING)
    assert read.shape == (1, images.format.n_channels, *images.format.space)
    assert not np.isinf(read).any()
    return "read"


# ---- fitted models


@cache
def fitted(likelihood: str) -> ShapeAppearanceModel:
    """Return a small model of a likelihood, fitted once."""
    generator = np.random.default_rng(0)
    images = generator.random((6, 8, 7)).astype(np.float32)
    if likelihood == "categorical":
        images = np.array([0, 2, 7])[(3 * images).astype(int)]
    return ShapeAppearanceModel(2, likelihood=likelihood, n_iter=1, n_threads=1).fit(images)


@case
def encoding(generator: Generator, folder: Path) -> str:
    """Encode new images with finite latents and evidence, or refuse them."""
    likelihood = str(generator.choice(LIKELIHOODS))
    model = fitted(likelihood)
    space = (8, 7) if generator.random() < 0.9 else random_space(generator, 2)
    values = random_values(generator, (3, *space), likelihood)
    if likelihood == "categorical" and generator.random() < 0.7:
        values = np.array([0, 2, 7])[generator.integers(0, 3, values.shape)]
    given = add_oddities(generator, values)
    encoded = model.encode(given)
    assert encoded.latents.shape == (3, 2)
    assert np.isfinite(encoded.latents).all()
    assert np.isfinite(encoded.log_evidence).all()
    filled = model.impute(given)
    assert np.isfinite(filled).all()
    return "encoded"


# ---- commands


def call(*arguments: object) -> tuple[int, str, str]:
    """Run a command, and return its exit code, what it printed, and its errors."""
    from typer.testing import CliRunner

    from anamorph.cli import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.stderr
    assert result.exit_code in (0, 1, 2), result.exit_code
    if result.exit_code == 1:
        assert any(line.startswith("error: ") for line in result.stderr.splitlines())
    return result.exit_code, result.stdout, result.stderr


def random_options(generator: Generator) -> list[str]:
    """Return options about images, some of which make no sense."""
    every = [
        ["--labels"],
        ["--likelihood", str(generator.choice([*LIKELIHOODS, "normal"]))],
        ["--scale", str(generator.choice(["none", "robust", "zscore", "255", "0", "-1", "x"]))],
        ["--missing-value", str(generator.choice(["0", "1", "nan", "-3.5", "much"]))],
        ["--resample"],
        ["--pad", str(generator.integers(-1, 4))],
        ["--channel-axis", str(generator.integers(-2, 4))],
        ["--tissues"],
        ["--preset", str(generator.choice(["faces", "brains3d", "tiny"]))],
        ["--mask", str(generator.choice(["image0.npy", "nowhere.nii", "*.nii"]))],
    ]
    chosen = generator.choice(len(every), int(generator.integers(0, 3)), replace=False)
    return [word for n in chosen for word in every[n]]


@case
def commands(generator: Generator, folder: Path) -> str:
    """`check` and `fit` of random files with random options: an exit code and one line."""
    likelihood = str(generator.choice(LIKELIHOODS))
    shape = (int(generator.integers(1, 6)), *random_space(generator))
    stack = random_values(generator, shape, likelihood)
    kind = str(generator.choice(kinds_for(stack[0])))
    for n, image in enumerate(stack):
        cut = int(generator.random() < 0.05)
        write_image(kind, folder / f"image{n}", image[cut:], np.eye(4))
    if generator.random() < 0.3:
        (folder / "notes.txt").write_text("x")
    code, printed, _ = call("check", folder, "--json")
    found = json.loads(printed)
    assert (code == 1) == bool(found["problems"])
    model = folder / "model.safetensors"
    options = ["--likelihood", likelihood] if generator.random() < 0.8 else []
    options += random_options(generator)
    code, *_ = call(
        "fit", folder, "-o", model, "-k", 1, "--iterations", 1, "--threads", 1, *options
    )
    assert (code == 0) == model.exists(), "exit code and model do not agree"
    if code:
        return REFUSED
    loaded = ShapeAppearanceModel.load(model)
    assert np.isfinite(loaded.mean_).all()
    assert np.isfinite(loaded.objective_).all()
    return "fitted"
