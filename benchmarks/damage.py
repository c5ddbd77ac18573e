"""Damages of a file: seeded, of every sort that disks, copies and hands inflict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

SORTS = ("cut", "flip", "zeros", "noise", "swap", "grow", "header")


def damaged_copies(content: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield what was done to a file, and the file as it is then: never as it was."""
    generator = np.random.default_rng(seed)
    n_header = int.from_bytes(content[:8], "little") + 8
    for number in range(count):
        sort = SORTS[number % len(SORTS)]
        damaged = _damage(sort, content, n_header, generator)
        if damaged != content:
            yield f"{sort} {number}", damaged


def _damage(sort: str, content: bytes, n_header: int, generator: np.random.Generator) -> bytes:
    values = np.frombuffer(content, np.uint8).copy()
    # Half of the damages hit the header, which is short and holds everything but numbers.
    top = n_header if generator.random() < 0.5 else len(values)
    first = int(generator.integers(0, top))
    length = int(generator.integers(1, 64))
    if sort == "cut":
        return content[:first]
    if sort == "grow":
        return content + bytes(length)
    if sort == "flip":
        values[first] ^= 1 << int(generator.integers(0, 8))
    elif sort == "zeros":
        values[first : first + length] = 0
    elif sort == "noise":
        part = values[first : first + length]
        part[:] = generator.integers(0, 256, len(part))
    elif sort == "swap":
        other = int(generator.integers(0, top))
        values[first], values[other] = values[other], values[first]
    else:  # another digit in the header, which remains JSON
        digits = np.flatnonzero(np.isin(values[8:n_header], list(b"0123456789"))) + 8
        values[generator.choice(digits)] = ord(str(generator.integers(0, 10)))
    return values.tobytes()


def forged_copies(path: Path, changes: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """Return a file without a checksum, as of version 0.1, after `changes(arrays, facts)`."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["anamorph"])
        arrays = {name: file.get_tensor(name) for name in set(file.keys())}
    header.pop("checksum", None)
    changes(arrays, header["facts"])
    return save(arrays, metadata={"anamorph": json.dumps(header)})
