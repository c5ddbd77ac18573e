"""The command ``anamorph``: one file per command in `commands`, what they share in `terminal`.

A command imports the numerical core when it runs, which keeps ``--help`` quick.
"""

from anamorph.cli.terminal.signals import interrupts_in_one_line

with interrupts_in_one_line():
    from anamorph.cli.app import app, main

__all__ = ["app", "main"]
