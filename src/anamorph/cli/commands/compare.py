"""``anamorph compare``: how well kinds of models predict voxels that they have not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import FitDisplay, Messages, counted
from anamorph.cli.terminal.places import reserve, save_figure
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings, parse_words

if TYPE_CHECKING:
    from anamorph.compare.layouts import Comparison

EXAMPLES = """[bold]Examples[/bold]
anamorph compare faces/ -k 16 -o comparison/
anamorph compare labels/ --labels -k 8 --layouts joint,shape -o comparison/"""


_DEFAULTS = {"n_components": 16, "random_state": 0}


@options.command()
@command_with_settings(
    *("preset", "config", "likelihood", "labels", "n_iter", "n_threads", "device", "channel_axis"),
    "scale",
)
def compare(
    *,
    output: options.OutputFolder,
    components: Annotated[
        str | None,
        typer.Option(
            "--components",
            "-k",
            metavar="K",
            help="Latents of every model, of which separate ones have half for shape unless "
            "'A,S' says otherwise. By default 16.",
        ),
    ] = None,
    layouts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Kinds of models to compare: joint, separate, shape, appearance; by default all.",
        ),
    ] = None,
    fraction: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of every image to hide, from 0 to 1.")
    ] = 0.25,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of what is hidden and of the fits; by default 0."),
    ] = None,
    settings: ModelSettings,
    force: options.Force = False,
    given: ImageArguments,
    pad: options.Pad = None,
    reference: options.Reference = None,
    messages: Messages,
) -> None:
    """Compare kinds of models by how well they predict what was hidden from them.

    A part of every image is hidden, models with joint and separate latents,
    of shape only and of appearance only are fitted to the rest, and predict
    it. Writes comparison.tsv (a row per image) and comparison.png.
    """
    settings = settings.also(n_components=components, random_state=seed)
    arguments = _DEFAULTS | settings.merged(given.tissues)
    arguments.pop("latents", None)  # layouts stand for all of them
    chosen = _checked_layouts(layouts)
    if not 0 < fraction < 1:
        raise CommandError(f"--fraction must be between 0 and 1, got {fraction}")
    found = given.find_several()
    paths = [output / "comparison.tsv", output / "comparison.png"]
    reserve(paths, [*given.inputs(found), settings.config], force=force)
    from anamorph.compare.layouts import compare_layouts, layout_models  # slow, unlike the checks

    model = next(iter(layout_models(layouts=chosen, **arguments).values()))
    files = given.open_to_fit(model, found, pad, reference)
    with FitDisplay(messages) as display:
        display.stage(f"Fitting {counted(len(chosen), 'kind')} of models to {len(found)} images")
        comparison = compare_layouts(
            files, layouts=chosen, fraction=fraction, progress=display.advance_named, **arguments
        )
    _write(comparison, found.names, paths)
    _show(comparison, messages)
    messages.wrote(*paths)


def _checked_layouts(text: str | None) -> tuple[str, ...]:
    from anamorph.model.hyperparameters import LAYOUTS

    chosen = LAYOUTS if text is None else parse_words("--layouts", text)
    for name in chosen:
        if name not in LAYOUTS:
            raise CommandError(f"--layouts must be among {', '.join(LAYOUTS)}, got {name}")
    return chosen


def _write(comparison: Comparison, names: list[str], paths: list[Path]) -> None:
    from anamorph.plots import plot_comparison
    from anamorph.storage.tables import write_table

    columns: dict[str, Any] = {"n_hidden": comparison.n_hidden.tolist()}
    for layout in comparison.layouts:
        columns[f"log_likelihood_{layout}"] = comparison.log_likelihood[layout].tolist()
        columns[f"squared_error_{layout}"] = comparison.squared_error[layout].tolist()
    write_table(paths[0], names, columns)
    save_figure(plot_comparison(comparison), paths[1])


def _show(comparison: Comparison, messages: Messages) -> None:
    """Show means over images, of hidden voxels."""
    from rich import box
    from rich.table import Table

    table = Table(
        "latents",
        "log-likelihood per image",
        "squared error per voxel",
        box=box.SIMPLE,
        title="Hidden voxels, means",
    )
    means = {}
    n_hidden = int(comparison.n_hidden.sum())
    for layout in comparison.layouts:
        likelihood = float(comparison.log_likelihood[layout].mean())
        error = float(comparison.squared_error[layout].sum() / n_hidden)
        means[layout] = {"log_likelihood": likelihood, "squared_error": error}
        table.add_row(layout, f"{likelihood:.6g}", f"{error:.4g}")
    messages.show(table)
    messages.result(means=means, n_images=len(comparison.n_hidden))
