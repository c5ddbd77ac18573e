"""``python -m anamorph`` is the command ``anamorph``."""

from anamorph.cli import main

main()
