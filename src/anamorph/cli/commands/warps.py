"""``anamorph warps``: warps for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import OptionalImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import LatentSource, ModelArguments, check_poses, latent_source
from anamorph.cli.terminal.places import paths_in

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph warps model.safetensors scans/ -o warps/
anamorph warps model.safetensors --latents latents.tsv --format fsl --direction to -o warps/"""

TO, FROM, BOTH = "to", "from", "both"


@options.command()
def warps(
    *,
    output: options.OutputFolder,
    latents: options.Latents = None,
    residual: options.Residual = False,
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="itk (ANTs, Slicer, SimpleITK), spm (y_ and iy_ files), fsl (applywarp), or x5 "
            "(nitransforms).",
        ),
    ] = "itk",
    direction: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="to: bring images to the template; from: bring the template to images; both.",
        ),
    ] = BOTH,
    model_arguments: ModelArguments,
    given: OptionalImageArguments,
    messages: Messages,
) -> None:
    """Write warps in the formats of other tools.

    A warp to the template, NAME_to-template, brings an image into its space
    when another tool resamples the image with it; NAME_from-template brings the
    template, or an atlas in its space, to the image.
    """
    from anamorph.model.checks import check_choice
    from anamorph.storage.warps import WARP_FORMATS

    check_choice("--format", kind, tuple(WARP_FORMATS))
    check_choice("--direction", direction, (TO, FROM, BOTH))
    model = model_arguments.load()
    source = latent_source(model, given, latents, messages, residual=residual)
    wanted = [way for way in (TO, FROM) if direction in (way, BOTH)]
    paths = {way: _paths(output, source.names, kind, way) for way in wanted}
    everything = [path for some in paths.values() for path in some]
    model_arguments.reserve(everything, source.inputs)
    with messages.counting(f"Writing warps of {counted(len(source.names), 'image')}"):
        _write(model, source, paths, kind)
    messages.wrote(*everything)


def _paths(folder: Path, names: list[str], kind: str, way: str) -> list[Path]:
    from anamorph.storage.warps import WARP_FORMATS

    if kind == "spm":
        prefix = "y_" if way == TO else "iy_"
        return paths_in(folder, [f"{prefix}{name}" for name in names], WARP_FORMATS[kind])
    return paths_in(folder, names, f"_{way}-template{WARP_FORMATS[kind]}")


def _write(
    model: ShapeAppearanceModel, source: LatentSource, paths: dict[str, list[Path]], kind: str
) -> None:
    from anamorph.images.grid import slices_inside
    from anamorph.storage.warps import write_warp

    inner = model.origin_.inner_grid(model.image_format_.space)
    inside = (slice(None), *slices_inside(inner, model.origin_.pad))
    codes = source.encode(range(len(source.names)))
    check_poses(model, codes.poses)
    for n in range(len(source.names)):
        one = codes.take(slice(n, n + 1))
        for way, files in paths.items():
            displacement = model.displacement(
                one.latents, one.poses, inverse=way == TO, residuals=one.residuals
            )[0]
            own = None if source.grids is None or way == FROM else source.grids[n]
            placed = own if own is not None and own.affine is not None else None
            write_warp(files[n], displacement[inside], inner, kind, source=placed)
