"""``anamorph surface``: meshes of what a model shows."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import OptionalImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, latent_source
from anamorph.cli.terminal.places import paths_in

EXAMPLES = """[bold]Examples[/bold]
anamorph surface model.safetensors -o meshes/
anamorph surface model.safetensors --latents latents.tsv --label 17 --format ply -o meshes/"""

_FORMATS = ("gii", "ply", "vtk", "stl")


@options.command()
def surface(
    *,
    output: options.OutputFolder,
    latents: options.Latents = None,
    label: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Of which label, for label maps; by default all but the first."
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Value on the surface, for other images; by default 0.5, where values are from 0 "
            "to 1.",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="gii (GIFTI), ply, vtk or stl.",
        ),
    ] = "gii",
    model_arguments: ModelArguments,
    given: OptionalImageArguments,
    messages: Messages,
) -> None:
    """Write the surface of what images show, as a closed mesh.

    Without images and latents it is that of the template, mean_surface. Needs
    scikit-image: install anamorph with the extra meshes.
    """
    import numpy as np

    from anamorph.model.checks import check_choice
    from anamorph.storage.meshes import write_mesh

    check_choice("--format", kind, _FORMATS)
    model = model_arguments.load()
    model.template_space_.check_surface(label, level)  # before a folder is made
    is_mean = latents is None and not given.are_given
    source = None if is_mean else latent_source(model, given, latents, messages)
    names = ["mean"] if source is None else source.names
    paths = paths_in(output, names, f"_surface.{kind}")
    model_arguments.reserve(paths, [] if source is None else source.inputs)
    codes = (
        np.zeros((1, len(model.latent_precision_)))
        if source is None
        else source.find(range(len(paths)))
    )
    volumes = {}
    with messages.waiting(f"Drawing {counted(len(paths), 'surface')}"):
        for path, name, row in zip(paths, names, codes, strict=True):
            mesh = model.surface(row, label, level)
            write_mesh(path, mesh)
            volumes[name] = mesh.volume
    messages.wrote(*paths)
    messages.result(volumes=volumes)
