"""``anamorph sample``: random images of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, output_of, write_images
from anamorph.cli.terminal.places import paths_in

if TYPE_CHECKING:
    from anamorph.arrays.typing import Array

EXAMPLES = """[bold]Example[/bold]
anamorph sample model.safetensors -n 20 -o samples/ --seed 1"""


@options.command()
def sample(
    *,
    output: options.OutputFolder,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, metavar="N", help="How many images.")
    ] = 20,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The same seed gives the same images.")
    ] = 0,
    noise: Annotated[
        bool, typer.Option("--noise", help="Draw images with noise, not expected ones.")
    ] = False,
    probabilities: options.Probabilities = False,
    model_arguments: ModelArguments,
    messages: Messages,
) -> None:
    """Draw random images from a model.

    They go to sample-1, sample-2, ... and their latents to latents.tsv, all in
    the folder.
    """
    import numpy as np

    from anamorph.latents import draw_latents
    from anamorph.storage.tables import write_latents

    model = model_arguments.load()
    written = output_of(model, probabilities)
    width = len(str(number))
    names = [f"sample-{n:0{width}d}" for n in range(1, number + 1)]
    paths, table = paths_in(output, names, written.suffix), output / "latents.tsv"
    model_arguments.reserve([*paths, table])
    generator = np.random.default_rng(seed)
    codes = draw_latents(model.latent_precision_, number, generator)

    def draw(some: slice) -> Array:
        expected = model.expected_images(codes[some])
        if not noise:
            return expected
        return model.settings_.likelihood.draw(expected, model.noise_variance_, generator)

    with messages.counting(f"Drawing {counted(number, 'image')}"):
        write_images(model, written, paths, draw)
    write_latents(table, names, codes)
    messages.wrote(*paths, table)
