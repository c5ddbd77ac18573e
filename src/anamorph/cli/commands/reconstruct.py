"""``anamorph reconstruct`` and ``anamorph impute``: images as the model explains them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import ImageArguments, OptionalImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, latent_source, output_of, write_images
from anamorph.cli.terminal.places import paths_in

if TYPE_CHECKING:
    from anamorph.arrays.typing import Array

RECONSTRUCT_EXAMPLES = """[bold]Examples[/bold]
anamorph reconstruct model.safetensors scans/ -o reconstructions/
anamorph reconstruct model.safetensors --latents latents.tsv --part shape -o shapes/"""

IMPUTE_EXAMPLES = """[bold]Example[/bold]
anamorph impute model.safetensors incomplete/ -o complete/"""

_ENDINGS = {"both": "_reconstruction", "shape": "_shape", "appearance": "_appearance"}


@options.command()
def reconstruct(
    *,
    output: options.OutputFolder,
    latents: options.Latents = None,
    part: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="both; shape (the mean, warped); or appearance (nothing is warped).",
        ),
    ] = "both",
    probabilities: options.Probabilities = False,
    model_arguments: ModelArguments,
    given: OptionalImageArguments,
    messages: Messages,
) -> None:
    """Write what the model makes of images, or of latents.

    Each goes to a file of its name and _reconstruction (or _shape,
    _appearance): NIfTI in the space of the images, PNG if they were pictures,
    else .npy.
    """
    from anamorph.model.checks import check_choice

    check_choice("--part", part, tuple(_ENDINGS))
    model = model_arguments.load()
    written = output_of(model, probabilities)
    source = latent_source(model, given, latents, messages)
    paths = paths_in(output, source.names, _ENDINGS[part] + written.suffix)
    model_arguments.reserve(paths, source.inputs)
    codes = source.find(range(len(paths)))
    with messages.waiting(f"Reconstructing {counted(len(paths), 'image')}"):
        write_images(model, written, paths, lambda some: model.expected_images(codes[some], part))
    messages.wrote(*paths)


@options.command()
def impute(
    *,
    output: options.OutputFolder,
    probabilities: options.Probabilities = False,
    std: Annotated[
        bool,
        typer.Option(
            "--std",
            help="Write standard deviations of what was filled in as well, to files _std: 0 where "
            "the image was observed.",
        ),
    ] = False,
    model_arguments: ModelArguments,
    given: ImageArguments,
    messages: Messages,
) -> None:
    """Fill in what is missing in images, by what the model expects there.

    Missing are NaN, transparent pixels, and with --resample what lies outside
    the field of view. Each image goes to a file of its name and _imputed.
    """
    model = model_arguments.load()
    written = output_of(model, probabilities)
    found = given.find()
    given.open_for(model, found)  # checks all headers before the work begins
    paths = paths_in(output, found.names, "_imputed" + written.suffix)
    uncertain = replace(written, is_bounded=False, as_probabilities=True)
    deviation_paths = paths_in(output, found.names, "_std" + uncertain.suffix) if std else []
    model_arguments.reserve([*paths, *deviation_paths], given.inputs(found))

    def imputed(part: slice) -> Array:
        some = found.take(range(len(found))[part])
        images, deviations = model.imputed_images(given.open_for(model, some))
        for path, deviation in zip(deviation_paths[part], deviations, strict=False):
            uncertain.write(path, deviation)
        return images

    with messages.waiting(f"Imputing {counted(len(found), 'image')}"):
        write_images(model, written, paths, imputed)
    messages.wrote(*paths, *deviation_paths)
