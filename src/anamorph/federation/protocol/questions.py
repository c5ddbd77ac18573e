"""The schema of questions: shapes of arguments, parameters and answers, checked at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anamorph.federation.protocol.errors import MessageError
from anamorph.fitting.sums import ANALYSES, FIELDS
from anamorph.model.settings import Settings

Shape = tuple[int, ...]


def answer_shapes(
    question: str, settings: Settings, arguments: Mapping[str, Any]
) -> dict[str, Shape]:
    """Return the shape of every field of the answer to a question.

    Parameters
    ----------
    question : str
        One of `sums.FIELDS` or `sums.ANALYSES`.
    settings : Settings
        Settings of the fit.
    arguments : dict
        Arguments of the question.

    Returns
    -------
    dict
        Shapes by name of the field, in the order of the answer.
    """
    layout, space = settings.layout, settings.space
    n_latents, n_channels = layout.n_latents, settings.n_channels
    square: Shape = (n_latents, n_latents)
    shapes: dict[str, Shape] = {
        "log_likelihood": (),
        "latent_sum": (n_latents,),
        "latent_scatter": square,
        "covariance_sum": square,
        "log_determinant_sum": (),
        "squares": (n_channels,),
        "observed": (n_channels,),
        "n_unimproved": (),
        "count": (n_channels, *space),
        "total": (n_channels, *space),
    }
    columns, sizes = {
        "shape_derivatives": (layout.n_shape, (settings.n_dims, settings.n_shape_hessian)),
        "appearance_derivatives": (layout.n_appearance, (n_channels, settings.n_hessian)),
        "mean_derivatives": (1, (n_channels, settings.n_hessian)),
    }.get(question, (0, (0, 0)))
    shapes["gradient"], shapes["hessian"] = ((columns, size, *space) for size in sizes)
    if question == "statistics":
        n_groups = len(arguments["groups"])
        shapes = {name: (n_groups, *shapes.get(name, ())) for name in ANALYSES[question]}
    return {name: shapes[name] for name in (FIELDS | ANALYSES)[question]}


def parameter_shapes(settings: Settings) -> dict[str, Shape]:
    """Return the shape of every array of `Parameters`."""
    layout, space = settings.layout, settings.space
    n_latents, n_channels = layout.n_latents, settings.n_channels
    return {
        "mean": (n_channels, *space),
        "appearance_basis": (layout.n_appearance, n_channels, *space),
        "shape_basis": (layout.n_shape, settings.n_dims, *space),
        "basis_energy": (n_latents, n_latents),
        "latent_precision": (n_latents, n_latents),
        "noise_precision": (n_channels,),
    }


def check_arguments(question: str, settings: Settings, arguments: Mapping[str, Any]) -> None:
    """Raise a MessageError unless a question has exactly the arguments that it needs."""
    n_latents = settings.layout.n_latents
    matrix, vector = (n_latents, n_latents), (n_latents,)
    expected: dict[str, dict[str, Shape | type]] = {
        "start_latents": {"seed": int},
        "transform_latents": {"matrix": matrix, "shift": vector},
        "mean_derivatives": {"shift": vector},
        "shape_derivatives": {} if arguments.get("transform") is None else {"transform": matrix},
        "statistics": {"groups": list},
    }
    wanted = expected.get(question, {})
    optional = {"shape_derivatives": {"transform"}, "statistics": {"group_by", "weight_by"}}
    unknown = arguments.keys() - wanted.keys() - optional.get(question, set())
    if unknown:
        raise MessageError(f"{question} takes no {', '.join(sorted(unknown))}")
    for name, kind in wanted.items():
        value = arguments.get(name)
        if isinstance(kind, type):
            if not isinstance(value, kind) or isinstance(value, bool):
                raise MessageError(f"{name} of {question} must be {kind.__name__}, got {value!r}")
        elif not isinstance(value, np.ndarray) or value.shape != kind:
            given = getattr(value, "shape", value)
            raise MessageError(f"{name} of {question} must have shape {kind}, got {given!r}")
        elif not np.isfinite(value).all():
            raise MessageError(f"{name} of {question} must be finite, got NaN or infinity")
