"""``anamorph federation fit``: learn one model from the images of all sites of a consortium."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anamorph.cli.commands.fit import tell_how_to_resume
from anamorph.cli.commands.simulate import InTheOpen
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import require_nvflare
from anamorph.cli.terminal.messages import Messages, counted, talking
from anamorph.cli.terminal.places import check_checkpoint, path_beside, reserve
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings
from anamorph.cli.terminal.signals import INTERRUPTED
from anamorph.model.hyperparameters import checked_arguments

EXAMPLES = """[bold]Examples[/bold]
anamorph federation fit consortium/coordinator -o model.safetensors -k 16
anamorph federation fit consortium/coordinator -o brains.safetensors --preset brains2d --go-on"""

_SITES = "Sites"

CoordinatorKit = Annotated[
    Path,
    typer.Argument(metavar="KIT", show_default=False, help="Folder of the coordinator's kit."),
]
Patience = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS", rich_help_panel=_SITES, help="How long to wait for a site."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=1,
        metavar="SECONDS",
        rich_help_panel=_SITES,
        help="How long a site may take for an answer; by default as long as it is there.",
    ),
]


# The sites say what their images are, and where they compute.
@command_with_settings(
    but=("likelihood", "labels", "device", "memory_budget", "channel_axis", "levels")
)
def fit(
    kit: CoordinatorKit,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Model file to write.")
    ],
    settings: ModelSettings,
    checkpoint: options.Checkpoint = None,
    in_the_open: InTheOpen = False,
    patience: Patience = 600.0,
    timeout: Timeout = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on",
            metavar="",
            rich_help_panel=_SITES,
            help="Go on without sites that do not come back in time, and take them back later.",
        ),
    ] = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn a model from the images of all sites, which stay where they are.

    Starts the coordinator's server, waits for the sites and asks them for
    sums. A site that dies may come back. Ctrl-C stops it, and the same
    command resumes it.
    """
    require_nvflare()
    from anamorph.cli.terminal.messages import FitDisplay
    from anamorph.federation.nvflare.driver import Driver
    from anamorph.federation.nvflare.job import Watch
    from anamorph.federation.nvflare.kit import open_kit
    from anamorph.federation.nvflare.request import FitRequest
    from anamorph.fitting.run import Progress

    with talking("federation fit", quiet, as_json) as messages:
        opened = open_kit(kit, as_site=False)
        arguments = settings.merged()
        checked_arguments(arguments)  # before sites are asked what their images are
        reserve([output], [settings.config], force=force)
        checkpoint = checkpoint or path_beside(output, ".checkpoint")
        check_checkpoint(checkpoint, [output, settings.config])
        request = FitRequest(
            arguments, str(output.resolve()), str(checkpoint.resolve()), not in_the_open, timeout
        )
        try:
            with FitDisplay(messages) as display:
                watch = Watch(display.stage, lambda facts: display.advance(Progress(**facts)))
                result = Driver(opened, watch, patience).run(request, go_on)
        except KeyboardInterrupt as interrupt:
            tell_how_to_resume(checkpoint.resolve())
            raise typer.Exit(INTERRUPTED) from interrupt
        _tell(output, result, messages)
        checkpoint.unlink(missing_ok=True)


def _tell(output: Path, result: dict[str, Any], messages: Messages) -> None:
    from anamorph.fitting.run import duration

    messages.say(
        f"Fitted {result['n_images']} images of {', '.join(result['roster'])} in "
        f"{duration(result['seconds'])}, {counted(result['n_iterations'], 'iteration')}, "
        f"objective {result['objective']:.8g}"
    )
    for note in result["notes"]:
        messages.say(note)
    messages.wrote(output)
    messages.result(model=str(output), **result)
