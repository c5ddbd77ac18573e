"""``anamorph modes``: images along the modes of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import ModelArguments, output_of
from anamorph.cli.terminal.places import paths_in, save_figure
from anamorph.cli.terminal.settings import parse_integers, parse_numbers

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph modes model.safetensors -o modes/
anamorph modes model.safetensors -o modes/ --modes 1,2 --at -5,-3,3,5 --animate"""

_MOST_MODES = 5


@options.command()
def modes(
    *,
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
    model_arguments: ModelArguments,
    messages: Messages,
) -> None:
    """Show what each latent does: images along the modes of a model.

    Writes an image for every mode and place, such as mode-1_-3sd.nii.gz, and
    the picture modes.png of all of them. Mode 1 is the latent z1.
    """
    from anamorph.plots import plot_modes, save_animation
    from anamorph.plots.panels import along_mode
    from anamorph.storage.replace import replacing

    model = model_arguments.load()
    written = output_of(model, probabilities)
    numbers, places = _checked_modes(model, chosen), parse_numbers("--at", at)
    names = [_name_image(mode, place) for mode in numbers for place in places]
    paths = paths_in(output, names, written.suffix)
    picture = output / "modes.png"
    films = {mode: output / f"mode-{mode}.gif" for mode in numbers} if animate else {}
    model_arguments.reserve([*paths, picture, *films.values()])
    with messages.waiting(f"Drawing {counted(len(numbers), 'mode')}"):
        remaining = iter(paths)
        for mode in numbers:
            for image in along_mode(model, mode - 1, places, "both"):
                written.write(next(remaining), image)
        save_figure(plot_modes(model, [mode - 1 for mode in numbers], places), picture)
        for mode, film in films.items():
            with replacing(film) as temporary:
                save_animation(model, mode - 1, temporary)
    messages.wrote(*paths, picture, *films.values(), look_at=picture)


def _name_image(mode: int, place: float) -> str:
    """Return the name of an image, e.g. "mode-1_-3sd" or "mode-1_0sd"."""
    return f"mode-{mode}_{place:+g}sd" if place else f"mode-{mode}_0sd"


def _checked_modes(model: ShapeAppearanceModel, text: str | None) -> tuple[int, ...]:
    n_latents = len(model.latent_precision_)
    if text is None:
        return tuple(range(1, min(_MOST_MODES, n_latents) + 1))
    numbers = parse_integers("--modes", text)
    for number in numbers:
        if not 1 <= number <= n_latents:
            raise CommandError(f"--modes must be from 1 to {n_latents}, got {number}")
    return numbers
