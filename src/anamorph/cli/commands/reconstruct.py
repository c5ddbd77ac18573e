"""``anamorph reconstruct`` and ``anamorph impute``: images as the model explains them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.derivatives import describe_folder, image_paths
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, latent_source, output_of, write_images

if TYPE_CHECKING:
    from anamorph.arrays.typing import Array
    from anamorph.cli.terminal.models import LatentSource
    from anamorph.estimator import ShapeAppearanceModel

RECONSTRUCT_EXAMPLES = """[bold]Examples[/bold]
anamorph reconstruct model.safetensors scans/ -o reconstructions/
anamorph reconstruct model.safetensors --latents latents.tsv --part shape -o shapes/"""

IMPUTE_EXAMPLES = """[bold]Example[/bold]
anamorph impute model.safetensors incomplete/ -o complete/"""

_WORDS = {"both": "reconstruction", "shape": "shape", "appearance": "appearance"}


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
    on_input_grid: options.OnInputGrid = False,
    model_arguments: ModelArguments,
    given: ImageArguments,
    messages: Messages,
) -> None:
    """Write what the model makes of images, or of latents.

    Each goes to a file of its name and _reconstruction (or _shape,
    _appearance): NIfTI in the space of the images, PNG if they were pictures,
    else .npy. Images come back in their own pose and intensities; parts of
    them, and latents, in the intensities of the model, and latents without
    poses in the pose of the template.
    """
    from anamorph.model.checks import check_choice

    check_choice("--part", part, tuple(_WORDS))
    model = model_arguments.load()
    written = output_of(model, probabilities)
    source = latent_source(model, given, latents, messages)
    paths = image_paths(output, source.names, source.bids, _WORDS[part], written.suffix)
    model_arguments.reserve(paths, source.inputs)
    grids = source.input_grids(model) if on_input_grid else None
    expected = _reconstructed(model, source, part, len(paths))

    with messages.counting(f"Reconstructing {counted(len(paths), 'image')}"):
        write_images(model, written, paths, expected, grids)
    describe_folder(output, source.bids, "anamorph reconstruct")
    messages.wrote(*paths)


def _reconstructed(
    model: ShapeAppearanceModel, source: LatentSource, part: str, n_images: int
) -> Callable[[slice], Array]:
    """Return what makes some of the images that are written."""
    open_files = source.open
    if open_files is not None and part == "both":  # whose intensities are known

        def explain(some: slice) -> Array:
            return model.reconstructed_images(open_files(range(n_images)[some]))

        return explain
    codes, poses, _ = source.encode(range(n_images))

    def expect(some: slice) -> Array:
        return model.expected_images(codes[some], part, None if poses is None else poses[some])

    return expect


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

    Missing are NaN, transparent pixels, what --missing-value or --mask says,
    and what lies outside the field of view of a file on another grid. Each
    image goes to a file of its name and _imputed.
    """
    model = model_arguments.load()
    written = output_of(model, probabilities)
    found = given.find()
    given.open_for(model, found)  # checks all headers before the work begins
    paths = image_paths(output, found.names, found.bids, "imputed", written.suffix)
    uncertain = replace(written, is_bounded=False, as_probabilities=True)
    deviation_paths = (
        image_paths(output, found.names, found.bids, "std", uncertain.suffix) if std else []
    )
    model_arguments.reserve([*paths, *deviation_paths], given.inputs(found))

    shares: list[float] = []

    def imputed(part: slice) -> Array:
        files = given.open_for(model, found.take(range(len(found))[part]))
        shares.extend(files.missing_share(n) for n in range(len(files)))
        images, deviations = model.imputed_images(files)
        for path, deviation in zip(deviation_paths[part], deviations, strict=False):
            uncertain.write(path, deviation)
        return images

    with messages.counting(f"Imputing {counted(len(found), 'image')}"):
        write_images(model, written, paths, imputed)
    describe_folder(output, found.bids, "anamorph impute")
    n_whole = shares.count(0)
    if n_whole:
        messages.say(
            f"Nothing was missing in {n_whole} of {counted(len(found), 'image')}: they are as they "
            "were. Where zeros stand for missing say --missing-value 0, or give a --mask"
        )
    messages.result(missing=dict(zip(found.names, shares, strict=True)))
    messages.wrote(*paths, *deviation_paths)
