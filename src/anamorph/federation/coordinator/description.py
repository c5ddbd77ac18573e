"""The format of the images, which must be the same at all sites: grid, channels, likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anamorph.federation.coordinator.calls import call_sites
from anamorph.federation.protocol.errors import MessageError
from anamorph.federation.protocol.transport import Transport
from anamorph.federation.protocol.wire import Message
from anamorph.images.arrays import ImageFormat
from anamorph.images.grid import Affine

_TOLERANCE = 1e-3  # mm


@dataclass(frozen=True)
class Description:
    """The properties that the images of all sites share.

    Attributes
    ----------
    format : ImageFormat
        Likelihood, grid and channels.
    voxel_size : tuple of float, or None
        In mm. None for arrays and pictures, which have none.
    affine : (4, 4) or None
        Maps voxels to mm. None for arrays and pictures.
    pad : int
        Voxels that were added at each side.
    suffix : str or None
        Of the files, e.g. ".nii.gz".
    holdings : dict
        Number of images and range of intensities of every site, signed by it, by name.
    """

    format: ImageFormat
    voxel_size: tuple[float, ...] | None
    affine: Affine | None
    pad: int
    suffix: str | None
    holdings: Mapping[str, Message]


def described(transport: Transport, names: Sequence[str], timeout: float | None) -> Description:
    """Ask sites for the format of their images, and raise a MessageError where two differ."""
    answers = call_sites(transport, {name: {"do": "describe"} for name in names}, timeout)
    first, *others = sorted(answers)
    for name in others:
        for what in ("format", "voxel_size", "affine", "pad"):
            if not _is_same(answers[first][what], answers[name][what]):
                raise MessageError(
                    f"the images of {first} and {name} differ in their {what.replace('_', ' ')}: "
                    "bring them to one grid and one format first"
                )
    answer = answers[first]
    kind, voxel_size = answer["format"], answer["voxel_size"]
    return Description(
        ImageFormat(**(kind | {"space": tuple(kind["space"])})),
        None if voxel_size is None else tuple(voxel_size),
        answer["affine"],
        answer["pad"],
        answer["suffix"],
        {name: given["holdings"] for name, given in answers.items()},
    )


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, dict):
        return bool(one == other)
    return np.shape(one) == np.shape(other) and np.allclose(one, other, atol=_TOLERANCE)
