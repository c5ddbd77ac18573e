"""The schema of questions: shapes of arguments, parameters and answers, checked at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamorph.federation.protocol.errors import MessageError
from anamorph.federation.protocol.privacy import PrivacyTerms
from anamorph.fitting.leave_one_out import WEIGHTS, lags_of
from anamorph.fitting.sums import ANALYSES, FIELDS, POSING
from anamorph.model.settings import Settings

Shape = tuple[int, ...]

#: Sums of squared norms that go with derivatives: bounds of later questions follow from them.
NORMS = ("gradient_squares", "hessian_squares")
# Each has a matrix of latents in the answer, and noise is drawn for each number of it.
_MOST_GROUPS = 100
_LONGEST_NAME = 500  # it is part of refusals, and so of the audit log


def answer_shapes(
    question: str, settings: Settings, arguments: Mapping[str, Any]
) -> dict[str, Shape]:
    """Return the shape of every field of the answer to a question.

    Parameters
    ----------
    question : str
        One of `sums.FIELDS`, `sums.POSING` or `sums.ANALYSES`.
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
        "correlation": lags_of(space),
        "squared_correlation": lags_of(space),
        "count": (n_channels, *space),
        "total": (n_channels, *space),
        "pose_sum": (settings.frame.n_coordinates,),
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
    if question == "border_moments":
        shapes |= {"count": (n_channels,), "total": (n_channels,)}
    elif question == "posed_moments":
        coarse = replace(settings.frame, factors=tuple(arguments["factors"])).space
        shapes |= {"count": (n_channels, *coarse), "total": (n_channels, *coarse)}
    answered = {name: shapes[name] for name in (FIELDS | POSING | ANALYSES)[question]}
    return answered | (dict.fromkeys(NORMS, ()) if "gradient" in answered else {})


def check_arguments(arguments: Any) -> None:
    """Raise a MessageError unless an analysis has exactly the arguments that it needs.

    Parameters
    ----------
    arguments : dict
        ``groups``: names of groups; ``group_by`` and ``weight_by``: names of columns, or None;
        ``privacy``: the terms of private statistics, or None.
    """
    expected = {"groups", "group_by", "weight_by", "privacy"}
    if not isinstance(arguments, dict) or arguments.keys() != expected:
        raise MessageError("an analysis takes groups, group_by, weight_by and privacy")
    groups = arguments["groups"]
    if isinstance(groups, list) and len(groups) > _MOST_GROUPS:
        raise MessageError(f"an analysis is about at most {_MOST_GROUPS} groups")
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise MessageError(f"groups of an analysis must be a list of names, got {groups!r:.80}")
    if not groups or len(set(groups)) < len(groups):
        raise MessageError("an analysis needs at least one group, and every group once")
    columns = [arguments[name] for name in ("group_by", "weight_by")]
    if any(isinstance(name, str) and len(name) > _LONGEST_NAME for name in [*groups, *columns]):
        raise MessageError(f"names of groups and columns have at most {_LONGEST_NAME} letters")
    for name in ("group_by", "weight_by"):
        if not isinstance(arguments[name], str | None):
            raise MessageError(f"{name} of an analysis must be the name of a column, or None")
    if arguments["privacy"] is not None:
        PrivacyTerms.checked(arguments["privacy"])
