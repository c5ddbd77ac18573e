"""``anamorph info``: the facts about a model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anamorph.cli.terminal import options
from anamorph.cli.terminal.messages import Messages
from anamorph.cli.terminal.models import load_model
from anamorph.model.hyperparameters import HYPERPARAMETERS

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel

EXAMPLES = """[bold]Examples[/bold]
anamorph info model.safetensors
anamorph info model.safetensors --json"""

#: Settings that people see where they are not the default, by their names on the command line.
_SETTINGS = ("align", "intensity", "residual", "levels", "decimation")


@options.command()
def info(
    model_file: options.ModelFile,
    messages: Messages,
) -> None:
    """Say what a model is: its images, its settings, and how its fit went."""
    from rich import box
    from rich.table import Table

    from anamorph.fitting.run import duration

    facts = list_facts(load_model(model_file), model_file)
    messages.result(**facts)
    table = Table("", "", box=box.SIMPLE, show_header=False, title=str(model_file))
    defaults = {HYPERPARAMETERS[name].key: HYPERPARAMETERS[name].default for name in _SETTINGS}
    shown = {
        name.replace("_", " "): _format_value(value)
        for name, value in facts.items()
        if name not in defaults or value != defaults[name]
    }
    shown["seconds"] = duration(facts["seconds"])
    for name, text in shown.items():
        table.add_row("time" if name == "seconds" else name, text)
    messages.answer(table)


def list_facts(model: ShapeAppearanceModel, path: Path) -> dict[str, Any]:
    """Return the facts about a model, as values that JSON can hold."""
    settings, origin = model.settings_, model.origin_
    layout = settings.layout
    return {
        "likelihood": settings.likelihood_name,
        "latents": model.latents,
        "components": layout.n_latents,
        "appearance_modes": layout.n_appearance,
        "shape_modes": layout.n_shape,
        **{HYPERPARAMETERS[name].key: getattr(model, name) for name in _SETTINGS},
        "grid": list(settings.space),
        "channels": settings.n_channels,
        "labels": list(model.image_format_.class_labels) if model.image_format_.labels else None,
        "scale": model.image_format_.scale,
        "voxel_size": [float(size) for size in settings.voxel_size],
        "margin": origin.pad,
        "affine": None if origin.affine is None else origin.affine.tolist(),
        "images": origin.n_images,
        "iterations": model.n_iter_,
        "objective": model.objective_[-1] if model.objective_ else None,
        "seconds": math.fsum(origin.seconds),
        "shape_penalty": list(settings.shape_penalty),
        "appearance_penalty": list(settings.appearance_penalty),
        "mean_penalty": list(settings.mean_penalty),
        "balance": list(settings.balance),
        "prior_dof": settings.prior_dof,
        "bytes": path.stat().st_size,
    }


def _format_value(value: Any) -> str:
    """Return a value as text for people."""
    if value is None:
        return "none"
    if isinstance(value, list):
        if isinstance(value[0], list):
            return "\n".join(" ".join(f"{number:9.4g}" for number in row) for row in value[:3])
        if isinstance(value[0], int):
            return " x ".join(map(str, value))
        return ", ".join(f"{number:.4g}" for number in value)
    if isinstance(value, float):
        return f"{value:.8g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
