"""Messages as bytes and back: a JSON header, then raw arrays. Nothing is ever unpickled.

A message is ``b"anamorph"``, the length of the header (8 bytes, little-endian), the header, and the
data of the arrays and byte strings that the header refers to, in the same order.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from anamorph.federation.protocol.errors import MessageError

#: Values are str, int, float, bool, bytes, None, NumPy arrays, and lists and dicts of these.
Message = dict[str, Any]

#: Most bytes of arrays in one message. Engines copy messages several times, so larger ones would
#: exhaust their memory.
BLOCK_BYTES = 64 * 10**6

# Lists and texts take many times their size in memory. Those of a thousand sites are shorter.
_MOST_HEADER = 4 * 2**20

_MAGIC = b"anamorph"
_TYPES = {np.dtype(name).str for name in ("f4", "f8", "u8", "i8", "i4", "u1")} | {"|b1"}
_REFERENCE = "\0reference"


def pack(message: Message) -> bytes:
    """Return a message as bytes."""
    buffers: list[bytes | memoryview] = []
    header = json.dumps(_plain(message, buffers)).encode()
    return b"".join([_MAGIC, len(header).to_bytes(8, "little"), header, *buffers])


def unpack(data: bytes) -> Message:
    """Return the message in some bytes; its arrays are read-only views of them."""
    start = len(_MAGIC) + 8
    if data[: len(_MAGIC)] != _MAGIC:
        raise MessageError("these bytes are not a message of anamorph")
    n_bytes = int.from_bytes(data[len(_MAGIC) : start], "little")
    if n_bytes > _MOST_HEADER:
        raise MessageError(f"the header of a message is at most {_MOST_HEADER} bytes long")
    stop = start + n_bytes
    try:
        header = json.loads(data[start:stop])
        message = _Reader(memoryview(data)[stop:]).read(header)
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise MessageError(f"a message cannot be read: {error}") from None
    if not isinstance(message, dict):
        raise MessageError(f"a message must be a dict, got {type(message).__name__}")
    return message


def _plain(value: Any, buffers: list[bytes | memoryview]) -> Any:
    """Return a value as JSON can hold it, and append arrays and bytes to buffers, in order."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        if array.dtype.str not in _TYPES:
            raise MessageError(f"arrays of type {array.dtype} cannot be sent")
        buffers.append(array.reshape(-1).view(np.uint8).data)
        return {_REFERENCE: array.dtype.str, "shape": list(value.shape)}
    if isinstance(value, bytes):
        buffers.append(value)
        return {_REFERENCE: "bytes", "shape": [len(value)]}
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != _REFERENCE for key in value):
            raise MessageError(f"keys of a message must be text, got {list(value)}")
        return {key: _plain(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, buffers) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise MessageError(f"a {type(value).__name__} cannot be sent")


class _Reader:
    """Reads the data that a header refers to from the bytes after it, in order."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def read(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.read(item) for item in value]
        if not isinstance(value, dict):
            return value
        if _REFERENCE not in value:
            return {key: self.read(item) for key, item in value.items()}
        kind, shape = value[_REFERENCE], tuple(value["shape"])
        if kind == "bytes":
            return bytes(self._take(shape[0]))
        if kind not in _TYPES:
            raise ValueError(f"unknown type {kind!r}")
        dtype = np.dtype(kind)
        return np.frombuffer(self._take(dtype.itemsize * math.prod(shape)), dtype).reshape(shape)

    def _take(self, length: int) -> memoryview:
        if not 0 <= length <= len(self._data):
            raise ValueError("it is truncated")
        taken, self._data = self._data[:length], self._data[length:]
        return taken
