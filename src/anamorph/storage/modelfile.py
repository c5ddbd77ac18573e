"""The model file: parameters, settings and origin. It holds no image and no latents."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import ImageFormat
from anamorph.images.errors import short_reason
from anamorph.images.grid import Affine, Grid
from anamorph.model.hyperparameters import HYPERPARAMETERS, checked_arguments
from anamorph.model.parameters import Parameters
from anamorph.model.settings import LatentLayout, Settings
from anamorph.storage.contents import (
    ContentError,
    Sizes,
    check_arrays,
    check_count,
    check_format,
    check_known,
    check_number,
    check_numbers,
    check_parameters,
    check_settings,
    format_version,
)
from anamorph.storage.errors import ModelFileError
from anamorph.storage.tensors import read_tensors, write_tensors

KIND, VERSION = "model", 3  # 2 without residual warps, 1 where images have no poses either
_OPTIONAL_ARRAYS = ("background", "residual")
_PARAMETER_ARRAYS = [field.name for field in fields(Parameters) if field.name != "warp_version"]


@dataclass(frozen=True)
class Origin:
    """The images that a model was fitted to, and the time that the fit took.

    Attributes
    ----------
    n_images : int
        Number of images.
    affine : array of shape (4, 4), optional
        From voxels of the model to mm; None if the images had no affine.
    pad : int
        Margin: missing voxels that were added to every image on each side; 0 by default.
    seconds : tuple of float
        Time of each iteration.
    suffix : str, optional
        Suffix of the image files, e.g. ".png"; None if the images were arrays.
    typical : float, optional
        Typical intensity of the images, where it was looked at.
    validation : tuple of float
        Mean log evidence of held-out images after each iteration, NaN where it is not known; empty
        if none were held out.
    level_begins : tuple of int
        How many iterations had been done when the fit came to each of its grids, coarsest first;
        (0,) by default, for one grid.
    """

    n_images: int
    affine: Affine | None = None
    pad: int = 0
    seconds: tuple[float, ...] = ()
    suffix: str | None = None
    typical: float | None = None
    validation: tuple[float, ...] = ()
    level_begins: tuple[int, ...] = (0,)

    def inner_grid(self, space: tuple[int, ...]) -> Grid:
        """Return the grid of the image files: that of the model without its margin.

        Parameters
        ----------
        space : tuple of int
            Shape of the grid of the model.
        """
        return Grid(space, self.affine).padded(-self.pad)


@dataclass(frozen=True)
class StoredModel:
    """The contents of a model file.

    Attributes
    ----------
    arguments : dict
        Arguments of the estimator.
    format : ImageFormat
    settings : Settings
    parameters : Parameters
    objective : list of float
        After each iteration of the fit.
    origin : Origin
    """

    arguments: dict[str, Any]
    format: ImageFormat
    settings: Settings
    parameters: Parameters
    objective: list[float]
    origin: Origin


def write_model(path: str | os.PathLike[str], model: StoredModel) -> None:
    """Write a model file."""
    facts = {
        "arguments": {name: _plain(value) for name, value in model.arguments.items()},
        "format": asdict(model.format),
        "settings": asdict(model.settings),
        "objective": model.objective,
        "origin": _origin_facts(model.origin),
    }
    version = format_version(model.settings)
    write_tensors(path, KIND, version, parameter_arrays(model.parameters), facts)


def read_model(path: str | os.PathLike[str]) -> StoredModel:
    """Return the contents of a model file, or raise a ModelFileError."""
    return model_from(path, *read_tensors(path, KIND, VERSION))


def model_from(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
) -> StoredModel:
    """Return the model that arrays and facts describe, all of them checked.

    Parameters
    ----------
    path : path
        What errors call the file.
    arrays : dict of arrays
    facts : dict

    Raises
    ------
    ModelFileError
        If something is missing, of the wrong type or shape, not finite, or out of its range.
    """
    try:
        for name in ("arguments", "format", "settings", "objective", "origin"):
            if name not in facts:
                raise ContentError(f"it lacks {name}")
        settings = settings_from(facts["settings"])
        image_format = _format_from(facts["format"], settings)
        sizes = Sizes.of_settings(settings)
        check_arrays(arrays, sizes.parameter_shapes())
        check_parameters(arrays)
        return StoredModel(
            _arguments_from(facts["arguments"]),
            image_format,
            settings,
            parameters_from(arrays),
            check_numbers("objective", facts["objective"]),
            _origin_from(facts["origin"], settings.space),
        )
    except ContentError as error:
        raise ModelFileError(
            f"{path} is damaged, or was made by something else: {short_reason(error)}"
        ) from None


def settings_from(facts: Mapping[str, Any]) -> Settings:
    """Return settings from their JSON form, or raise a ContentError."""
    check_known("settings", facts, Settings)
    check_known("the layout", facts.get("layout", {}), LatentLayout)
    named = {name: _tupled(value) for name, value in facts.items()}
    try:
        settings = Settings(**named | {"layout": LatentLayout(**named["layout"])})
    except (KeyError, TypeError) as error:
        raise ContentError(f"settings are not complete ({error})") from None
    check_settings(settings)
    return settings


def _format_from(facts: Mapping[str, Any], settings: Settings) -> ImageFormat:
    check_known("the format", facts, ImageFormat)
    try:
        image_format = ImageFormat(**{name: _tupled(value) for name, value in facts.items()})
    except TypeError as error:
        raise ContentError(f"the format is not complete ({error})") from None
    check_format(image_format, settings)
    return image_format


def _arguments_from(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the estimator, each in its range; those not there have defaults."""
    if not isinstance(facts, Mapping) or not facts.keys() <= HYPERPARAMETERS.keys():
        raise ContentError("its arguments are not those of a ShapeAppearanceModel")
    arguments = {name: _tupled(value) for name, value in facts.items()}
    try:
        checked_arguments(arguments)
    except (ValueError, TypeError, OverflowError) as error:
        raise ContentError(str(error)) from None
    return arguments


