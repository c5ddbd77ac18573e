"""``anamorph cluster fit``: what ``anamorph fit`` does, on the workers of a Dask cluster."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.commands.fit import fit as fit_command
from anamorph.cli.commands.fit import fit_with
from anamorph.cli.terminal import setting_options as setting
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.places import path_beside
from anamorph.cli.terminal.typed_settings import with_settings

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.fitting.progress import Progress
    from anamorph.images.files import FileImages

_CLUSTER = "Cluster"

Scheduler = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        rich_help_panel=_CLUSTER,
        help="Address of the Dask scheduler, as it prints it, e.g. tcp://node17:8786.",
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=_CLUSTER,
        help="Folder that all machines share, for latents while the fit runs; by default beside "
        "the model, with .cluster.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=_CLUSTER,
        help="Into how many tasks images are split; by default as many as workers have threads.",
    ),
]
TaskThreads = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=_CLUSTER,
        help="Threads of each task; by default 1, since a worker does as many tasks at once as it "
        "has threads.",
    ),
]

EXAMPLES = """[bold]Examples[/bold]
anamorph cluster fit --scheduler tcp://node17:8786 scans/ -o brains.safetensors -k 20
anamorph cluster fit --scheduler tcp://localhost:8786 'faces/*.png' -o faces.safetensors --preset faces"""  # noqa: E501

app = typer.Typer(no_args_is_help=True, help="Learn a model on the workers of a Dask cluster.")


def _with_options_of(command: Callable[..., None]) -> Callable[..., Any]:
    """Give a command all arguments and options of another in place of its ``**options``."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        names = {parameter.name for parameter in own}
        others = inspect.signature(command, eval_str=True).parameters.values()
        all_of_them = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (*(other for other in others if other.name not in names), *own)
        ]
        function.__signature__ = inspect.Signature(all_of_them)  # type: ignore[attr-defined]
        return function

    return decorate


@app.command(epilog=EXAMPLES)
@with_settings(but=("threads",))
@_with_options_of(inspect.unwrap(fit_command))
def fit(
    *,
    scheduler: Scheduler,
    output: setting.ModelOutput,
    scratch: Scratch = None,
    partitions: Partitions = None,
    threads: TaskThreads = None,
    **options: Any,
) -> None:
    """Learn a model from images, on the workers of a Dask cluster.

    All machines must see the images, and a folder for latents, under the
    same paths. Workers may come, go and die. Ctrl-C stops the fit, and the
    same command goes on where it stopped.
    """
    if importlib.util.find_spec("distributed") is None:
        raise CommandError(
            "'anamorph cluster' needs Dask, which is not installed: pip install 'anamorph[cluster]'"
        )

    def fit_there(
        model: ShapeAppearanceModel,
        files: FileImages,
        checkpoint: Path,
        advance: Callable[[Progress], object],
    ) -> ShapeAppearanceModel:
        from anamorph.cluster import ClusterError, connect, fit_on_cluster
        from anamorph.cluster.storage import remove_abandoned

        if scratch is None:  # a folder of this model alone, unlike one that was given
            remove_abandoned(path_beside(output, ".cluster"))
        folder = scratch or path_beside(output, ".cluster")
        try:
            with connect(scheduler) as client:
                return fit_on_cluster(
                    model,
                    files,
                    client,
                    folder,
                    n_partitions=partitions,
                    checkpoint=checkpoint,
                    callback=advance,
                )
        except ClusterError as error:
            raise CommandError(str(error)) from None

    options["settings"] = options["settings"].also(n_threads=threads)
    fit_with(fit_there, "cluster fit", output=output, **options)
