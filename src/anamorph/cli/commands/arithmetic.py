"""``anamorph arithmetic``: the images of sums and differences of latents."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.expression import parse_sum
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import Messages
from anamorph.cli.terminal.models import ModelArguments, latent_source, output_of
from anamorph.cli.terminal.places import save_figure

EXAMPLES = """[bold]Examples[/bold]
anamorph arithmetic model.safetensors "smiling-1 - neutral-1 + neutral-2" faces/ -o sum/
anamorph arithmetic model.safetensors "0.5*a + 0.5*b" --latents latents.tsv -o between/"""


@options.command()
def arithmetic(
    *,
    output: options.OutputFolder,
    latents: options.Latents = None,
    probabilities: options.Probabilities = False,
    model_arguments: ModelArguments,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="SUM",
            help="Names of images (their participant_id) with + and -, and numbers as factors: "
            '"a - b + 0.5*c". Put it in quotes, and a space before a minus at its beginning: '
            '" -a + b".',
        ),
    ],
    given: ImageArguments,
    messages: Messages,
) -> None:
    """Add and subtract images by their latents: a smile put on another face.

    Writes the image of the sum (result), its latents (result.latents.tsv) and
    the picture arithmetic.png of all terms.
    """
    import numpy as np

    from anamorph.plots import plot_arithmetic
    from anamorph.storage.tables import write_latents

    model = model_arguments.load()
    written = output_of(model, probabilities)
    source = latent_source(model, given, latents, messages)
    terms = parse_sum(expression, source.names)
    paths = [output / f"result{written.suffix}", output / "result.latents.tsv"]
    picture = output / "arithmetic.png"
    model_arguments.reserve([*paths, picture], source.inputs)
    used = list(dict.fromkeys(name for _, name in terms))  # each is encoded once
    codes = source.find([source.names.index(name) for name in used])
    latents_of = dict(zip(used, codes, strict=True))
    summands = [(factor, latents_of[name], name) for factor, name in terms]
    result = np.sum([factor * code for factor, code, _ in summands], axis=0)[None]
    written.write(paths[0], model.expected_images(result)[0])
    write_latents(paths[1], ["result"], result)
    save_figure(plot_arithmetic(model, summands), picture)
    messages.wrote(*paths, picture)
    messages.result(latents=result[0].tolist())
