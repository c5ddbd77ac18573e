"""Errors for people: one line on standard error, and an exit code. Bugs still raise."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from anamorph.federation.protocol.errors import FederationError
from anamorph.images.errors import ImageError, TableError
from anamorph.kernels.errors import DeviceError
from anamorph.model.checks import ArgumentError
from anamorph.model.hyperparameters import FLAGS
from anamorph.storage.errors import ModelFileError

BAD_INPUT = 1
INTERRUPTED = 130

# An argument of Python where a message names it as such: "n_iter must be", "likelihood='gaussian'".
_ARGUMENT = re.compile(rf"(?<![\w-])({'|'.join(FLAGS)})(?==| must )")


class CommandError(Exception):
    """Something that whoever typed the command can put right."""


class OneLineErrors(TyperGroup):
    """The group of all commands, which ends them with one line where input is to blame."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (
            ArgumentError,
            CommandError,
            DeviceError,
            FederationError,
            ImageError,
            ModelFileError,
            TableError,
            OSError,
        ) as error:
            if isinstance(error, BrokenPipeError):  # who read the output has seen enough
                raise
            tell_error(_explained(error))
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as interrupt:
            tell_error("interrupted; files that were finished are kept")
            raise typer.Exit(INTERRUPTED) from interrupt


def tell_error(text: str) -> None:
    """Write one line to standard error."""
    print(f"error: {' '.join(text.split())}", file=sys.stderr)


def _explained(error: Exception) -> str:
    """Return what an exception says, with flags of the command in place of Python's arguments."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return _ARGUMENT.sub(lambda found: FLAGS[found.group(1)], str(error))
