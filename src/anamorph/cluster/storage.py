"""Latents of partitions in a shared folder, under the number of the step that led to them.

The step after number s reads what s left, and writes under a name of its own: however often it is
done, and by whom, it begins from the same latents. A step counts once all partitions have done it;
what was before it is removed by the step after.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anamorph.arrays.typing import Float64Array
from anamorph.images.errors import short_reason
from anamorph.storage.errors import WriteError
from anamorph.storage.tensors import read_tensors, write_tensors

_KIND, _VERSION = "latents", 2
_NAME = re.compile(r"anamorph-fit-[0-9a-f]{16}")


@dataclass(frozen=True)
class PartitionLatents:
    """Latents of the images of a partition.

    Attributes
    ----------
    latents : (n, K)
        As they are after a step.
    before_turn : (n, K)
        As in `Cohort`: before the last orthogonalisation, if latents have not changed since, and
        the same otherwise.
    poses : (n, P)
        P is 0 where images have none.
    """

    latents: Float64Array
    before_turn: Float64Array
    poses: Float64Array


@dataclass(frozen=True)
class LatentFolder:
    """The folder of a fit, which the client and all workers see.

    Attributes
    ----------
    path : str
        Absolute.
    """

    path: str

    @classmethod
    def made_in(cls, parent: str | os.PathLike[str]) -> LatentFolder:
        """Make a folder that no task of any other fit knows."""
        folder = Path(parent).absolute() / f"anamorph-fit-{secrets.token_hex(8)}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise WriteError(f"{parent} cannot hold latents: {short_reason(error)}") from None
        return cls(str(folder))

    def remove(self) -> None:
        """Remove the folder, and the one that it is in if nothing else is."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.rmdir(os.path.dirname(self.path))

    def exists(self) -> bool:
        """Tell whether the folder is seen from here."""
        return os.path.isdir(self.path)

    def read(self, partition: int, step: int) -> PartitionLatents:
        """Return what a step left of a partition."""
        arrays, _ = read_tensors(self._file(partition, step), _KIND, _VERSION)
        return PartitionLatents(arrays["latents"], arrays["before_turn"], arrays["poses"])

    def write(self, partition: int, step: int, latents: PartitionLatents) -> None:
        """Write what a step leaves of a partition, and remove what was two steps before it."""
        arrays = vars(latents)
        write_tensors(self._file(partition, step), _KIND, _VERSION, arrays, {"step": step})
        self._file(partition, step - 2).unlink(missing_ok=True)

    def _file(self, partition: int, step: int) -> Path:
        return Path(self.path) / f"partition-{partition:05d}-step-{step:06d}.safetensors"


def remove_abandoned(parent: str | os.PathLike[str]) -> None:
    """Remove what fits that were killed have left in a folder of which no other fit makes use."""
    for folder in Path(parent).glob("anamorph-fit-*"):
        if _NAME.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