def _origin_facts(origin: Origin) -> dict[str, Any]:
    """Return an origin in a form that JSON can hold; held-out images only if there were any."""
    facts = {name: _plain(value) for name, value in vars(origin).items()}
    known = [None if math.isnan(value) else value for value in facts.pop("validation")]
    return facts | ({"validation": known} if known else {})


def _validation_from(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise ContentError(f"the validation must be a list of numbers, got {values!r}")
    return tuple(
        math.nan if value is None else check_number("validation", value) for value in values
    )


def _origin_from(facts: Mapping[str, Any], space: tuple[int, ...]) -> Origin:
    check_known("the origin", facts, Origin)
    if "n_images" not in facts:
        raise ContentError("the origin lacks the number of images")
    suffix, typical = facts.get("suffix"), facts.get("typical")
    if suffix is not None and not isinstance(suffix, str):
        raise ContentError(f"the suffix of files must be a text, got {suffix!r}")
    return Origin(
        check_count("n_images", facts["n_images"], 1),
        _affine_from(facts.get("affine")),
        check_count("pad", facts.get("pad", 0), 0, (min(space) - 1) // 2),
        tuple(check_numbers("seconds", facts.get("seconds", ()), lowest=0.0)),
        suffix,
        None if typical is None else check_number("typical", typical),
        _validation_from(facts.get("validation", [])),
        checked_begins(facts.get("level_begins", [0])),
    )


def checked_begins(begins: Any) -> tuple[int, ...]:
    """Return after how many iterations a fit came to each of its grids, or raise a ContentError."""
    is_list = isinstance(begins, list) and all(type(begin) is int for begin in begins)
    if not is_list or begins[:1] != [0] or begins != sorted(begins):
        raise ContentError(f"level_begins must be integers from 0 on, ascending, got {begins!r}")
    return tuple(begins)


def _affine_from(rows: Any) -> Affine | None:
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) != 4:
        raise ContentError("the affine must have 4 rows")
    affine = np.array([check_numbers("the affine", row) for row in rows if len(row) == 4])
    if affine.shape != (4, 4) or not affine[3].tolist() == [0, 0, 0, 1]:
        raise ContentError("the affine must be a matrix of 4 x 4 numbers")
    if not abs(np.linalg.det(affine)) > 0:
        raise ContentError("the affine must have an inverse")
    return affine


def parameter_arrays(parameters: Parameters) -> dict[str, NDArray[Any]]:
    """Return the arrays of parameters by their names, in the order of `Parameters`."""
    arrays = {name: getattr(parameters, name) for name in _PARAMETER_ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


def parameters_from(arrays: Mapping[str, NDArray[Any]]) -> Parameters:
    """Return parameters from a dict of arrays by their names."""
    named: dict[str, Any] = {
        name: arrays[name]
        for name in _PARAMETER_ARRAYS
        if name in arrays or name not in _OPTIONAL_ARRAYS
    }
    return Parameters(**named)


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON can hold."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
