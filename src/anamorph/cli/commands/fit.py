"""``anamorph fit``: learn a model from image files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.derivatives import tables_beside, write_tables_beside
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments, ImageList
from anamorph.cli.terminal.messages import FitDisplay, Messages, counted, tell
from anamorph.cli.terminal.places import check_checkpoint, check_free, path_beside, reserve
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings
from anamorph.cli.terminal.signals import INTERRUPTED
from anamorph.model.hyperparameters import checked_arguments

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.files import FileImages
    from anamorph.storage.commit import Outputs

_MANY, _TWO_GRIDS = 20, 2  # iterations and grids from which on coarser grids are recommended

EXAMPLES = """[bold]Examples[/bold]
anamorph fit scans/ -o brains.safetensors --components 20
anamorph fit 'faces/*.png' -o faces.safetensors --preset faces -k 32
anamorph fit labels/ --labels -o hippocampi.safetensors --pad 4
anamorph fit --tissues 'rc1*.nii' 'rc2*.nii' -o tissues.safetensors
anamorph fit --bids dataset --suffix T1w -o dataset/derivatives/anamorph/t1.safetensors"""


@options.command()
@command_with_settings()
def fit(
    *,
    output: options.ModelOutput,
    settings: ModelSettings,
    checkpoint: options.Checkpoint = None,
    given: ImageArguments,
    pad: options.Pad = None,
    reference: options.Reference = None,
    holdout: options.Holdout = 0.0,
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
    fit_files(fit_here, messages, given, settings, *places, pad=pad, force=force, holdout=holdout)


def fit_files(
    fit_model: Callable[..., object],
    messages: Messages,
    given: ImageArguments,
    settings: ModelSettings,
    output: Path,
    checkpoint: Path | None,
    reference: Path | None,
    *,
    pad: int | None,
    force: bool,
    holdout: float = 0.0,
) -> None:
    """Do what ``anamorph fit`` does, wherever the model is fitted.

    Parameters
    ----------
    fit_model : callable
        Fits a model to opened images, here or elsewhere. Takes both, and by name ``checkpoint``,
        ``callback`` and, if images are held out, ``validation``, as `ShapeAppearanceModel.fit`.
    messages : Messages
    given : ImageArguments
    settings, output, checkpoint, reference, pad, force, holdout
        The options of `fit`.
    """
    arguments = settings.merged(given.tissues)
    checked_arguments(arguments)  # before images are read, which may take long
    everything = given.find_several()
    found, held_out = _hold_out(everything, holdout, arguments.get("random_state") or 0)
    _check_components(arguments, len(found), settings)
    table = path_beside(output, ".latents.tsv")
    joined = [] if found.bids is None else tables_beside(output, found.bids)
    inputs = [*given.inputs(everything), settings.config, reference]
    checkpoint = checkpoint or path_beside(output, ".checkpoint")
    check_checkpoint(checkpoint, [output, table, *inputs])
    reserve([output, table, checkpoint], inputs, force=True)
    from anamorph.storage.commit import Outputs
    from anamorph.storage.tables import check_names

    check_names(everything.names)
    identity = _identify(arguments, found, output, pad, reference, held_out.names)
    with Outputs([output, table], table) as outputs:
        is_finished = outputs.finish_interrupted(identity)
        if not is_finished:
            check_free([output, table, *joined], force=force)
        from anamorph.estimator import ShapeAppearanceModel  # slow, unlike the checks

        if is_finished:  # killed while its results were given their names
            model = ShapeAppearanceModel.load(output)
        else:
            model = ShapeAppearanceModel(**arguments)
            opened = partial(given.open_to_fit, model, found, pad, reference)
            if len(held_out):
                fit_model = _validating(fit_model, given, held_out)
            _fit(fit_model, model, messages, opened, len(found), checkpoint)
            _write(outputs, model, found, {"model": output, "table": table}, checkpoint, identity)
            if given.bids is not None and found.bids is not None:
                made_from = (given.bids, found.bids, found.names)
                write_tables_beside(output, *made_from, model.latents_, "anamorph fit")
        _tell(model, found, output, table, messages)


def _hold_out(images: ImageList, share: float, seed: int) -> tuple[ImageList, ImageList]:
    """Return images to fit a model to, and a random share of them that is held out."""
    if not 0 <= share < 1:
        raise CommandError(f"--holdout must be at least 0 and less than 1, got {share:g}")
    n_held = round(share * len(images))
    if share and not n_held:
        raise CommandError(
            f"--holdout {share:g} of {len(images)} images is less than one: give a larger share"
        )
    order = random.Random(seed).sample(range(len(images)), len(images))
    return images.take(sorted(order[n_held:])), images.take(sorted(order[:n_held]))


def _validating(
    fit_model: Callable[..., object], given: ImageArguments, held_out: ImageList
) -> Callable[..., object]:
    """Return what fits a model, and looks at held-out images after every iteration."""

    def fit(model: ShapeAppearanceModel, files: FileImages, **how: Any) -> object:
        return fit_model(model, files, validation=given.open_like(model, files, held_out), **how)

    return fit


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
            _recommend_levels(model, files, messages)
            display.stage(
                f"Reading {checkpoint}, to resume from it"
                if checkpoint.exists()
                else "Starting (where kernels are not compiled yet, this takes a minute)"
            )
            fit_model(model, files, checkpoint=checkpoint, callback=display.advance)
    except KeyboardInterrupt as interrupt:  # said once the bar is gone, which would break the line
        tell_how_to_resume(checkpoint)
        raise typer.Exit(INTERRUPTED) from interrupt


def _recommend_levels(model: ShapeAppearanceModel, files: FileImages, messages: Messages) -> None:
    """Say that coarse grids would save time, where images are large enough for three."""
    from anamorph.fitting.pyramid import automatic_levels

    space = files.format.space
    size = files.voxel_size or (1.0,) * len(space)
    if model.levels == 1 and model.n_iter >= _MANY and automatic_levels(space, size) > _TWO_GRIDS:
        messages.say("With --levels auto the fit would start on coarse grids, and take less time")


def _identify(
    arguments: dict[str, Any],
    found: ImageList,
    output: Path,
    pad: int | None,
    reference: Path | None,
    held_out: list[str],
) -> str:
    """Return a text that is the same for the same command on the same files, and for no other."""
    stats = [(os.path.realpath(path), path.stat()) for path in found.all_files]
    files = [[path, facts.st_size, facts.st_mtime_ns] for path, facts in stats]
    command = [arguments, found.names, files, os.path.realpath(output), pad, reference, held_out]
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
    if (best := model.best_iteration_) is not None:
        evidence = model.validation_[best - 1]
        messages.say(
            f"Held-out images have most evidence after iteration {best}: {evidence:.8g} each"
            + ("" if best == model.n_iter_ else f", and {model.validation_[-1]:.8g} at the end")
        )
    messages.wrote(output, table)
    messages.result(
        model=str(output),
        latents=str(table),
        n_images=len(found),
        n_iterations=model.n_iter_,
        objective=objective,
        seconds=seconds,
        **_validation_facts(model),
    )


def _validation_facts(model: ShapeAppearanceModel) -> dict[str, Any]:
    if model.best_iteration_ is None:
        return {}
    evidence = [None if value != value else value for value in model.validation_]
    return {"validation": evidence, "best_iteration": model.best_iteration_}
