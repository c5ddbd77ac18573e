"""The table of a model's settings: what each is called, what it was, what it does."""

from __future__ import annotations

import numpy as np

from anamorph.estimator import ShapeAppearanceModel
from anamorph.model.hyperparameters import HYPERPARAMETERS, Hyperparameter
from anamorph.report.markup import LATENTS, format_count, format_lengths

Row = tuple[str, str, str]
HEADER = ("Setting", "Value", "What it does")


def settings_rows(model: ShapeAppearanceModel) -> list[Row]:
    """Return a row for each setting that has an effect: its name, its value, and what it does."""
    return [
        *_image_rows(model),
        *(
            (entry.label, _shown_value(model, entry), _meaning(model, entry))
            for entry in HYPERPARAMETERS.values()
            if entry.label and model.latents in entry.layouts
        ),
    ]


def _image_rows(model: ShapeAppearanceModel) -> list[Row]:
    settings, origin = model.settings_, model.origin_
    shown = (
        f"{format_count(origin.n_images, 'image')} of {format_lengths(settings.space)}, "
        f"{format_count(settings.n_channels, *settings.likelihood.channel_nouns)}"
    )
    rows = [("Images", shown, "What the model was fitted to.")]
    if origin.pad:
        meaning = "Added on every side as missing, so that nothing wraps around the grid."
        rows.append(("Margin", format_count(origin.pad, "voxel"), meaning))
    return rows


def _shown_value(model: ShapeAppearanceModel, entry: Hyperparameter) -> str:
    """Return the value that the fit had, and whether it is the default."""
    given, layout = getattr(model, entry.name), model.settings_.layout
    value = given if entry.name == "likelihood" else getattr(model.settings_, entry.name, given)
    shown = entry.default_words or "none" if value is None else entry.shown(value)
    if entry.name == "n_components":
        if model.latents == "separate":
            shown = f"{layout.n_appearance} for appearance, {layout.n_shape} for shape"
        shown += f" ({model.latents})"
    elif entry.name == "n_iter":
        shown = f"{model.n_iter_} of at most {shown}"
    elif entry.name == "decimation" and model.settings_.prediction_weight is not None:
        shown += f" in the fit, {model.settings_.prediction_weight:.2g} for new images"
    elif entry.name == "voxel_size" and model.origin_.affine is not None:
        shown += " mm"
    if not np.array_equal(given, entry.default):
        return shown
    explained = f": {entry.none_means}" if entry.none_means and value is not None else ""
    return f"{shown} (default{explained})"


def _meaning(model: ShapeAppearanceModel, entry: Hyperparameter) -> str:
    """Return what a setting does, or what its value means in this model."""
    if entry.name == "likelihood":
        return f"For {model.settings_.likelihood.description}."
    if entry.name == "n_components":
        return f"Numbers that describe an image: {LATENTS[model.latents]}."
    return f"{entry.help}."
