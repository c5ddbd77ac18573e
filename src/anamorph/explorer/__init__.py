"""The explorer: one page in which people move latents and see images, without a server."""

from anamorph.explorer.notebook import Explorer, explore
from anamorph.explorer.packing import ExplorerError
from anamorph.explorer.write import write_explorer

__all__ = ["Explorer", "ExplorerError", "explore", "write_explorer"]
