"""Latents of a site on its own disk, by step: each file is complete, and kept while needed."""

from __future__ import annotations

import re
from pathlib import Path

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.errors import StorageError
from anamorph.storage.tensors import read_tensors, write_tensors

_VERSION = 1
_NAME = re.compile(r"latents-(\d{9})\.safetensors")


class LatentStore:
    """Latents (N, K) after each step that changed them.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(".latents-*"):  # of a process that was killed
            unfinished.unlink(missing_ok=True)

    def save(self, step: int, latents: Float64Array) -> None:
        """Write the latents after a step."""
        try:
            write_tensors(self._path(step), "site latents", _VERSION, {"latents": latents}, {})
        except OSError as error:
            raise StorageError(
                "latents cannot be written to the disk of this site "
                f"({error.strerror or 'no space'}): make space"
            ) from None

    def load(self, step: int, n_images: int) -> Float64Array | None:
        """Return the latents after a step, None if there are none or for other images."""
        kept = [number for number in self.steps() if number <= step]
        if not kept:
            return None
        arrays, _ = read_tensors(self._path(kept[-1]), "site latents", _VERSION)
        latents = arrays["latents"]
        return latents if len(latents) == n_images else None

    def drop(self, *, before: int, after: int | None = None) -> None:
        """Remove latents that no step from `before` on needs, and those after the step `after`."""
        steps = self.steps()
        needed = max((step for step in steps if step <= before), default=before)
        for step in steps:
            if step < needed or (after is not None and step > after):
                self._path(step).unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Return the steps whose latents are stored, in order."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def _path(self, step: int) -> Path:
        return self.folder / f"latents-{step:09d}.safetensors"
