"""ClusterSites: images in partitions, each asked of a worker of a Dask cluster."""

from __future__ import annotations

import hashlib
import os
from operator import add
from types import ModuleType
from typing import Any

import numpy as np
from distributed import Client

from anamorph.arrays.devices import Machine
from anamorph.arrays.typing import Float32Array, Float64Array
from anamorph.cluster.broadcast import Broadcast
from anamorph.cluster.connection import check_versions
from anamorph.cluster.crew import Crew, LostError
from anamorph.cluster.partition import Asked, Looked, Partition, answer, forget, inspect
from anamorph.cluster.storage import LatentFolder, PartitionLatents
from anamorph.fitting.sums import FIELDS, POSING, Move, Sums
from anamorph.images.collection import ImageCollection
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from anamorph.kernels.threads import slabs
from anamorph.model.checks import check_integer
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings

# After these questions workers have warps that stay valid through an orthogonalisation.
_SHOOT_BEFORE_TURN = ("mean_derivatives", "keep_displacements")


class ClusterSites:
    """The images of a fit, in partitions on the workers of a cluster (an `OwnSites`).

    Used in a ``with`` block, at the end of which the folder is removed, unless it holds something
    else.

    Parameters
    ----------
    client : distributed.Client
    images : FileImages
        Opened here; workers open them again, under the same paths. No others will do.
    settings : Settings
    start : (N, K), optional
        Latents to start from.
    folder : path
        Made if need be, and seen under the same path by all workers. Latents are kept in it.
    n_partitions : int, optional
        By default as many as the workers have threads.
    memory_budget : int, optional
        Bytes for the batches of each task.
    n_threads : int, optional
        Of each task; by default 1, since a worker does as many tasks at once as it has threads.
    device : {"cpu", "cuda", "auto"}
        Of the worker, to do a task on.
    patience : float
        Seconds to wait for a worker when there is none.
    """

    def __init__(
        self,
        client: Client,
        images: ImageCollection,
        settings: Settings,
        start: Float64Array | None = None,
        *,
        folder: str | os.PathLike[str],
        n_partitions: int | None = None,
        memory_budget: int | None = None,
        n_threads: int | None = None,
        device: str = "cpu",
        patience: float = 60.0,
    ) -> None:
        if not isinstance(images, FileImages):
            raise ImageError(
                "workers of a cluster read images from files, got images in memory: save them, "
                "one .npy file each, and give the list of files"
            )
        if n_partitions is not None:
            check_integer("n_partitions", n_partitions, 1)
        self._crew, self._broadcast = Crew(client, patience), Broadcast(client)
        self._start, self._n_coordinates = start, settings.frame.n_coordinates
        n_threads_in_all = sum(self._crew.threads().values())
        check_versions(client)
        self._bounds = slabs(len(images), n_partitions or n_threads_in_all)
        self._folder = LatentFolder.made_in(folder)
        self._partitions = [
            Partition(
                number,
                images.arguments(range(first, last)),
                tuple(images.identities[first:last]),
                settings,
                self._folder,
                Machine(device, n_threads or 1, memory_budget),
                has_start=start is not None,
            )
            for number, (first, last) in enumerate(self._bounds)
        ]
        self._step = -1
        self._parameters: Parameters | None = None
        self._shot_with: Parameters | None = None
        try:
            zeros = np.zeros((len(images), settings.layout.n_latents))
            self.restore(zeros if start is None else start)
            self._digest = self._inspect(images)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ClusterSites:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder of the fit, and have workers drop what they keep of it."""
        self._crew.tell(forget, self._folder)
        self._folder.remove()

    # ---- questions

    def publish(self, parameters: Parameters) -> None:
        """Take note of the parameters that the next questions are about."""
        self._parameters = parameters

    def ask(self, question: str, move: Move | None = None, **arguments: Any) -> Sums:
        """Return the sum of all partitions' answers to a question of `sums`."""
        if question not in FIELDS | POSING:
            known = ", ".join(FIELDS | POSING)
            raise ValueError(f"question must be one of {known}, got {question!r}")
        asked = Asked(self._step + 1, question, {"move": move, **arguments})
        sums = self._crew.insist(
            lambda attempt: self._total(asked, attempt), self._broadcast.forget
        )
        self._step = asked.step
        if question in _SHOOT_BEFORE_TURN:
            self._shot_with = self._parameters
        elif question != "shape_derivatives":
            self._shot_with = None
        return sums

    # ---- latents

    @property
    def namespace(self) -> ModuleType:
        """The module of the arrays in answers: they reach the client in its memory."""
        return np

    @property
    def latents(self) -> Float64Array:
        """Latents of all images, (N, K)."""
        return np.concatenate([some.latents for some in self._stored()])

    @property
    def latents_before_turn(self) -> Float64Array:
        """Latents of all images before the last orthogonalisation, (N, K)."""
        return np.concatenate([some.before_turn for some in self._stored()])

    @property
    def poses(self) -> Float64Array:
        """Poses of all images, (N, P)."""
        return np.concatenate([some.poses for some in self._stored()])

    @property
    def residuals(self) -> None:
        """None: a cluster learns no residual warps."""
        return None

    def restore(
        self,
        latents: Float64Array,
        poses: Float64Array | None = None,
        residuals: Float32Array | None = None,
    ) -> None:
        """Take latents (N, K), and poses (N, P) if there are any, from a checkpoint."""
        if poses is None:
            poses = np.zeros((len(latents), self._n_coordinates))
        for number, (first, last) in enumerate(self._bounds):
            some = latents[first:last]
            left = PartitionLatents(some, some, poses[first:last])
            self._folder.write(number, self._step + 1, left)
        self._step += 1

    def digest(self) -> str:
        """Return a short text that stands for the images, in their order, and the given start.

        It does not depend on how they are split.
        """
        return self._digest

    # ---- pieces

    def _stored(self) -> list[PartitionLatents]:
        return [self._folder.read(number, self._step) for number in range(len(self._bounds))]

    def _inspect(self, images: FileImages) -> str:
        """Have workers look at all images, compare what they found, and return a digest."""

        def look(attempt: int) -> list[Looked]:
            arguments = [(some,) for some in self._partitions]
            tasks = self._crew.submit(self._name("inspect", attempt), inspect, arguments)
            return [self._crew.result(task) for task in tasks]

        looked = self._crew.insist(look, self._broadcast.forget)
        images.compare([fact for some in looked for fact in some.facts], for_fit=True)
        digest = hashlib.blake2b(digest_size=16)
        for some in looked:
            digest.update(b"".join(some.digests))
        if self._start is not None:
            digest.update(self._start.tobytes())
        return digest.hexdigest()

    def _total(self, asked: Asked, attempt: int) -> Sums:
        """Ask all partitions, and have their answers added."""
        shot_with = self._shot_with if asked.question == "shape_derivatives" else None
        self._crew.threads()  # parameters are sent to workers that are there
        try:
            published, before = self._broadcast.send(self._parameters, shot_with)
        except OSError as error:
            raise LostError from error
        name = self._name(asked.question, asked.step, attempt)
        arguments = [(some, asked, published, before) for some in self._partitions]
        answers = self._crew.submit(name, answer, arguments)
        sums: Sums = self._crew.result(self._crew.combine(add, answers))
        return sums

    def _name(self, task: str, *numbers: int) -> str:
        """Return a name for tasks that no other fit on the cluster uses."""
        return "-".join([task, os.path.basename(self._folder.path), *map(str, numbers)])
