"""The schema of questions: shapes of arguments, parameters and answers, checked at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anamorph.federation.protocol.errors import MessageError
from anamorph.fitting.leave_one_out import WEIGHTS
from anamorph.fitting.sums import ANALYSES, FIELDS, MOVING
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
        "errors_by_weight": (len(WEIGHTS),),
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
    expected: dict[str, dict[str, Shape | type]] = {
        "start_latents": {"seed": int},
        "transform_latents": {"move": dict},
        "leave_one_out": {"inverse_scatter": (n_latents, n_latents), "n_images": int},
        "statistics": {"groups": list},
    }
    wanted = expected.get(question, {})
    optional = {"statistics": {"group_by", "weight_by"}} | {name: {"move"} for name in MOVING}
    unknown = arguments.keys() - wanted.keys() - optional.get(question, set())
    if unknown:
        raise MessageError(f"{question} takes no {', '.join(sorted(unknown))}")
    _check_values(question, wanted, arguments)
    if arguments.get("move") is not None:
        _check_move(question, settings.layout.n_latents, arguments["move"])


def _check_move(question: str, n_latents: int, move: Any) -> None:
    """Raise a MessageError unless a move is z -> M z + t, and says whether it keeps warps."""
    expected: dict[str, Shape | type] = {
        "matrix": (n_latents, n_latents),
        "shift": (n_latents,),
        "keeps_warps": bool,
    }
    if not isinstance(move, dict) or move.keys() != expected.keys():
        raise MessageError(f"the move of {question} must have {', '.join(expected)}")
    _check_values(question, expected, move)


def _check_values(
    question: str, wanted: Mapping[str, Shape | type], given: Mapping[str, Any]
) -> None:
    """Raise a MessageError unless values have the types or shapes that they should have."""
    for name, kind in wanted.items():
        value = given.get(name)
        if isinstance(kind, type):
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise MessageError(f"{name} of {question} must be {kind.__name__}, got {value!r}")
        elif not isinstance(value, np.ndarray) or value.shape != kind:
            shown = getattr(value, "shape", value)
            raise MessageError(f"{name} of {question} must have shape {kind}, got {shown!r}")
        elif not np.isfinite(value).all():
            raise MessageError(f"{name} of {question} must be finite, got NaN or infinity")
