"""Some of the images, as a worker has them: what it needs to answer, and what it keeps.

An answer follows from the question, the parameters and the latents of the step before, which are
in the shared folder. A worker that answered the step before still has its cohort, with warps and
proposed latents; any other makes the cohort again, and answers the same.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

import anamorph
from anamorph.arrays.devices import Machine, beside, find_gpu, to_host
from anamorph.cluster.broadcast import received
from anamorph.cluster.connection import ClusterError
from anamorph.cluster.storage import LatentFolder, PartitionLatents
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.placement import place_cohort
from anamorph.fitting.sums import Sums
from anamorph.images.errors import ImageError
from anamorph.images.facts import ImageFacts
from anamorph.images.files import FileImages
from anamorph.kernels.errors import DeviceError
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings


@dataclass(frozen=True)
class Partition:
    """What a worker needs to know of a part of the images.

    Attributes
    ----------
    number : int
    files : dict
        Arguments of `FileImages`.
    identities : tuple of str
    settings : Settings
    folder : LatentFolder
    machine : Machine
        What each task may use on the worker.
    has_start : bool
        Whether the latents before the first step are those to start from.
    version : str
        Of anamorph, where the fit runs.
    """

    number: int
    files: dict[str, Any]
    identities: tuple[str, ...]
    settings: Settings
    folder: LatentFolder
    machine: Machine
    has_start: bool
    version: str = anamorph.__version__


@dataclass(frozen=True)
class Asked:
    """A question, and the number of the step that it is.

    Attributes
    ----------
    step : int
    question : str
        One of `sums.FIELDS`.
    arguments : dict
        Of `Cohort.answer`; a move of the latents is one of them.
    """

    step: int
    question: str
    arguments: dict[str, Any]


@dataclass
class _Kept:
    """What a worker keeps of a partition: its images and, after a step, its cohort."""

    images: FileImages
    step: int
    cohort: Cohort | None = None


_kept: dict[tuple[str, int], _Kept] = {}
_keeping = threading.Lock()


# ---- tasks


@dataclass(frozen=True)
class Looked:
    """What a worker found out about the images of a partition.

    Attributes
    ----------
    digests : list of bytes
        One of each image.
    facts : list of ImageFacts
        Of each image; the process that fits compares those of all partitions.
    """

    digests: list[bytes]
    facts: list[ImageFacts]


def inspect(partition: Partition) -> Looked:
    """Look at every image of a partition by itself.

    Raises
    ------
    ImageError
        If the worker cannot read one, or no model can be fitted to it.
    ClusterError
        If the worker has another version, does not see the shared folder, or lacks the GPU that
        was asked for.
    """
    _check_worker(partition)
    if partition.machine.device == "cuda":
        try:
            find_gpu()
        except DeviceError as error:
            raise ClusterError(f"on worker {_name()}: {error}") from None
    try:
        images = FileImages(**partition.files)
        facts = images.find_facts(for_fit=True)
    except ImageError as error:
        raise ImageError(f"on worker {_name()}: {error}") from None
    _keep(partition, _Kept(images, step=0))
    digests = [
        hashlib.blake2b(images.read(slice(n, n + 1)).tobytes(), digest_size=16).digest()
        for n in range(len(images))
    ]
    return Looked(digests, facts)


def answer(
    partition: Partition,
    asked: Asked,
    published: dict[str, Any] | None,
    published_before: dict[str, Any] | None,
) -> Sums:
    """Answer a question about a partition, and write down the latents that it leaves.

    Parameters
    ----------
    partition : Partition
    asked : Asked
    published : dict, optional
        Parameters that the question is about, for `received`.
    published_before : dict, optional
        Those that warps were shot with, where they differ by an orthogonalisation.
    """
    _check_worker(partition)
    with partition.machine.threads():
        images, cohort = _take(partition, asked, received(published), received(published_before))
        sums = cohort.answer(asked.question, **asked.arguments)
    latents, before_turn = to_host(cohort.latents), to_host(cohort.latents_before_turn)
    left = PartitionLatents(latents, before_turn, cohort.poses)
    partition.folder.write(partition.number, asked.step, left)
    _keep(partition, _Kept(images, asked.step, cohort))
    return sums.in_memory()


def forget(folder: LatentFolder) -> None:
    """Drop what a worker keeps of a fit."""
    with _keeping:
        for key in [key for key in _kept if key[0] == folder.path]:
            del _kept[key]


# ---- cohorts


def _take(
    partition: Partition, asked: Asked, parameters: Parameters | None, before: Parameters | None
) -> tuple[FileImages, Cohort]:
    """Return the images, and a cohort as the step before left it: the same one, or a new one.

    What was kept is taken, so that nobody finds what a task that fails leaves half done.
    """
    with _keeping:
        kept = _kept.pop((partition.folder.path, partition.number), None)
    if kept is None:
        kept = _Kept(FileImages(**partition.files), step=-1)
    cohort = kept.cohort if kept.step == asked.step - 1 else None
    is_lost = cohort is None
    if cohort is None:
        latents = partition.folder.read(partition.number, asked.step - 1)
        cohort = _rebuilt(partition, kept.images, latents, before)
    if parameters is not None:
        cohort.publish(parameters.beside(cohort.namespace))
    if is_lost and asked.question == "update_latents":
        cohort.propose_latents()  # which the lost cohort had done in the step before
    return kept.images, cohort


def _rebuilt(
    partition: Partition, images: FileImages, latents: PartitionLatents, before: Parameters | None
) -> Cohort:
    """Return a cohort with given latents and, where the next question needs them, their warps.

    Warps are shot again from the bases and latents that they were first shot from. From those that
    were turned since, they would be the same but for rounding, which iterations amplify.
    """
    cohort = place_cohort(
        partition.machine,
        images,
        partition.settings,
        partition.identities,
        latents.latents if partition.has_start else None,
    )
    cohort.restore(latents.before_turn, latents.poses)
    if before is not None:
        cohort.publish(before.beside(cohort.namespace))
        cohort.keep_displacements()
    cohort.latents = beside(cohort.latents, latents.latents)
    return cohort


def _keep(partition: Partition, kept: _Kept) -> None:
    with _keeping:
        _kept[partition.folder.path, partition.number] = kept


# ---- workers


def _check_worker(partition: Partition) -> None:
    if partition.version != anamorph.__version__:
        raise ClusterError(
            f"worker {_name()} has anamorph {anamorph.__version__}, and the fit was started with "
            f"{partition.version}: install the same version on both"
        )
    if not partition.folder.exists():
        raise ClusterError(
            f"worker {_name()} does not see {partition.folder.path}, where latents are kept: give "
            "a folder that all machines share (--scratch)"
        )


def _name() -> str:
    return str(get_worker().address)
