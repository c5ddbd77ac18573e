"""Files that are written completely or not at all: models, checkpoints, tables and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamorph.exports import lazy_exports

if TYPE_CHECKING:
    from anamorph.storage.errors import ModelFileError as ModelFileError
    from anamorph.storage.errors import WriteError as WriteError
    from anamorph.storage.meshes import Mesh as Mesh
    from anamorph.storage.meshes import read_mesh as read_mesh
    from anamorph.storage.meshes import write_mesh as write_mesh
    from anamorph.storage.modelfile import Origin as Origin
    from anamorph.storage.outputs import write_nifti as write_nifti
    from anamorph.storage.tables import read_latents as read_latents
    from anamorph.storage.tables import write_latents as write_latents
    from anamorph.storage.warps import write_warp as write_warp

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "errors": ["ModelFileError", "WriteError"],
        "meshes": ["Mesh", "read_mesh", "write_mesh"],
        "modelfile": ["Origin"],
        "outputs": ["write_nifti"],
        "tables": ["read_latents", "write_latents"],
        "warps": ["write_warp"],
    },
)
