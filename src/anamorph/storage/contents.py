"""Checks of what a file holds before anything uses it: names, types, shapes, finite, in range.

A checksum tells whether a file is as it was written; these checks tell whether what was written can
be a model. They also guard files of version 0.1, which have no checksum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.mapped import let_go
from anamorph.geometry.fields import check_penalty, check_voxel_size
from anamorph.geometry.pose import ALIGNMENTS
from anamorph.images.arrays import ImageFormat
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model import checks
from anamorph.model.hyperparameters import INTENSITIES
from anamorph.model.settings import LatentLayout, Settings

_MOST_AXES = 3
_LONGEST_AXIS = 2**24
_SYMMETRY = 1e-6  # of a matrix that was computed as a symmetric one
_ENERGY_SLACK = 1e-3  # below 0, of the energies of bases in float32
_BLOCK = 2**24  # values that are looked at together
_N_WEIGHTS = {"shape_penalty": 5, "appearance_penalty": 3, "mean_penalty": 3}


class ContentError(ValueError):
    """What is wrong with the contents of a file, without its name."""


class Sizes(NamedTuple):
    """The numbers on which the shapes of all arrays of a model depend.

    Attributes
    ----------
    space : tuple of int
    n_channels, n_latents, n_appearance, n_shape : int
        C, K, Ka and Kv.
    has_background : bool
        Whether images have poses, and something around them; by default they have not.
    has_residual : bool
        Whether images have residual warps; by default they have not.
    """

    space: tuple[int, ...]
    n_channels: int
    n_latents: int
    n_appearance: int
    n_shape: int
    has_background: bool = False
    has_residual: bool = False

    @classmethod
    def of_settings(cls, settings: Settings) -> Sizes:
        """Return the sizes of a model with these settings."""
        layout = settings.layout
        return cls(
            settings.space,
            settings.n_channels,
            layout.n_latents,
            layout.n_appearance,
            layout.n_shape,
            settings.has_poses,
            settings.has_residuals,
        )

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Sizes:
        """Return the sizes that arrays without settings claim to have."""
        names = ("mean", "latent_precision", "appearance_basis", "shape_basis")
        for name in names:
            if name not in arrays or arrays[name].ndim == 0:
                raise ContentError(f"{name} is missing, or a single number")
        mean, precision, appearance_basis, shape_basis = (arrays[name] for name in names)
        return cls(
            mean.shape[1:],
            len(mean),
            len(precision),
            len(appearance_basis),
            len(shape_basis),
            "background" in arrays,
            "residual" in arrays,
        )

    def parameter_shapes(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Return shape and type of the arrays of `Parameters`, by their names."""
        square = (self.n_latents, self.n_latents)
        images, n_dims = (self.n_channels, *self.space), len(self.space)
        shapes: dict[str, tuple[tuple[int, ...], type]] = {
            "mean": (images, np.float32),
            "appearance_basis": ((self.n_appearance, *images), np.float32),
            "shape_basis": ((self.n_shape, n_dims, *self.space), np.float32),
            "basis_energy": (square, np.float64),
            "latent_precision": (square, np.float64),
            "noise_precision": ((self.n_channels,), np.float64),
        }
        if self.has_background:
            shapes["background"] = ((2, self.n_channels), np.float64)
        if self.has_residual:
            shapes["residual"] = ((1 + self.n_channels,), np.float64)
        return shapes


def format_version(settings: Settings) -> int:
    """Return the version of the format of files of a model: the first that knows all it has."""
    if settings.has_residuals:
        return 3
    return 2 if settings.has_poses else 1


def check_arrays(
    arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, tuple[tuple[int, ...], type]]
) -> None:
    """Raise a ContentError unless there are these arrays, of these shapes and types, all finite."""
    missing = sorted(expected.keys() - arrays.keys())
    unknown = sorted(arrays.keys() - expected.keys())
    if missing:
        raise ContentError(f"it lacks {', '.join(missing)}")
    if unknown:
        raise ContentError(f"it holds {', '.join(map(repr, unknown))}, which does not belong there")
    for name, (shape, kind) in expected.items():
        array = arrays[name]
        if array.shape != shape:
            raise ContentError(f"{name} must have shape {shape}, got {array.shape}")
        if array.dtype != kind:
            raise ContentError(f"{name} must be {np.dtype(kind)}, got {array.dtype}")
        check_finite(name, array)


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Raise a ContentError if an array holds NaN or infinity."""
    flat = array.reshape(-1)
    for first in range(0, flat.size, _BLOCK):
        if not np.isfinite(flat[first : first + _BLOCK]).all():
            raise ContentError(f"{name} holds NaN or infinity")
        let_go(array)


def check_parameters(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise a ContentError unless precisions of parameters are positive, and energies not negative.

    Parameters
    ----------
    arrays : dict of arrays
        Of the shapes and types that they should have.
    """
    if not (arrays["noise_precision"] > 0).all():
        raise ContentError("noise_precision must be positive")
    if "background" in arrays and not (arrays["background"][1] > 0).all():
        raise ContentError("the precision of the background must be positive")
    if "residual" in arrays and not (arrays["residual"] > 0).all():
        raise ContentError("the precisions of residual warps and their noise must be positive")
    check_symmetric("latent_precision", arrays["latent_precision"], is_positive=True)
    check_symmetric("basis_energy", arrays["basis_energy"])


