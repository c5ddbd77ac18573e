"""``anamorph sample``: random images of a model."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.messages import counted, talking
from anamorph.cli.terminal.models import load_model, output_of, write_images
from anamorph.cli.terminal.places import paths_in, reserve

EXAMPLES = """[bold]Example[/bold]
anamorph sample model.safetensors -n 20 -o samples/ --seed 1"""


def sample(
    model_file: options.ModelFile,
    output: options.OutputFolder,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, metavar="N", help="How many images.")
    ] = 20,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The same seed gives the same images.")
    ] = 0,
    probabilities: options.Probabilities = False,
    threads: options.Threads = None,
    device: options.Device = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw random images from a model.

    They go to sample-1, sample-2, ... and their latents to latents.tsv, all in
    the folder.
    """
    import numpy as np

    from anamorph.latents import draw_latents
    from anamorph.storage.tables import write_latents

    with talking("sample", quiet, as_json) as messages:
        model = load_model(model_file, threads, device)
        written = output_of(model, probabilities)
        width = len(str(number))
        names = [f"sample-{n:0{width}d}" for n in range(1, number + 1)]
        paths, table = paths_in(output, names, written.suffix), output / "latents.tsv"
        reserve([*paths, table], [model_file], force=force)
        codes = draw_latents(model.latent_precision_, number, np.random.default_rng(seed))
        with messages.waiting(f"Drawing {counted(number, 'image')}"):
            write_images(model, written, paths, lambda some: model.expected_images(codes[some]))
        write_latents(table, names, codes)
        messages.wrote(*paths, table)
