"""Errors of a command: one line on standard error and an exit code. Bugs show a traceback."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from anamorph.cli.terminal.messages import tell
from anamorph.cli.terminal.signals import INTERRUPTED
from anamorph.federation.protocol.errors import FederationError
from anamorph.fitting.errors import FitError
from anamorph.images.errors import ImageError, TableError, short_reason
from anamorph.kernels.errors import DeviceError
from anamorph.model.checks import ArgumentError
from anamorph.model.hyperparameters import FLAGS
from anamorph.storage.errors import ModelFileError

BAD_INPUT = 1

# What to do in Python, followed by the same for the command line: "resample=True (--resample)".
_BOTH = re.compile(r"\w+=\S+ \((--[^)]+)\)")
# An argument of Python where a message names it as such: "n_iter must be", "likelihood='gaussian'".
_ARGUMENT = re.compile(rf"(?<![\w-])({'|'.join(FLAGS)})(?==| must )")


class CommandError(Exception):
    """An error that the user of the command can correct."""


def require_nvflare() -> None:
    """Raise a CommandError unless NVFLARE, which only some commands need, is installed."""
    if find_spec("nvflare") is None:
        raise CommandError(
            "this command needs NVFLARE: install it with pip install 'anamorph[federation]'"
        )


class OneLineErrors(TyperGroup):
    """The group of all commands, which turns errors of input into one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (
            ArgumentError,
            CommandError,
            DeviceError,
            FederationError,
            FitError,
            ImageError,
            ModelFileError,
            TableError,
            MemoryError,
            OSError,
        ) as error:
            if isinstance(error, BrokenPipeError):  # the reader of the output has closed it
                raise
            tell_error(_explained(error))
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as interrupt:
            tell_error("interrupted; files that were finished are kept")
            raise typer.Exit(INTERRUPTED) from interrupt


def tell_error(text: str) -> None:
    """Write one line to standard error."""
    tell(f"error: {' '.join(text.split())}")


def _explained(error: Exception) -> str:
    """Return the text of an exception, with flags in place of the names of Python arguments."""
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory: use coarser images, fewer components, a smaller --memory, "
            f"or another machine ({short_reason(error)})"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return in_flags(str(error))


def in_flags(text: str) -> str:
    """Return a message with flags in place of arguments of Python."""
    return _ARGUMENT.sub(lambda found: FLAGS[found.group(1)], _BOTH.sub(r"\1", text))
