"""``anamorph modes``: what each latent does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli import options, values
from anamorph.cli.errors import CommandError
from anamorph.cli.figures import save_figure
from anamorph.cli.messages import talking
from anamorph.cli.models import load_model, output_of, write_images
from anamorph.cli.places import paths_in, reserve

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from anamorph.model import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph modes model.safetensors -o modes/
anamorph modes model.safetensors -o modes/ --modes 1,2 --at -5,-3,3,5 --animate"""

_MOST_MODES = 5


def modes(
    model_file: options.ModelFile,
    output: options.OutputFolder,
    chosen: Annotated[
        str | None,
        typer.Option("--modes", metavar="1,2,...", help="Which modes; by default the first five."),
    ] = None,
    at: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Where along a mode, in standard deviations.")
    ] = "-3,0,3",
    animate: Annotated[
        bool,
        typer.Option("--animate", metavar="", help="Also write a GIF of every mode."),
    ] = False,
    probabilities: options.Probabilities = False,
    threads: options.Threads = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what each latent does: images along the modes of a model.

    Writes an image for every mode and place, such as mode-1_-3sd.nii.gz, and
    the picture modes.png of all of them. Mode 1 is the latent z1.
    """
    from anamorph.io.replace import replacing
    from anamorph.plots import plot_modes, save_animation

    with talking("modes", quiet, as_json) as messages:
        model = load_model(model_file, threads)
        written = output_of(model, probabilities)
        numbers, places = _checked_modes(model, chosen), values.numbers("--at", at)
        names = [f"mode-{mode}_{_signed(place)}sd" for mode in numbers for place in places]
        paths = paths_in(output, names, written.suffix)
        picture = output / "modes.png"
        films = [output / f"mode-{mode}.gif" for mode in numbers] if animate else []
        reserve([*paths, picture, *films], [model_file], force=force)
        with messages.waiting(f"Drawing {len(numbers)} modes"):
            codes = _latents_along(model, numbers, places)
            write_images(model, written, paths, lambda some: model.inverse_transform(codes[some]))
            save_figure(plot_modes(model, [mode - 1 for mode in numbers], places), picture)
            for mode, film in zip(numbers, films, strict=False):
                with replacing(film) as temporary:
                    save_animation(model, mode - 1, temporary)
        messages.wrote(*paths, picture, *films)


def _signed(place: float) -> str:
    return f"{place:+g}" if place else "0"


def _checked_modes(model: ShapeAppearanceModel, text: str | None) -> tuple[int, ...]:
    n_latents = len(model.latent_precision_)
    if text is None:
        return tuple(range(1, min(_MOST_MODES, n_latents) + 1))
    numbers = values.integers("--modes", text)
    for number in numbers:
        if not 1 <= number <= n_latents:
            raise CommandError(f"--modes must be from 1 to {n_latents}, got {number}")
    return numbers


def _latents_along(
    model: ShapeAppearanceModel, modes: Sequence[int], places: Sequence[float]
) -> NDArray[np.float64]:
    """Return latents (n_modes * n_places, K), all places of the first mode first."""
    import numpy as np

    from anamorph.latents import mode_standard_deviations

    deviations = mode_standard_deviations(model.latent_precision_)
    codes = np.zeros((len(modes), len(places), len(deviations)))
    for row, mode in zip(codes, modes, strict=True):
        row[:, mode - 1] = np.array(places) * deviations[mode - 1]
    return codes.reshape(-1, len(deviations))
