"""``anamorph jacobians``: where images are larger or smaller than the template."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.images import OptionalImageArguments
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, latent_source, write_images
from anamorph.cli.terminal.places import paths_in

if TYPE_CHECKING:
    from anamorph.arrays.typing import Array

EXAMPLES = """[bold]Examples[/bold]
anamorph jacobians model.safetensors scans/ -o volumes/
anamorph jacobians model.safetensors --latents latents.tsv --log --fwhm 8 -o volumes/"""


@options.command()
def jacobians(
    *,
    output: options.OutputFolder,
    latents: options.Latents = None,
    residual: options.Residual = False,
    log: Annotated[
        bool, typer.Option("--log", metavar="", help="Write logarithms: 0 where nothing changes.")
    ] = False,
    fwhm: Annotated[
        float,
        typer.Option(
            metavar="MM", min=0, help="Smooth with a Gaussian of this width at half its height."
        ),
    ] = 0.0,
    model_arguments: ModelArguments,
    given: OptionalImageArguments,
    messages: Messages,
) -> None:
    """Map how much larger each image is than the template, everywhere in it.

    These are Jacobian determinants of the warps from the template to the
    images: 2 where an image is twice as large. Each map goes to a file of the
    name of its image and _jacobian (or _log-jacobian).
    """
    from anamorph.likelihoods import DEFAULT
    from anamorph.storage.outputs import ImageOutput

    model = model_arguments.load()
    format_ = replace(
        model.image_format_, likelihood=DEFAULT, n_channels=1, channel_axis=None, labels=None
    )
    written = ImageOutput(format_, model.origin_, is_bounded=False)
    source = latent_source(model, given, latents, messages, residual=residual)
    ending = ("_log-jacobian" if log else "_jacobian") + written.suffix
    paths = paths_in(output, source.names, ending)
    model_arguments.reserve(paths, source.inputs)
    codes = source.encode(range(len(paths)))

    def make(part: slice) -> Array:
        some = codes.take(part)
        return model.template_space_.volume_changes(
            some.latents, log=log, fwhm=fwhm, residuals=some.residuals
        )

    with messages.counting(f"Mapping {counted(len(paths), 'image')}"):
        write_images(model, written, paths, make)
    messages.wrote(*paths)
