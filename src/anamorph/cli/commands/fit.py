"""``anamorph fit``: learn a model from image files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import INTERRUPTED, CommandError
from anamorph.cli.terminal.images import ImageArguments, ImageList
from anamorph.cli.terminal.messages import FitDisplay, Messages, counted
from anamorph.cli.terminal.places import check_checkpoint, path_beside, reserve
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.files import FileImages

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
    reserve([output, table], inputs, force=force)
    checkpoint = checkpoint or path_beside(output, ".checkpoint")
    check_checkpoint(checkpoint, [output, table, *inputs])
    from anamorph.estimator import ShapeAppearanceModel  # slow, unlike the checks

    model = ShapeAppearanceModel(**arguments)
    try:
        with FitDisplay(messages) as display:
            display.stage(f"Reading {len(found)} images")
            files = given.open_to_fit(model, found, pad, reference)
            if files.understood:
                messages.say(f"Understood: {files.understood}")
            display.stage(
                f"Reading {checkpoint}, to resume from it"
                if checkpoint.exists()
                else "Starting (where kernels are not compiled yet, this takes a minute)"
            )
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            fit_model(model, files, checkpoint=checkpoint, callback=display.advance)
    except KeyboardInterrupt as interrupt:  # said once the bar is gone, which would break the line
        tell_how_to_resume(checkpoint)
        raise typer.Exit(INTERRUPTED) from interrupt
    _write(model, found, output, table, checkpoint, messages)


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
    print(text, file=sys.stderr)


def _write(
    model: ShapeAppearanceModel,
    found: ImageList,
    output: Path,
    table: Path,
    checkpoint: Path,
    messages: Messages,
) -> None:
    from anamorph.fitting.run import duration
    from anamorph.storage.tables import write_latents

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
