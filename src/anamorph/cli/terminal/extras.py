"""Packages that only some commands need."""

from __future__ import annotations

from importlib.util import find_spec

from anamorph.cli.terminal.errors import CommandError


def needs_nvflare() -> None:
    """Raise a CommandError where NVFLARE is not installed."""
    if find_spec("nvflare") is None:
        raise CommandError(
            "this command needs NVFLARE: install it with pip install 'anamorph[federation]'"
        )
