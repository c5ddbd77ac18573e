"""The explorer: one page in which people move latents and see images, without a server."""

from anamorph.explorer.packing import ExplorerError
from anamorph.explorer.write import write_explorer

__all__ = ["ExplorerError", "write_explorer"]
