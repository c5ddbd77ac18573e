"""Settings of a fit: those of a preset, changed by a TOML file, changed by flags."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anamorph.cli.terminal import values
from anamorph.cli.terminal.errors import CommandError, checking
from anamorph.cli.terminal.flags import FLAGS, KEYS
from anamorph.model.presets import PRESETS

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.files import FileImages

_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "n_components": values.components,
    "shape_penalty": values.numbers,
    "appearance_penalty": values.numbers,
    "mean_penalty": values.numbers,
    "balance": values.numbers,
    "voxel_size": values.numbers,
    "memory_budget": values.memory,
}


def merged_settings(
    preset: str | None, config: Path | None, flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments of the estimator.

    Parameters
    ----------
    preset : str, optional
        Name of a preset, which gives way to everything else.
    config : Path, optional
        A TOML file, which gives way to flags.
    flags : dict
        What was typed, by name of the argument; None was not typed.
    """
    if preset is not None and preset not in PRESETS:
        raise CommandError(f"--preset must be one of {', '.join(PRESETS)}, got {preset}")
    typed = {name: _parsed(name, value) for name, value in flags.items() if value is not None}
    chosen = dict(PRESETS[preset]) if preset is not None else {}
    return chosen | ({} if config is None else read_settings(config)) | typed


def read_settings(path: Path) -> dict[str, Any]:
    """Return the arguments in a TOML file, whose keys are flags without their dashes in front.

    For instance ``shape-penalty = [0.002, 0.02, 2, 0.2, 0.2]``; an underscore does as well.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not a TOML file: {error}") from None
    settings = {}
    for key, value in table.items():
        known = key.replace("_", "-")
        if known not in KEYS:
            raise CommandError(f"{path} sets {key!r}, and settings are {', '.join(KEYS)}")
        settings[KEYS[known]] = _from_toml(path, key, KEYS[known], value)
    return settings


def chosen_likelihood(likelihood: str | None, labels: bool, tissues: bool) -> str | None:
    """Return the likelihood that flags ask for: label maps and tissue maps are categorical."""
    if not (labels or tissues):
        return likelihood
    if labels and tissues:
        raise typer.BadParameter("images are label maps or tissue maps", param_hint="--labels")
    from anamorph.likelihoods import LIKELIHOODS, OF_CLASSES

    chosen = likelihood or OF_CLASSES
    if chosen not in LIKELIHOODS or not LIKELIHOODS[chosen].holds_classes:
        raise typer.BadParameter(
            f"label maps and tissue maps are {OF_CLASSES}, not {likelihood}",
            param_hint="--likelihood",
        )
    return chosen


def check_settings(model: ShapeAppearanceModel, files: FileImages) -> None:
    """Check settings before a fit does, in which a ValueError would be a bug."""
    from anamorph.arrays.devices import DEVICES
    from anamorph.kernels.threads import use_threads
    from anamorph.model.arguments import check_choice, checked_seed, checked_settings

    if model.latents == "separate" and isinstance(model.n_components, int):
        raise CommandError(
            "--latents separate needs two numbers of latents, for appearance and for shape, e.g. "
            f"--components 10,20, got {model.n_components}"
        )
    with checking():
        checked_settings(model.get_params(deep=False), files.format, len(files), files.voxel_size)
        checked_seed(model.random_state)
        check_choice("device", model.device, DEVICES)
        with use_threads(model.n_threads):
            pass


def _from_toml(path: Path, key: str, name: str, value: Any) -> Any:
    if isinstance(value, list):
        if not all(isinstance(item, int | float) for item in value):
            raise CommandError(f"{path}: {key} must be a list of numbers, got {value}")
        return tuple(value)
    if isinstance(value, dict):
        raise CommandError(f"{path}: {key} must be a value, not a table")
    return _parsed(name, value)


def _parsed(name: str, value: Any) -> Any:
    """Return a value, read where it is still a text and should be numbers."""
    if isinstance(value, str) and name in _PARSERS:
        return _PARSERS[name](FLAGS[name], value)
    return value
