"""A fit across three sites, each in a process of its own: time, bytes, and memory.

python -m benchmarks.federation digits    three sites of 100 digits against one fit to all 300
python -m benchmarks.federation masks     how fast sums are masked
python -m benchmarks.federation blocks    1.2 GB of parameters out, 2.3 GB of sums back, memory
python -m benchmarks.federation digits-over-kits    the first over NVFLARE, with kits
python -m benchmarks.federation blocks-over-kits    the third over NVFLARE: half an hour

Messages of the first three go through pipes as the bytes that an engine would carry; networks and
their encryption come on top.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.federation.coordinator.fit import Terms, federated_fit
from anamorph.federation.coordinator.sites import FederatedSites
from anamorph.federation.masking.fixed_point import to_fixed_point
from anamorph.federation.masking.pairwise import PairwiseMasks
from anamorph.federation.protocol.identity import Identity, new_identities
from anamorph.federation.protocol.questions import parameter_shapes
from anamorph.federation.protocol.transport import Replies
from anamorph.federation.protocol.wire import Message, pack, unpack
from anamorph.federation.simulate import split_images
from anamorph.federation.site.agent import SiteAgent
from anamorph.federation.site.policy import Policy
from anamorph.images.arrays import ArrayImages
from anamorph.images.collection import open_images
from anamorph.kernels.threads import one_blas_thread
from anamorph.model.parameters import Parameters
from anamorph.model.settings import checked_settings
from benchmarks.model import DIGITS

NAMES = ("site1", "site2", "site3")
SPACE = (91, 109, 91)  # 2 mm
MODES = 70
N_VOLUMES = 10


# ---- sites in processes


class PipeTransport:
    """Sites at the other ends of pipes; counts the bytes that come back."""

    def __init__(self, pipes: Mapping[str, Connection]) -> None:
        self._pipes = pipes
        self.n_bytes_out = self.n_bytes_back = self.largest = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All sites."""
        return tuple(self._pipes)

    def call(self, messages: Mapping[str, Message], timeout: float | None) -> Replies:
        """Send all messages, then wait for all answers."""
        for name, message in messages.items():
            data = pack(message)
            self.n_bytes_out += len(data)
            self._pipes[name].send_bytes(data)
        replies = Replies()
        for name in messages:
            data = self._pipes[name].recv_bytes()
            self.n_bytes_back += len(data)
            self.largest = max(self.largest, len(data))
            replies.answers[name] = unpack(data)
        return replies

    def peaks(self) -> list[float]:
        """Return the peak memory of each site, in GiB."""
        for pipe in self._pipes.values():
            pipe.send_bytes(b"")
        return [float(pipe.recv_bytes()) for pipe in self._pipes.values()]


def serve(
    pipe: Connection, number: int, folder: str, keys: tuple[bytes, dict[str, bytes]], task: str
) -> None:
    """Be a site until told to stop: images are made here, and stay here."""
    images, identities = IMAGES[task](number)
    private, known = keys
    agent = SiteAgent(
        NAMES[number],
        images,
        Policy(),
        Path(folder) / NAMES[number],
        _identity(NAMES[number], private, known),
        identities=identities,
        n_threads=1,
        memory_budget=2**30,
    )
    while data := pipe.recv_bytes():
        pipe.send_bytes(pack(agent.handle(unpack(data))))
    pipe.send_bytes(str(peak_memory()).encode())


@contextmanager
def sites(task: str) -> Iterator[PipeTransport]:
    """Start three sites, and stop them at the end."""
    context = multiprocessing.get_context("spawn")
    keys = _keys()
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = {}, []
        for number, name in enumerate(NAMES):
            pipes[name], other = context.Pipe()
            arguments = (other, number, folder, keys[name], task)
            processes.append(context.Process(target=serve, args=arguments, daemon=True))
            processes[-1].start()
        yield PipeTransport(pipes)
        for process in processes:
            process.terminate()
            process.join()


