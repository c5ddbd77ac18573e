"""``anamorph fit``: learn a model from image files."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments, ImageList
from anamorph.cli.terminal.messages import FitDisplay, Messages, counted
from anamorph.cli.terminal.places import check_checkpoint, check_free, path_beside, reserve
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings
from anamorph.cli.terminal.signals import INTERRUPTED
from anamorph.cli.terminal.streams import tell

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.files import FileImages
    from anamorph.storage.commit import Outputs

EXAMPLES = """[bold]Examples[/bold]
anamorph fit scans/ -o brains.safetensors --components 20
anamorph fit 'faces/*.png' -o faces.safetensors --preset faces -k 32
anamorph fit labels/ --labels -o hippocampi.safetensors --pad 4
anamorph fit --tissues 'rc1*.nii' 'rc2*.nii' -o tissues.safetensors"""


@options.command()
@command_with_settings()
def fit(
    *,
    output: options.ModelOutput,
    settings: ModelSettings,
    checkpoint: options.Checkpoint = None,
    given: ImageArguments,
    pad: options.Pad = 0,
    reference: options.Reference = None,
    force: options.Force = False,
    messages: Messages,
) -> None:
    """Learn a shape and appearance model from images, without any annotation.

    From the images alone it finds a mean, modes of shape and appearance, and
    a few numbers (latents) for every image. Ctrl-C stops it, and the same
    command resumes it.
    """

    def fit_here(model: ShapeAppearanceModel, files: FileImages, **how: Any) -> None:
        model.fit(files, **how)

    places = (output, checkpoint, reference)
    fit_files(fit_here, messages, given, settings, *places, pad=pad, force=force)


def fit_files(
    fit_model: Callable[..., object],
    messages: Messages,
    given: ImageArguments,
    settings: ModelSettings,
    output: Path,
    checkpoint: Path | None,
    reference: Path | None,
    *,
    pad: int,
    force: bool,
) -> None:
    """Do what ``anamorph fit`` does, wherever the model is fitted.

    Parameters
    ----------
    fit_model : callable
        Fits a model to opened images, here or elsewhere. Takes both, and by name ``checkpoint``
        and ``callback``, as `ShapeAppearanceModel.fit` does.
    messages : Messages
    given : ImageArguments
    settings, output, checkpoint, reference, pad, force
        The options of `fit`.
    """
    arguments = settings.merged(given.tissues)
    found = given.find_several()
    _check_components(arguments, len(found), settings)
    table = path_beside(output, ".latents.tsv")
    inputs = [*given.inputs(found), settings.config, reference]
    checkpoint = checkpoint or path_beside(output, ".checkpoint")
    check_checkpoint(checkpoint, [output, table, *inputs])
    reserve([output, table, checkpoint], inputs, force=True)
    from anamorph.storage.commit import Outputs
    from anamorph.storage.tables import check_names

    check_names(found.names)
    identity = _identify(arguments, found, output, pad, reference)
    with Outputs([output, table], table) as outputs:
        is_finished = outputs.finish_interrupted(identity)
        if not is_finished:
            check_free([output, table], force=force)
        from anamorph.estimator import ShapeAppearanceModel  # slow, unlike the checks

        if is_finished:  # killed while its results were given their names
            model = ShapeAppearanceModel.load(output)
        else:
            model = ShapeAppearanceModel(**arguments)
            opened = partial(given.open_to_fit, model, found, pad, reference)
            _fit(fit_model, model, messages, opened, len(found), checkpoint)
            _write(outputs, model, found, {"model": output, "table": table}, checkpoint, identity)
        _tell(model, found, output, table, messages)


def _fit(
    fit_model: Callable[..., object],
    model: ShapeAppearanceModel,
    messages: Messages,
    open_images: Callable[[], FileImages],
    n_images: int,
    checkpoint: Path,
) -> None:
    """Open images and fit a model to them, and show how it goes."""
    try:
        with FitDisplay(messages) as display:
            display.stage(f"Reading {n_images} images")
            files = open_images()
            if files.understood:
                messages.say(f"Understood: {files.understood}")
            display.stage(
                f"Reading {checkpoint}, to resume from it"
                if checkpoint.exists()
                else "Starting (where kernels are not compiled yet, this takes a minute)"
            )
            fit_model(model, files, checkpoint=checkpoint, callback=display.advance)
    except KeyboardInterrupt as interrupt:  # said once the bar is gone, which would break the line
        tell_how_to_resume(checkpoint)
        raise typer.Exit(INTERRUPTED) from interrupt


def _identify(
    arguments: dict[str, Any], found: ImageList, output: Path, pad: int, reference: Path | None
) -> str:
    """Return a text that is the same for the same command on the same files, and for no other."""
    stats = [(os.path.realpath(path), path.stat()) for path in found.all_files]
    files = [[path, facts.st_size, facts.st_mtime_ns] for path, facts in stats]
    command = [arguments, found.names, files, os.path.realpath(output), pad, reference]
    return hashlib.blake2b(json.dumps(command, default=str).encode(), digest_size=16).hexdigest()


def _check_components(arguments: dict[str, Any], n_images: int, settings: ModelSettings) -> None:
    """Say before anything is read that there are more latents than images allow."""
    asked = arguments.get("n_components")
    total = sum(asked) if isinstance(asked, tuple) else asked
    if settings.preset is None or not isinstance(total, int) or total < n_images:
        return
    if isinstance(asked, tuple):
        n_appearance = max(1, round((n_images - 1) * asked[0] / total))
        n_shape = max(1, n_images - 1 - n_appearance)
        raise CommandError(
            f"the model would have {asked[0]} latents for appearance and {asked[1]} for shape, and "
            f"{n_images} images allow at most {n_images - 1} in all: set them with -k A,S "
            f"(appearance, shape), e.g. -k {n_appearance},{n_shape}"
        )
    raise CommandError(
        f"the model would have {asked} latents, and {n_images} images allow at most "
        f"{n_images - 1}: set their number with -k, e.g. -k {max(1, (n_images - 1) // 2)}"
    )


def tell_how_to_resume(checkpoint: Path) -> None:
    """Say, after Ctrl-C, what is kept and which command resumes the fit."""
    if checkpoint.exists():
        command = shlex.join(["anamorph", *sys.argv[1:]])
        text = f"Stopped; {checkpoint} is kept, and the same command resumes the fit: {command}"
    else:
        text = "Stopped before the first iteration was done; nothing was written"
    tell(text)


def _write(
    outputs: Outputs,
    model: ShapeAppearanceModel,
    found: ImageList,
    paths: dict[str, Path],
    checkpoint: Path,
    identity: str,
) -> None:
    """Write model and latents and remove the checkpoint, all of it or nothing."""
    from anamorph.storage.tables import pose_columns, write_latents

    poses = pose_columns(model.pose_names_, model.poses_)
    writers: dict[Path, Callable[[Path], object]] = {
        paths["model"]: model.save,
        paths["table"]: lambda path: write_latents(path, found.names, model.latents_, poses),
    }
    try:
        outputs.commit(writers, checkpoint, identity)
    except OSError as error:
        raise CommandError(
            f"{error}; the fit is kept in {checkpoint}: make space, then run the same command"
        ) from None


def _tell(
    model: ShapeAppearanceModel, found: ImageList, output: Path, table: Path, messages: Messages
) -> None:
    from anamorph.fitting.run import duration

    seconds = sum(model.origin_.seconds)
    objective = model.objective_[-1] if model.objective_ else None
    messages.say(
        f"Fitted {len(found)} images in {duration(seconds)}, {counted(model.n_iter_, 'iteration')}"
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
