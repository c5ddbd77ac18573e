"""``anamorph cluster fit``: what ``anamorph fit`` does, on the workers of a Dask cluster."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anamorph.cli.commands.fit import fit_files
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import Messages
from anamorph.cli.terminal.places import path_beside
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
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


@app.command(epilog=EXAMPLES)
@options.command("cluster fit")
@command_with_settings(but=("n_threads",))
def fit(
    *,
    settings: ModelSettings,
    checkpoint: options.Checkpoint = None,
    given: ImageArguments,
    pad: options.Pad = None,
    reference: options.Reference = None,
    force: options.Force = False,
    messages: Messages,
    scheduler: Scheduler,
    output: options.ModelOutput,
    scratch: Scratch = None,
    partitions: Partitions = None,
    threads: TaskThreads = None,
) -> None:
    """Learn a model from images, on the workers of a Dask cluster.

    All machines must see the images, and a folder for latents, under the
    same paths. Workers may come, go and die. Ctrl-C stops the fit, and the
    same command resumes it.
    """
    if importlib.util.find_spec("distributed") is None:
        raise CommandError(
            "'anamorph cluster' needs Dask, which is not installed: pip install 'anamorph[cluster]'"
        )

    def fit_there(model: ShapeAppearanceModel, files: FileImages, **how: Any) -> None:
        from anamorph.cluster import ClusterError, connect, fit_on_cluster
        from anamorph.cluster.storage import remove_abandoned

        if scratch is None:  # a folder of this model alone, unlike one that was given
            remove_abandoned(path_beside(output, ".cluster"))
        folder = scratch or path_beside(output, ".cluster")
        try:
            with connect(scheduler) as client:
                fit_on_cluster(model, files, client, folder, n_partitions=partitions, **how)
        except ClusterError as error:
            raise CommandError(str(error)) from None

    settings = settings.also(n_threads=threads)
    places = (output, checkpoint, reference)
    fit_files(fit_there, messages, given, settings, *places, pad=pad, force=force)
