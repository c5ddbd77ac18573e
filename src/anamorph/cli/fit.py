"""``anamorph fit``: learn a model from image files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli import options
from anamorph.cli.errors import INTERRUPTED, CommandError, checking
from anamorph.cli.images import ImageArguments, ImageList
from anamorph.cli.messages import Messages, talking
from anamorph.cli.places import reserve
from anamorph.cli.settings import check_likelihood, merged_settings

if TYPE_CHECKING:
    from anamorph.io.files import FileImages
    from anamorph.model import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph fit scans/ -o brains.safetensors --components 20
anamorph fit 'faces/*.png' -o faces.safetensors --preset faces -k 32
anamorph fit labels/ --labels -o hippocampi.safetensors --pad 4
anamorph fit --tissues 'rc1*.nii' 'rc2*.nii' -o tissues.safetensors"""

_MODEL = "Model"
_FITTING = "Fitting"
_SUFFIX = ".safetensors"


def fit(
    images: options.Images,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Model file to write. Latents go beside it, to FILE's name with .latents.tsv.",
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="Settings of the paper: faces, digits, brains2d or brains3d. Give way to others.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            rich_help_panel=_MODEL,
            help="Settings from a file, e.g. 'components = 20'; keys are the flags of this list. "
            "They give way to flags.",
        ),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option(
            "--components",
            "-k",
            metavar="K",
            rich_help_panel=_MODEL,
            help="Number of latents; 'A,S' for appearance and shape with --latents separate. "
            "By default 16.",
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="gaussian (intensities, the default), bernoulli (binary) or categorical (labels).",
        ),
    ] = None,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            metavar="",
            rich_help_panel=_MODEL,
            help="Images are label maps: the same as --likelihood categorical.",
        ),
    ] = False,
    latents: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="What a latent controls: joint (shape and appearance, the default), separate "
            "(one of them), shape or appearance (the model has nothing else).",
        ),
    ] = None,
    shape_penalty: Annotated[
        str | None,
        typer.Option(
            metavar="5 NUMBERS",
            rich_help_panel=_MODEL,
            help="Weights of size, stretching, bending, elasticity and divergence of velocities, "
            "e.g. 0.002,0.02,2,0.2,0.2.",
        ),
    ] = None,
    appearance_penalty: Annotated[
        str | None,
        typer.Option(
            metavar="3 NUMBERS",
            rich_help_panel=_MODEL,
            help="Weights of size, stretching and bending of modes of appearance.",
        ),
    ] = None,
    mean_penalty: Annotated[
        str | None,
        typer.Option(
            metavar="3 NUMBERS", rich_help_panel=_MODEL, help="The same for the mean, per image."
        ),
    ] = None,
    balance: Annotated[
        str | None,
        typer.Option(
            metavar="2 NUMBERS",
            rich_help_panel=_MODEL,
            help="Weights of the penalties on modes, and on what they reconstruct.",
        ),
    ] = None,
    prior_dof: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            rich_help_panel=_MODEL,
            help="How many images the prior that latents are white counts for; by default K.",
        ),
    ] = None,
    decimation: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            rich_help_panel=_MODEL,
            help="Weight of the likelihood, below 1 where neighbouring voxels say the same.",
        ),
    ] = None,
    voxel_size: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            rich_help_panel=_MODEL,
            help="Size of a voxel along each axis; by default that of the files, or 1.",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=_FITTING, help="EM iterations; by default 20."),
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=_FITTING,
            help="Stop when an iteration adds less than this share of the total rise so far.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=_FITTING, help="Steps of geodesic shooting; by default 8."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=_FITTING, help="Of the starting latents; by default 0."
        ),
    ] = None,
    threads: options.Threads = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=_FITTING,
            help="For batches of images, e.g. 4GB; by default 2GiB.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_FITTING,
            help="Written after every iteration, gone on from where it exists, and removed at the "
            "end; by default beside the model, with .checkpoint.",
        ),
    ] = None,
    tissues: options.Tissues = False,
    participants: options.ParticipantsTable = None,
    resample: options.Resample = False,
    pad: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            rich_help_panel="Images",
            help="Add a missing margin of N voxels, so that what leaves the image on one side does "
            "not come back on the other.",
        ),
    ] = 0,
    channel_axis: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel="Images",
            help="Where arrays and 4D NIfTI files hold channels or classes: -1 for the last axis.",
        ),
    ] = None,
    cache: options.CacheFolder = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn a shape and appearance model from images, without any annotation.

    From the images alone it finds a mean, modes of shape and appearance, and
    a few numbers (latents) for every image. Ctrl-C stops it, and the same
    command goes on where it stopped.
    """
    flags = {
        "n_components": components,
        "likelihood": _likelihood(likelihood, labels, tissues),
        "latents": latents,
        "shape_penalty": shape_penalty,
        "appearance_penalty": appearance_penalty,
        "mean_penalty": mean_penalty,
        "balance": balance,
        "prior_dof": prior_dof,
        "n_iter": iterations,
        "tol": tol,
        "n_steps": steps,
        "voxel_size": voxel_size,
        "channel_axis": channel_axis,
        "decimation": decimation,
        "n_threads": threads,
        "memory_budget": memory,
        "random_state": seed,
    }
    with talking("fit", quiet, as_json) as messages:
        settings = merged_settings(preset, config, flags)
        given = ImageArguments(images, tissues, participants, resample, cache)
        found = given.find()
        if len(found) < 2:
            raise CommandError(
                f"{found.all_files[0]} is one image, and a model needs at least two: give a folder "
                "or a pattern, with one image per file"
            )
        table = beside(output, ".latents.tsv")
        reserve([output, table], found.all_files, force=force)
        checkpoint = checkpoint or beside(output, ".checkpoint")
        model = _fit(settings, given, found, pad, checkpoint, messages)
        _write(model, found, output, table, checkpoint, messages)


def beside(output: Path, ending: str) -> Path:
    """Return a file beside the model file, e.g. with ".latents.tsv" for ".safetensors"."""
    return output.with_name(output.name.removesuffix(_SUFFIX) + ending)


def _likelihood(likelihood: str | None, labels: bool, tissues: bool) -> str | None:
    if not (labels or tissues):
        return likelihood
    if labels and tissues:
        raise typer.BadParameter("images are label maps or tissue maps", param_hint="--labels")
    if likelihood not in (None, "categorical"):
        raise typer.BadParameter(
            f"label maps and tissue maps are categorical, not {likelihood}",
            param_hint="--likelihood",
        )
    return "categorical"


def _fit(
    settings: dict[str, Any],
    given: ImageArguments,
    found: ImageList,
    pad: int,
    checkpoint: Path,
    messages: Messages,
) -> ShapeAppearanceModel:
    from anamorph.cli.bar import FitDisplay
    from anamorph.io.files import FileImages
    from anamorph.model import ShapeAppearanceModel

    model = ShapeAppearanceModel(**settings)
    with FitDisplay(messages) as display:
        try:
            display.stage(f"Reading {len(found)} images")
            check_likelihood(model)
            files: Any = FileImages(
                found.for_reader,
                model.likelihood,
                model.channel_axis,
                resample=given.resample,
                pad=pad,
                cache=given.cache,
            )
            _check(model, files)
            files.check(for_fit=True)
            display.stage(
                f"Going on from {checkpoint}"
                if checkpoint.exists()
                else "Starting (where kernels are not compiled yet, this takes a minute)"
            )
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            return model.fit(files, checkpoint=checkpoint, callback=display.advance)
        except KeyboardInterrupt as interrupt:
            _tell_how_to_go_on(display.n_done, checkpoint)
            raise typer.Exit(INTERRUPTED) from interrupt


def _check(model: ShapeAppearanceModel, files: FileImages) -> None:
    """Check settings before the fit does, in which a ValueError would be a bug."""
    from anamorph.arguments import checked_seed, checked_settings
    from anamorph.kernels.threads import use_threads

    with checking():
        checked_settings(model.get_params(deep=False), files.format, len(files), files.voxel_size)
        checked_seed(model.random_state)
        with use_threads(model.n_threads):
            pass


def _tell_how_to_go_on(n_done: int, checkpoint: Path) -> None:
    if checkpoint.exists():
        after = f"after iteration {n_done}" if n_done else "early"
        command = shlex.join(["anamorph", *sys.argv[1:]])
        text = f"Stopped {after}; {checkpoint} is kept, the same command goes on: {command}"
    else:
        text = "Stopped before the first iteration was done; nothing was written"
    print(text, file=sys.stderr)


def _write(
    model: ShapeAppearanceModel,
    found: ImageList,
    output: Path,
    table: Path,
    checkpoint: Path,
    messages: Messages,
) -> None:
    from anamorph.cli.bar import duration
    from anamorph.io.tables import write_latents

    try:
        model.save(output)
        write_latents(table, found.names, model.latents_)
    except OSError as error:
        raise CommandError(
            f"{error}; the fit is kept in {checkpoint}: make space, then run the same command"
        ) from None
    checkpoint.unlink(missing_ok=True)
    seconds = sum(model.origin_.seconds)
    objective = model.objective_[-1] if model.objective_ else None
    messages.say(
        f"Fitted {len(found)} images in {duration(seconds)}, {model.n_iter_} iterations"
        + ("" if objective is None else f", objective {objective:.8g}")
    )
    messages.wrote(output, table)
    messages.result(
        model=str(output),
        latents=str(table),
        n_images=len(found),
        n_iterations=model.n_iter_,
        objective=objective,
        seconds=seconds,
    )
