"""The model file: parameters, settings and origin. It holds no image and no latents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import ImageFormat
from anamorph.images.grid import Affine, Grid
from anamorph.model.parameters import Parameters
from anamorph.model.settings import LatentLayout, Settings
from anamorph.storage.errors import ModelFileError
from anamorph.storage.tensors import read_tensors, write_tensors

_VERSION = 1
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
    """

    n_images: int
    affine: Affine | None = None
    pad: int = 0
    seconds: tuple[float, ...] = ()
    suffix: str | None = None
    typical: float | None = None

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
        "origin": {name: _plain(value) for name, value in vars(model.origin).items()},
    }
    write_tensors(path, "model", _VERSION, parameter_arrays(model.parameters), facts)


def read_model(path: str | os.PathLike[str]) -> StoredModel:
    """Return the contents of a model file, or raise a ModelFileError."""
    arrays, facts = read_tensors(path, "model", _VERSION)
    try:
        return StoredModel(
            {name: _tupled(value) for name, value in facts["arguments"].items()},
            ImageFormat(**{name: _tupled(value) for name, value in facts["format"].items()}),
            settings_from(facts["settings"]),
            parameters_from(arrays),
            [float(value) for value in facts["objective"]],
            _origin_from(facts["origin"]),
        )
    except (KeyError, TypeError) as error:
        raise ModelFileError(f"{path} lacks something that a model file has: {error}") from None


def settings_from(facts: Mapping[str, Any]) -> Settings:
    """Return settings from their JSON form."""
    settings = {name: _tupled(value) for name, value in facts.items()}
    settings["layout"] = LatentLayout(**settings["layout"])
    return Settings(**settings)


def _origin_from(facts: Mapping[str, Any]) -> Origin:
    affine = None if facts["affine"] is None else np.asarray(facts["affine"], np.float64)
    return Origin(
        facts["n_images"],
        affine,
        facts["pad"],
        tuple(facts["seconds"]),
        facts.get("suffix"),
        facts.get("typical"),
    )


def parameter_arrays(parameters: Parameters) -> dict[str, NDArray[Any]]:
    """Return the arrays of parameters by their names, in the order of `Parameters`."""
    return {name: getattr(parameters, name) for name in _PARAMETER_ARRAYS}


def parameters_from(arrays: Mapping[str, NDArray[Any]]) -> Parameters:
    """Return parameters from a dict of arrays by their names."""
    named: dict[str, Any] = {name: arrays[name] for name in _PARAMETER_ARRAYS}
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