def _keys() -> dict[str, tuple[bytes, dict[str, bytes]]]:
    """Return what each site needs to sign and to check, as bytes."""
    identities = {one.name: one for one in new_identities(NAMES)}
    known = {
        name: key.public_bytes_raw()  # type: ignore[union-attr]
        for name, key in identities[NAMES[0]]._known.items()
    }
    return {
        name: (one._private_key.private_bytes_raw(), known)  # type: ignore[union-attr]
        for name, one in identities.items()
    }


def _identity(name: str, private: bytes, known: dict[str, bytes]) -> Identity:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    public = {site: ed25519.Ed25519PublicKey.from_public_bytes(key) for site, key in known.items()}
    return Identity(name, ed25519.Ed25519PrivateKey.from_private_bytes(private), public)


def peak_memory() -> float:
    """Return the peak memory of this process, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# ---- digits


def digits_of(number: int) -> tuple[ArrayImages, Sequence[int]]:
    part = split_images(300, 3)[number]
    return ArrayImages(digits()[0][list(part)], "bernoulli"), part


def time_of_digits(n_iter: int = 20) -> None:
    """Fit 300 digits at once, and across three sites."""
    options: dict[str, Any] = {"n_components": 16, "n_iter": n_iter, **DIGITS}
    images = digits()[0][:300]
    ShapeAppearanceModel(**options | {"n_iter": 1}).fit(images)
    started = time.perf_counter()
    pooled = ShapeAppearanceModel(**options).fit(images)
    pooled_seconds = time.perf_counter() - started
    with sites("digits") as transport:
        shared = ShapeAppearanceModel(**options)
        transport.call({name: {"do": "describe"} for name in NAMES}, None)  # all have started
        started = time.perf_counter()
        result = federated_fit(shared, transport, NAMES, Terms())
        shared_seconds = time.perf_counter() - started
    difference = np.abs(np.array(shared.objective_) / np.array(pooled.objective_) - 1).max()
    limit = 3 * pooled_seconds + 3 * n_iter
    print(f"Three sites of 100 digits, K = 16, {n_iter} iterations, masked sums")
    print(f"  pooled {pooled_seconds:.1f} s, across sites {shared_seconds:.1f} s ({limit:.0f} s)")
    print(f"  {(result.n_questions - 4) / n_iter:.2f} questions per iteration (6), ", end="")
    print(f"{result.n_calls} calls for {result.n_questions} questions")
    print(f"  {transport.n_bytes_out / 1e6:.0f} MB to the sites, ", end="")
    print(f"{transport.n_bytes_back / 1e6:.0f} MB back")
    print(f"  objective differs by {difference:.1e} (1e-4)")


# ---- masks


def speed_of_masks() -> None:
    """Mask a block for a roster of three sites."""
    values = np.random.default_rng(0).normal(size=8 * 10**6).astype(np.float32)
    masks = {one.name: PairwiseMasks(one, "fit", 1, 0) for one in new_identities(NAMES)}
    offers = {name: own.offer() for name, own in masks.items()}
    masks[NAMES[0]].agree(NAMES, offers, "question")
    seconds = []
    for block in range(5):
        started = time.perf_counter()
        masks[NAMES[0]].mask(to_fixed_point(values, 10, 3, "values"), block)
        seconds.append(time.perf_counter() - started)
    speed = values.nbytes / min(seconds) / 1e6
    print(f"Masking for three sites: {speed:.0f} MB/s of float32 (35), {2 * speed:.0f} MB/s sent")


# ---- blocks


def volumes_of(number: int) -> tuple[Any, Sequence[int]]:
    """Return volumes of two channels that are made when they are read."""
    first = N_VOLUMES * number
    return Volumes(first), range(first, first + N_VOLUMES)


class Volumes:
    """Volumes at 2 mm with two channels, made of smooth noise when they are read."""

    def __init__(self, first: int) -> None:
        self.identities = range(first, first + N_VOLUMES)
        shape = (1, *SPACE, 2)
        self.format = open_images(np.zeros(shape, np.float32), "gaussian", -1).format
        self.voxel_size, self.affine, self.pad, self.suffix = (2.0, 2.0, 2.0), None, 0, None

    def __len__(self) -> int:
        return N_VOLUMES

    def read(self, part: slice) -> np.ndarray:
        """Return volumes (n, 2, *space)."""
        x = np.linspace(0, np.pi, SPACE[0], dtype=np.float32)[:, None, None]
        y = np.linspace(0, np.pi, SPACE[1], dtype=np.float32)[:, None]
        z = np.linspace(0, np.pi, SPACE[2], dtype=np.float32)
        volumes = np.empty((part.stop - part.start, 2, *SPACE), np.float32)
        for volume, identity in zip(volumes, self.identities[part], strict=True):
            volume[0] = np.sin(x * (1 + identity % 5)) * np.sin(y) * np.sin(z)
            volume[1] = np.sin(x) * np.sin(y * (1 + identity % 7)) * np.sin(z)
        return volumes


def memory_of_blocks() -> None:
    """Publish 70 modes at 2 mm, and ask for their shape derivatives."""
    arguments = ShapeAppearanceModel(MODES).get_params()
    settings = checked_settings(arguments, Volumes(0).format, 1000, (2.0, 2.0, 2.0))
    parameters = _parameters(parameter_shapes(settings))
    size = sum(vars(parameters)[name].nbytes for name in parameter_shapes(settings))
    with sites("blocks") as transport:
        several = FederatedSites(transport, settings, "blocks", 1)
        several.join(NAMES)
        several.restore(0)
        several.ask("start_latents", seed=0)
        several.publish(parameters)
        started = time.perf_counter()
        with one_blas_thread:
            sums = several.ask("shape_derivatives")
        seconds = time.perf_counter() - started
        peaks = transport.peaks()
    answer = sum(4 * field.size for field in sums.fields.values())
    print(f"{size / 1e9:.2f} GB of parameters out, {answer / 1e9:.2f} GB of sums back, masked")
    print(f"  {seconds:.0f} s, {transport.n_bytes_out / 1e9:.1f} GB out to three sites, ", end="")
    print(f"{transport.n_bytes_back / 1e9:.1f} GB back in answers of at most ", end="")
    print(f"{transport.largest / 1e6:.0f} MB")
    print(f"  peak memory: coordinator {peak_memory():.2f} GiB, sites ", end="")
    print(", ".join(f"{peak:.2f}" for peak in peaks) + " GiB (3)")


def _parameters(shapes: Mapping[str, tuple[int, ...]]) -> Parameters:
    arrays: dict[str, Any] = {
        name: np.full(shape, 1e-3, np.float32) for name, shape in shapes.items()
    }
    arrays |= {
        "basis_energy": np.eye(MODES),
        "latent_precision": np.eye(MODES),
        "noise_precision": np.ones(2),
    }
    return Parameters(**arrays)


# ---- kits


def time_over_kits() -> None:
    """Fit 300 digits with kits."""
    from benchmarks import kits

    kits.time_over_kits()


def memory_over_kits() -> None:
    """Fit 70 modes at 2 mm with kits, in all processes that hospitals would have."""
    from benchmarks import kits

    kits.memory_over_kits(SPACE, MODES)


IMAGES: dict[str, Callable[[int], tuple[Any, Sequence[int]]]] = {
    "digits": digits_of,
    "blocks": volumes_of,
}
TASKS = {
    "digits": time_of_digits,
    "masks": speed_of_masks,
    "blocks": memory_of_blocks,
    "digits-over-kits": time_over_kits,
    "blocks-over-kits": memory_over_kits,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or TASKS:
        TASKS[name]()