def check_symmetric(name: str, matrix: NDArray[Any], *, is_positive: bool = False) -> None:
    """Raise a ContentError unless a matrix is symmetric, and positive (semi)definite."""
    largest = float(np.abs(matrix).max(initial=0.0))
    if not np.allclose(matrix, matrix.T, rtol=_SYMMETRY, atol=_SYMMETRY * largest):
        raise ContentError(f"{name} must be symmetric")
    try:
        lowest = float(np.linalg.eigvalsh(matrix).min(initial=math.inf))
    except np.linalg.LinAlgError:
        raise ContentError(f"{name} has no eigenvalues") from None
    if lowest <= 0 if is_positive else lowest < -_ENERGY_SLACK * largest:
        raise ContentError(f"{name} must be positive definite")


def check_count(name: str, value: Any, lowest: int = 0, highest: int = 2**62) -> int:
    """Return a value that is an integer from the lowest to the highest."""
    try:
        return checks.check_integer(name, value, lowest, highest)
    except ValueError as error:
        raise ContentError(str(error)) from None


def check_numbers(name: str, values: Any, *, lowest: float = -math.inf) -> list[float]:
    """Return values that are a list of finite numbers, none below the lowest."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ContentError(f"{name} must be a list of numbers, got {values!r}")
    return [check_number(name, value, lowest=lowest) for value in values]


def check_number(name: str, value: Any, *, lowest: float = -math.inf) -> float:
    """Return a value that is a finite number, not below the lowest."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < lowest:
        raise ContentError(f"{name} must be finite numbers in their range, got {value!r}")
    return float(value)


def check_known(what: str, names: Mapping[str, Any], known: type) -> None:
    """Raise a ContentError if a mapping names something that a dataclass does not have."""
    if not isinstance(names, Mapping):
        raise ContentError(f"{what} must be a table of names and values, got {names!r}")
    unknown = sorted(set(names) - {field.name for field in fields(known)})
    if unknown:
        raise ContentError(f"{what} must not have {', '.join(map(repr, unknown))}")


def check_settings(settings: Settings) -> None:
    """Raise a ContentError unless every setting is of its type and in its range."""
    s, layout = settings, settings.layout
    check_space(s.space, s.n_channels, s.likelihood_name)
    _check_layout(layout)
    try:
        check_voxel_size(s.voxel_size, len(s.space))
        for name, count in _N_WEIGHTS.items():
            check_penalty(getattr(s, name), count, name)
        checks.checked_balance(s.balance)
        checks.check_number("prior_dof", s.prior_dof)
        checks.check_integer("n_steps", s.n_steps, 1)
        checks.check_number("decimation", s.decimation, is_positive=True)
        checks.check_choice("intensity", s.intensity, INTENSITIES)
        checks.check_choice("align", s.align, ALIGNMENTS)
    except (ValueError, TypeError) as error:
        raise ContentError(str(error)) from None


def check_space(space: Any, n_channels: Any, likelihood: Any) -> None:
    """Raise a ContentError unless images can have this grid, these channels and this likelihood."""
    if not isinstance(likelihood, str) or likelihood not in LIKELIHOODS:
        raise ContentError(f"likelihood must be one of {tuple(LIKELIHOODS)}, got {likelihood!r}")
    if not isinstance(space, tuple) or not 2 <= len(space) <= _MOST_AXES:
        raise ContentError(f"space must be 2 or 3 lengths, got {space!r}")
    for length in space:
        check_count("space", length, 1, _LONGEST_AXIS)
    check_count("n_channels", n_channels, 1, _LONGEST_AXIS)


def check_format(image_format: ImageFormat, settings: Settings) -> None:
    """Raise a ContentError unless the images of a model are those of its settings."""
    f, s = image_format, settings
    if (f.likelihood, f.space, f.n_channels) != (s.likelihood_name, s.space, s.n_channels):
        raise ContentError("the grid, channels and likelihood of images and settings differ")
    if f.channel_axis is not None:
        check_count("channel_axis", f.channel_axis, 1, len(f.space) + 1)


def _check_layout(layout: LatentLayout) -> None:
    for name in ("n_latents", "n_appearance", "n_shape", "first_shape"):
        check_count(name, getattr(layout, name), 0, _LONGEST_AXIS)
    reached = max(layout.n_appearance, layout.first_shape + layout.n_shape)
    counts = {layout.n_appearance, layout.n_shape}
    if layout.first_shape == 0:
        is_known = counts <= {0, layout.n_latents}
    else:
        is_known = layout.first_shape == layout.n_appearance and 0 not in counts
    if layout.n_latents < 1 or reached != layout.n_latents or not is_known:
        raise ContentError(f"latents of the layout {layout} do not add up")
