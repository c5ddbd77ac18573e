"""Models of commands: loading them, their latents, and writing their images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.messages import counted
from anamorph.cli.terminal.places import reserve

if TYPE_CHECKING:
    from anamorph.arrays.typing import Array, Float32Array, Float64Array
    from anamorph.cli.terminal.images import ImageArguments
    from anamorph.cli.terminal.messages import Messages
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.bids import BidsFile
    from anamorph.images.files import FileImages
    from anamorph.images.grid import Grid
    from anamorph.storage.outputs import ImageOutput


@dataclass(frozen=True)
class ModelArguments:
    """The arguments of a command about the model that it uses, and the files that it writes.

    Attributes
    ----------
    model_file : Path
    threads : int or None
        None, by default, for one per processor.
    device : str or None
        None, by default, for "cpu".
    force : bool
        Whether to replace existing files; False by default.
    """

    model_file: options.ModelFile
    threads: options.Threads = None
    device: options.Device = None
    force: options.Force = False

    def load(self) -> ShapeAppearanceModel:
        """Return the model."""
        return load_model(self.model_file, self.threads, self.device)

    def reserve(self, paths: Sequence[Path], inputs: Iterable[Path | None] = ()) -> None:
        """Check that output files can be written, and are none of the inputs or the model."""
        reserve(paths, [self.model_file, *inputs], force=self.force)


def load_model(
    path: Path, threads: int | None = None, device: str | None = None
) -> ShapeAppearanceModel:
    """Return the model in a file.

    Parameters
    ----------
    path : Path
    threads : int, optional
        One per processor by default.
    device : str, optional
        "cpu" by default.
    """
    from anamorph.arrays.devices import DEVICES
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.model.checks import check_choice

    model = ShapeAppearanceModel.load(path)
    check_choice("device", device or "cpu", DEVICES)
    model.n_threads, model.device = threads, device or "cpu"
    return model


def output_of(model: ShapeAppearanceModel, probabilities: bool) -> ImageOutput:
    """Return how to write the images of a model."""
    from anamorph.likelihoods import OF_CLASSES
    from anamorph.storage.outputs import ImageOutput, has_bounded_intensities

    if probabilities and not model.settings_.likelihood.holds_classes:
        raise typer.BadParameter(
            f"the model is {model.likelihood}: only {OF_CLASSES} ones have probabilities of "
            "classes",
            param_hint="--probabilities",
        )
    is_bounded = has_bounded_intensities(model.likelihood, model.mean_)
    return ImageOutput(model.image_format_, model.origin_, is_bounded, probabilities)


class Codes(NamedTuple):
    """What stands for some images.

    Attributes
    ----------
    latents : (n, K)
    poses : (n, P) or None
        Where the model has poses, and they are known.
    residuals : (n, d, *space) or None
        Residual velocities, if asked for.
    """

    latents: Float64Array
    poses: Float64Array | None = None
    residuals: Float32Array | None = None

    def take(self, some: slice | list[int]) -> Codes:
        """Return those of some images."""
        poses = None if self.poses is None else self.poses[some]
        residuals = None if self.residuals is None else self.residuals[some]
        return Codes(self.latents[some], poses, residuals)


@dataclass(frozen=True)
class LatentSource:
    """Latents in a table, or latents of images that have yet to be encoded.

    Attributes
    ----------
    names : N strings
    inputs : list of Path
        The files that are read.
    encode : callable
        Returns what stands for images with given numbers.
    grids : list of Grid, optional
        Grids of the files of the images; None, by default, if latents come from a table.
    bids : list of BidsFile, optional
        What names of the images say; None, by default, if they are not from a BIDS dataset.
    open : callable, optional
        Returns the files of images with given numbers; None, by default, if latents come from a
        table.
    """

    names: list[str]
    inputs: list[Path]
    encode: Callable[[Sequence[int]], Codes]
    grids: list[Grid] | None = None
    bids: list[BidsFile] | None = None
    open: Callable[[Sequence[int]], FileImages] | None = None

    def find(self, numbers: Sequence[int]) -> Float64Array:
        """Return the latents (n, K) of images with given numbers."""
        return self.encode(numbers).latents

    def input_grids(self, model: ShapeAppearanceModel) -> list[Grid]:
        """Return the grids of the files of images, or raise an error if they have none."""
        if self.grids is None:
            raise typer.BadParameter(
                "needs images, whose grids a table of latents does not have",
                param_hint="--on-input-grid",
            )
        if model.origin_.affine is None:
            raise typer.BadParameter(
                "needs a model of volumes: others do not know where their voxels are",
                param_hint="--on-input-grid",
            )
        return self.grids


def latent_source(
    model: ShapeAppearanceModel,
    given: ImageArguments,
    table: Path | None,
    messages: Messages,
    *,
    residual: bool = False,
) -> LatentSource:
    """Return the latents of a table or of images; exactly one of them must be given.

    With `residual` there are residual velocities too: of a table, those in the file beside it.
    """
    from anamorph.storage.residuals import read_residuals, residuals_path
    from anamorph.storage.tables import read_latents, read_poses

    if residual:
        check_residual(model)

    if given.are_given == (table is not None):
        raise typer.BadParameter("give images, or a table of latents, and not both")
    if table is not None:
        names, latents = read_latents(table, len(model.latent_precision_), model.pose_names_)
        poses = read_poses(table, model.pose_names_)
        beside, stored = residuals_path(table), None
        if residual:
            fingerprint = model.generator_.parameters.fingerprint
            stored = read_residuals(beside, names, model.settings_.space, fingerprint)
        _check_rows(model, table, names, latents, stored)  # before there is a folder for results

        def look_up(numbers: Sequence[int]) -> Codes:
            return Codes(latents, poses, stored).take(list(numbers))

        inputs = [table, *([beside] if residual else []), *given.inputs(None)]
        return LatentSource(names, inputs, look_up)
    found = given.find()
    opened = given.open_for(model, found)  # checks all headers before the work begins
    grids = [opened.grid_of(n) for n in range(len(opened))]

    def open_files(numbers: Sequence[int]) -> FileImages:
        return given.open_for(model, found.take(numbers))

    def encode(numbers: Sequence[int]) -> Codes:
        files = open_files(numbers)
        with messages.counting(f"Encoding {counted(len(numbers), 'image')}"):
            encoded = model.encode(files, residual=residual)
        return Codes(encoded.latents, encoded.poses, encoded.residuals)

    return LatentSource(found.names, given.inputs(found), encode, grids, found.bids, open_files)


def _check_rows(
    model: ShapeAppearanceModel,
    table: Path,
    names: list[str],
    latents: Float64Array,
    residuals: Float32Array | None,
) -> None:
    """Raise a TableError that names a row of a table whose latents are too far from 0."""
    from anamorph.images.errors import TableError

    far = model.find_far(latents, residuals)
    if far is not None:
        row, reason = far
        raise TableError(f"{table}: {names[row]} is {reason}")


def check_residual(model: ShapeAppearanceModel) -> None:
    """Raise a CommandError if a model knows no residual warps."""
    if not model.settings_.has_residuals:
        raise CommandError(
            "--residual needs a model that knows residual warps: fit it with --residual after or "
            "--residual inside"
        )


def check_poses(model: ShapeAppearanceModel, poses: Float64Array | None) -> None:
    """Raise a CommandError if a table lacks the poses that the model needs."""
    if model.settings_.has_poses and poses is None:
        raise CommandError(
            "the table has no poses, which this model needs: give images, or a table that "
            "'anamorph fit' or 'anamorph encode' wrote with this model"
        )


def write_images(
    model: ShapeAppearanceModel,
    output: ImageOutput,
    paths: Sequence[Path],
    make: Callable[[slice], Array],
    grids: Sequence[Grid] | None = None,
) -> None:
    """Compute images a few at a time, and write each to its file.

    Parameters
    ----------
    model : ShapeAppearanceModel
    output : ImageOutput
    paths : N paths
    make : callable
        Returns some of the N images, (n, C, *space).
    grids : N grids, optional
        Grid to write each image on; by default that of the model.
    """
    from anamorph.arrays.batches import BatchPlanner
    from anamorph.model.generator import working_bytes
    from anamorph.model.progress import progress_of_part

    planner = BatchPlanner(working_bytes(model.settings_), model.machine.budget)
    for part in planner.batches(len(paths)):
        numbers = range(len(paths))[part]
        with progress_of_part(part, len(paths)):
            images = make(part)
        for n, image in zip(numbers, images, strict=True):
            output.write(paths[n], image, None if grids is None else grids[n])
