"""The settings of the paper's experiments, by name.

One penalty differs: that of the shape of faces is also one of stretching, and none of divergence,
since modes then bring landmarks closer together (`examples.warps.faces`).

Where the paper's nu_0 is the number of latents, or is not printed, no preset sets it: its default
is that number, and follows when somebody asks for fewer latents.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from anamorph.model.checks import check_choice

#: Arguments of `ShapeAppearanceModel` by name of the preset.
# fmt: off
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Photographs of faces in colour, intensities from 0 to 1.
    "faces": MappingProxyType({
        "likelihood": "gaussian", "n_components": 64,
        "shape_penalty": (1e-3, 16.0, 16.0, 1.0, 0.0), "appearance_penalty": (4.0, 512.0, 64.0),
        "mean_penalty": (1e-4, 0.1, 0.1), "balance": (15.2, 0.8), "prior_dof": 1000.0, "n_iter": 20,
    }),
    # Handwritten digits, 28 x 28.
    "digits": MappingProxyType({
        "likelihood": "bernoulli", "n_components": 16,
        "shape_penalty": (0.002, 0.02, 2.0, 0.2, 0.2), "appearance_penalty": (0.002, 0.2, 0.0),
        "mean_penalty": (1e-7, 1e-5, 0.0), "balance": (0.95, 0.05), "n_iter": 20,
    }),
    # Slices through grey matter, white matter and what is neither.
    "brains2d": MappingProxyType({
        "likelihood": "categorical", "n_components": 100,
        "shape_penalty": (1e-3, 0.0, 32.0, 0.25, 0.5), "appearance_penalty": (0.1, 16.0, 128.0),
        "mean_penalty": (1e-4, 0.01, 0.1), "balance": (0.9, 0.1), "n_iter": 8,
    }),
    # Whole brains of the same classes: 30 latents for appearance, and 70 for shape.
    "brains3d": MappingProxyType({
        "likelihood": "categorical", "latents": "separate", "n_components": (30, 70),
        "shape_penalty": (1e-3, 0.0, 10.0, 0.1, 0.2), "appearance_penalty": (0.01, 1.0, 50.0),
        "mean_penalty": (1e-5, 0.01, 0.1), "balance": (1.0, 1.0), "n_iter": 8,
    }),
}
# fmt: on


def preset(name: str) -> dict[str, Any]:
    """Return the arguments of a preset.

    Parameters
    ----------
    name : {"faces", "digits", "brains2d", "brains3d"}

    Returns
    -------
    dict
        Arguments of `ShapeAppearanceModel`.

    Raises
    ------
    ArgumentError
        If there is no such preset.

    Examples
    --------
    >>> ShapeAppearanceModel(**preset("faces") | {"n_components": 32})  # doctest: +SKIP
    """
    check_choice("preset", name, tuple(PRESETS))
    return dict(PRESETS[name])
