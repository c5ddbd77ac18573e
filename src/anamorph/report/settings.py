"""The table of a model's settings: what each is called, what it was, what it does."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np

from anamorph.estimator import ShapeAppearanceModel
from anamorph.report.wording import LATENTS, count, times

_SHAPE_WEIGHTS = ("size", "stretching", "bending", "elasticity", "divergence")
_FIELD_WEIGHTS = ("size", "stretching", "bending")

Row = tuple[str, str, str]
HEADER = ("Setting", "Value", "What it does")


def settings_rows(model: ShapeAppearanceModel) -> list[Row]:
    """Return a row for each setting: its name, its value, and what it does."""
    return [*_rows_of_images(model), *_rows_of_model(model), *_rows_of_fit(model)]


def _rows_of_images(model: ShapeAppearanceModel) -> list[Row]:
    settings, origin = model.settings_, model.origin_
    unit = "mm" if origin.affine is not None else "a unit of your own"
    rows = [
        (
            "Images",
            f"{count(origin.n_images, 'image')} of {times(settings.space)}, "
            f"{count(settings.n_channels, *settings.likelihood.channel_nouns)}",
            "What the model was fitted to.",
        ),
        (
            "Voxel size",
            times(settings.voxel_size) + (" mm" if origin.affine is not None else ""),
            f"Distances that penalties refer to, in {unit}"
            + ("; 1 unless given." if origin.affine is None else "."),
        ),
    ]
    if origin.pad:
        rows.append(
            (
                "Margin",
                count(origin.pad, "voxel"),
                "Added on every side as missing, so that nothing wraps around the grid.",
            )
        )
    return rows


def _rows_of_model(model: ShapeAppearanceModel) -> list[Row]:
    settings, layout = model.settings_, model.settings_.layout
    number = str(layout.n_latents)
    if model.latents == "separate":
        number = f"{layout.n_appearance} for appearance, {layout.n_shape} for shape"
    return [
        ("Likelihood", model.likelihood, f"For {settings.likelihood.description}."),
        (
            "Latents",
            f"{number} ({model.latents})",
            f"Numbers that describe an image: {LATENTS[model.latents]}.",
        ),
        *_rows_of_penalties(model),
        (
            "Balance",
            f"λ₁ = {settings.balance[0]:g}, λ₂ = {settings.balance[1]:g}"
            + _default(model, "balance"),
            "Weights of the penalties on bases and latents one by one, and on the fields that "
            "they make together.",
        ),
        (
            "Prior degrees of freedom",
            f"ν₀ = {settings.prior_dof:g}" + _default(model, "prior_dof", ", the number K"),
            "How many images' worth of belief that latents are independent with variance 1.",
        ),
        (
            "Decimation",
            f"{settings.decimation:g}" + _default(model, "decimation"),
            "Weight of the data; below 1 where neighbouring voxels are not independent.",
        ),
    ]


def _rows_of_penalties(model: ShapeAppearanceModel) -> list[Row]:
    meanings = {
        "shape": "Keeps warps small and smooth: larger weights, stiffer warps.",
        "appearance": "Keeps modes of appearance small and smooth.",
        "mean": "Keeps the mean image smooth; counted once per image.",
    }
    rows = []
    for name, meaning in meanings.items():
        argument = f"{name}_penalty"
        names = _SHAPE_WEIGHTS if name == "shape" else _FIELD_WEIGHTS
        value = _weights(names, getattr(model.settings_, argument))
        value += _default(model, argument, " for this likelihood")
        rows.append((f"{name.capitalize()} penalty", value, meaning))
    return rows


def _rows_of_fit(model: ShapeAppearanceModel) -> list[Row]:
    tolerance = "none" if model.tol is None else f"{model.tol:g}"
    seed = "0" if model.random_state is None else str(model.random_state)
    return [
        (
            "Iterations",
            f"{model.n_iter_} of at most {model.n_iter}" + _default(model, "n_iter"),
            "Rounds in which mean, modes and latents are each improved once.",
        ),
        (
            "Tolerance",
            tolerance + _default(model, "tol"),
            "The fit ends early when an iteration adds less than this share of the whole rise.",
        ),
        (
            "Shooting steps",
            str(model.settings_.n_steps) + _default(model, "n_steps"),
            "Steps from an initial velocity to its warp; more steps, larger warps are exact.",
        ),
        (
            "Random seed",
            seed + _default(model, "random_state"),
            "Of the latents that the fit starts from: the same seed gives the same model.",
        ),
    ]


def _weights(names: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in zip(names, values, strict=True))


def _default(model: ShapeAppearanceModel, name: str, explained: str = "") -> str:
    """Return a remark where nobody chose the value."""
    default = inspect.signature(type(model)).parameters[name].default
    return f" (default{explained})" if np.array_equal(getattr(model, name), default) else ""
