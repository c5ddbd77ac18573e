"""The command ``anamorph``. Each command has its file; `app` puts them together.

Nothing here imports the numerical core before a command needs it, so that ``--help`` is quick.
"""

from anamorph.cli.app import app, main

__all__ = ["app", "main"]
