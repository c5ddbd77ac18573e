"""Parameters as they arrive at a site: array by array, and large arrays in blocks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.protocol.errors import MessageError, StaleStepError
from anamorph.federation.protocol.questions import parameter_shapes
from anamorph.federation.protocol.wire import Message
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import parameters_from

_SMALL = {"basis_energy", "latent_precision", "noise_precision"}


class PublishedParameters:
    """The parameters that the coordinator sent last.

    Parameters
    ----------
    settings : Settings
        Of the fit; they give the shapes of all arrays.

    Attributes
    ----------
    digest : str
        Of all arrays, once they are complete.
    """

    def __init__(self, settings: Settings) -> None:
        self._shapes = parameter_shapes(settings)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._arriving: dict[str, NDArray[Any]] = {}
        self._n_arrived: dict[str, int] = {}
        self._version = 0
        self.digest = ""

    def take_block(self, message: Message) -> None:
        """Add a block to one array: the message has its name, where it starts, and its numbers."""
        name, start, values = message["array"], message["start"], message["values"]
        shape = self._shape_of(name)
        length = math.prod(shape)
        if start == 0:
            self._arrays.pop(name, None)
            self._arriving[name] = np.empty(length, _dtype_of(name))
            self._n_arrived[name] = 0
        if name not in self._arriving or start != self._n_arrived[name]:
            raise StaleStepError(f"a block of {name} was lost: publish it again")
        stop = start + len(values)
        if stop > length:
            raise MessageError(f"{name} must have shape {shape}, got more numbers than that")
        _check_finite(name, values)
        self._arriving[name][start:stop] = values
        self._n_arrived[name] = stop
        if stop == length:
            self._arrays[name] = self._arriving.pop(name).reshape(shape)
            self._version = 0  # the next question says which version this is

    def take(self, published: Message) -> bool:
        """Take complete arrays, and the version of the parameters.

        Parameters
        ----------
        published : Message
            ``version``: number of the parameters that the next questions are about; ``arrays``:
            arrays by name that changed and are not sent in blocks; ``warp_version``: changes where
            the shape basis does (`Parameters.warp_version`).

        Returns
        -------
        bool
            Whether the parameters changed.
        """
        version, warp_version = published["version"], published["warp_version"]
        arrays: Mapping[str, NDArray[Any]] = published["arrays"]
        for name, values in arrays.items():
            shape = self._shape_of(name)
            if values.shape != shape:
                raise MessageError(f"{name} must have shape {shape}, got {values.shape}")
            _check_finite(name, values)
            self._arrays[name] = values.astype(_dtype_of(name), copy=False)
        if self._arriving or self._arrays.keys() != self._shapes.keys():
            raise StaleStepError("parameters are incomplete here: publish all of them again")
        if version == self._version and not arrays:
            return False
        self._version, self._warp_version = version, warp_version
        digest = hashlib.blake2b(digest_size=16)
        for name in self._shapes:
            digest.update(np.ascontiguousarray(self._arrays[name]).data)
        self.digest = digest.hexdigest()
        return True

    def parameters(self) -> Parameters:
        """Return the parameters of the last version."""
        return replace(parameters_from(self._arrays), warp_version=self._warp_version)

    def _shape_of(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise MessageError(f"parameters have no {name!r}")
        return self._shapes[name]


def _dtype_of(name: str) -> type[np.floating]:
    return np.float64 if name in _SMALL else np.float32


def _check_finite(name: str, values: NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise MessageError(f"{name} must be finite, got NaN or infinity")
