"""The command line: all commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from anamorph import __version__
from anamorph.cli.commands import (
    arithmetic,
    check,
    cluster,
    compare,
    demo,
    encode,
    explore,
    fit,
    info,
    jacobians,
    modes,
    reconstruct,
    report,
    sample,
    surface,
    verify,
    warp,
    warps,
)
from anamorph.cli.commands.federation import federation
from anamorph.cli.commands.site import site
from anamorph.cli.terminal.errors import OneLineErrors
from anamorph.cli.terminal.signals import handle_signals, interrupts_in_one_line

app = typer.Typer(
    name="anamorph",
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_LEARN, _USE, _LOOK = "Learn a model", "Use it on images", "Look at it"
_TOGETHER = "Learn together"
app.command(epilog=demo.EXAMPLES, rich_help_panel=_LEARN)(demo.demo)
app.command(epilog=check.EXAMPLES, rich_help_panel=_LEARN)(check.check)
app.command(epilog=fit.EXAMPLES, rich_help_panel=_LEARN)(fit.fit)
app.command(epilog=compare.EXAMPLES, rich_help_panel=_LEARN)(compare.compare)
app.add_typer(cluster.app, name="cluster", rich_help_panel=_LEARN)
app.command(epilog=encode.EXAMPLES, rich_help_panel=_USE)(encode.encode)
app.command(epilog=reconstruct.RECONSTRUCT_EXAMPLES, rich_help_panel=_USE)(reconstruct.reconstruct)
app.command(epilog=reconstruct.IMPUTE_EXAMPLES, rich_help_panel=_USE)(reconstruct.impute)
app.command(epilog=arithmetic.EXAMPLES, rich_help_panel=_USE)(arithmetic.arithmetic)
app.command(epilog=warp.EXAMPLES, rich_help_panel=_USE)(warp.warp)
app.command(epilog=jacobians.EXAMPLES, rich_help_panel=_USE)(jacobians.jacobians)
app.command(epilog=warps.EXAMPLES, rich_help_panel=_USE)(warps.warps)
app.command(epilog=surface.EXAMPLES, rich_help_panel=_USE)(surface.surface)
app.command(epilog=info.EXAMPLES, rich_help_panel=_LOOK)(info.info)
app.command(epilog=modes.EXAMPLES, rich_help_panel=_LOOK)(modes.modes)
app.command(epilog=sample.EXAMPLES, rich_help_panel=_LOOK)(sample.sample)
app.command(epilog=report.EXAMPLES, rich_help_panel=_LOOK)(report.report)
app.command(epilog=explore.EXAMPLES, rich_help_panel=_LOOK)(explore.explore)
app.command(epilog=verify.EXAMPLES, rich_help_panel=_LOOK)(verify.verify)
app.add_typer(federation, rich_help_panel=_TOGETHER)
app.add_typer(site, rich_help_panel=_TOGETHER)


def _print_version(is_asked_for: bool) -> None:
    if is_asked_for:
        print(f"anamorph {__version__}")
        raise typer.Exit


@app.callback()
def anamorph(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            metavar="",
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Learn shape and appearance models from images, without annotation.

    Begin with 'anamorph demo', or with 'anamorph fit' and a folder of images.
    Every command explains itself: 'anamorph fit --help'.
    """


def main() -> None:
    """Run the command line. SIGTERM is handled like Ctrl-C."""
    with interrupts_in_one_line():
        handle_signals()
        app()
