"""``anamorph reconstruct`` and ``anamorph impute``: images as the model explains them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import counted, talking
from anamorph.cli.terminal.models import latent_source, load_model, output_of, write_images
from anamorph.cli.terminal.places import paths_in, reserve

RECONSTRUCT_EXAMPLES = """[bold]Examples[/bold]
anamorph reconstruct model.safetensors scans/ -o reconstructions/
anamorph reconstruct model.safetensors --latents latents.tsv --part shape -o shapes/"""

IMPUTE_EXAMPLES = """[bold]Example[/bold]
anamorph impute model.safetensors incomplete/ -o complete/"""

_ENDINGS = {"both": "_reconstruction", "shape": "_shape", "appearance": "_appearance"}


def reconstruct(
    model_file: options.ModelFile,
    output: options.OutputFolder,
    images: options.OptionalImages = None,
    latents: options.Latents = None,
    part: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="both; shape (the mean, warped); or appearance (nothing is warped).",
        ),
    ] = "both",
    probabilities: options.Probabilities = False,
    threads: options.Threads = None,
    device: options.Device = None,
    force: options.Force = False,
    tissues: options.Tissues = False,
    participants: options.ParticipantsTable = None,
    resample: options.Resample = False,
    cache: options.CacheFolder = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Write what the model makes of images, or of latents.

    Each goes to a file of its name and _reconstruction (or _shape,
    _appearance): NIfTI in the space of the images, PNG if they were pictures,
    else .npy.
    """
    from anamorph.model.checks import check_choice

    with talking("reconstruct", quiet, as_json) as messages:
        check_choice("--part", part, tuple(_ENDINGS))
        model = load_model(model_file, threads, device)
        written = output_of(model, probabilities)
        given = ImageArguments(images or [], tissues, participants, resample, cache)
        source = latent_source(model, given, latents, messages)
        paths = paths_in(output, source.names, _ENDINGS[part] + written.suffix)
        reserve(paths, [model_file, *source.inputs], force=force)
        codes = source.find(range(len(paths)))
        with messages.waiting(f"Reconstructing {counted(len(paths), 'image')}"):
            write_images(
                model, written, paths, lambda some: model.expected_images(codes[some], part)
            )
        messages.wrote(*paths)


def impute(
    model_file: options.ModelFile,
    images: options.Images,
    output: options.OutputFolder,
    probabilities: options.Probabilities = False,
    threads: options.Threads = None,
    device: options.Device = None,
    force: options.Force = False,
    tissues: options.Tissues = False,
    participants: options.ParticipantsTable = None,
    resample: options.Resample = False,
    cache: options.CacheFolder = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fill in what is missing in images, by what the model expects there.

    Missing are NaN, transparent pixels, and with --resample what lies outside
    the field of view. Each image goes to a file of its name and _imputed.
    """
    with talking("impute", quiet, as_json) as messages:
        model = load_model(model_file, threads, device)
        written = output_of(model, probabilities)
        given = ImageArguments(images, tissues, participants, resample, cache)
        found = given.find()
        given.open_for(model, found)  # checks all headers before the work begins
        paths = paths_in(output, found.names, "_imputed" + written.suffix)
        reserve(paths, [model_file, *given.inputs(found)], force=force)

        def imputed(part: slice) -> Any:
            files: Any = given.open_for(model, found.take(range(len(found))[part]))
            return model.imputed_images(files)

        with messages.waiting(f"Imputing {counted(len(found), 'image')}"):
            write_images(model, written, paths, imputed)
        messages.wrote(*paths)
