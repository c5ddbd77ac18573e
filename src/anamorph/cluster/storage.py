"""Latents of partitions in a shared folder, under the number of the step that led to them.

The step after number s reads what s left, and writes under a name of its own: however often it is
done, and by whom, it begins from the same latents. A step counts once all partitions have done it;
what was before it is removed by the step after.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anamorph.io.tensors import read_tensors, write_tensors

Float64Array = NDArray[np.float64]

_KIND, _VERSION = "latents", 1


@dataclass(frozen=True)
class PartitionLatents:
    """Latents of the images of a partition.

    Attributes
    ----------
    latents : (n, K)
        As they are after a step.
    before_turn : (n, K)
        As they were when warps were last shot: before the last orthogonalisation, if it was the
        last thing to happen to them, and the same otherwise.
    """

    latents: Float64Array
    before_turn: Float64Array


@dataclass(frozen=True)
class LatentFolder:
    """The folder of a fit, which the client and all workers see.

    Attributes
    ----------
    path : str
        Absolute.
    """

    path: str

    def exists(self) -> bool:
        """Tell whether the folder is seen from here."""
        return os.path.isdir(self.path)

    def read(self, partition: int, step: int) -> PartitionLatents:
        """Return what a step left of a partition."""
        arrays, _ = read_tensors(self._file(partition, step), _KIND, _VERSION)
        return PartitionLatents(arrays["latents"], arrays["before_turn"])

    def write(self, partition: int, step: int, latents: PartitionLatents) -> None:
        """Write what a step leaves of a partition, and remove what was two steps before it."""
        arrays = {"latents": latents.latents, "before_turn": latents.before_turn}
        write_tensors(self._file(partition, step), _KIND, _VERSION, arrays, {"step": step})
        self._file(partition, step - 2).unlink(missing_ok=True)

    def _file(self, partition: int, step: int) -> Path:
        return Path(self.path) / f"partition-{partition:05d}-step-{step:06d}.safetensors"
