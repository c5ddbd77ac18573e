"""Settings of a model on the command line: options from the table of hyperparameters, and values.

A command with a parameter ``settings: ModelSettings`` gets all options of the table by the
decorator `command_with_settings`. A TOML file overrides a preset, and flags override both.
"""

from __future__ import annotations

import inspect
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.options import Command
from anamorph.model.hyperparameters import AUTO, HYPERPARAMETERS, KEYS
from anamorph.model.presets import PRESETS, preset

_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
#: What Typer reads itself, by what the help calls it; it passes on all else as a text.
_KINDS: dict[str, type] = {"N": int, "NUMBER": float, "SHARE": float}


def _parameters() -> Iterator[inspect.Parameter]:
    """Yield the parameters that stand for settings in a command, in the order of the help."""
    yield options.by_name("preset", default=None, annotation=options.Preset)
    yield options.by_name("config", default=None, annotation=options.Config)
    for name, entry in HYPERPARAMETERS.items():
        if entry.flag:
            kind: Any = _KINDS.get(entry.typed, str)
            annotation = Annotated[kind | None, options.setting_option(name)]
            yield options.by_name(name, default=None, annotation=annotation)
        if name == "likelihood":
            yield options.by_name("labels", default=False, annotation=options.Labels)


_PARAMETERS = {parameter.name: parameter for parameter in _parameters()}


@dataclass(frozen=True)
class ModelSettings:
    """The settings of a model as the user typed them.

    Attributes
    ----------
    preset : str or None
        The name of a preset.
    config : Path or None
        A TOML file.
    labels : bool
        Whether images are label maps.
    flags : dict
        All others, by the argument of the estimator that they set; None: not typed.
    """

    preset: str | None = None
    config: Path | None = None
    labels: bool = False
    flags: dict[str, Any] = field(default_factory=dict)

    def also(self, **flags: Any) -> ModelSettings:
        """Return these settings with others, by the argument of the estimator that they set."""
        return replace(self, flags=self.flags | flags)

    def merged(self, tissues: bool = False) -> dict[str, Any]:
        """Return the arguments of the estimator that the preset, the file and the flags set.

        Parameters
        ----------
        tissues : bool
            Whether images are tissue maps; by default not.
        """
        likelihood = chosen_likelihood(self.flags.get("likelihood"), self.labels, tissues)
        typed = self.flags | {"likelihood": likelihood}
        if self.preset is not None and self.preset not in PRESETS:
            raise CommandError(f"--preset must be one of {', '.join(PRESETS)}, got {self.preset}")
        return (
            ({} if self.preset is None else preset(self.preset))
            | ({} if self.config is None else read_settings(self.config))
            | {name: _parsed(name, value) for name, value in typed.items() if value is not None}
        )


def command_with_settings(*names: str, but: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the options of settings, in place of its parameter ``settings``.

    Typer makes options from the parameters of a function. The decorated command has one parameter
    for each setting in its signature, collects what was typed into one `ModelSettings` and calls
    the function with it. All other parameters are passed on by name.

    Parameters
    ----------
    *names : str
        Arguments of the estimator, or "preset", "config" and "labels"; by default all.
    but : collection of str
        Those of all to leave out; by default none.
    """
    chosen = [_PARAMETERS[name] for name in names or _PARAMETERS if name not in but]

    def decorate(command: Command) -> Command:
        def run(**given: Any) -> None:
            flags = {option.name: given.pop(option.name) for option in chosen}
            beyond = {
                name: flags.pop(name) for name in ("preset", "config", "labels") if name in flags
            }
            command(settings=ModelSettings(**beyond, flags=flags), **given)

        return options.replace_parameters(run, command, {"settings": chosen})

    return decorate


def read_settings(path: Path) -> dict[str, Any]:
    """Return the arguments in a TOML file, whose keys are flags without their dashes in front.

    For instance ``shape-penalty = [0.002, 0.02, 2, 0.2, 0.2]``; an underscore may replace a hyphen.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not a TOML file: {error}") from None
    settings = {}
    for key, value in table.items():
        name = KEYS.get(key.replace("_", "-"))
        if name is None:
            raise CommandError(f"{path} sets {key!r}, and settings are {', '.join(KEYS)}")
        if isinstance(value, dict):
            raise CommandError(f"{path}: {key} must be a value, not a table")
        if isinstance(value, list):
            if not all(isinstance(item, int | float) for item in value):
                raise CommandError(f"{path}: {key} must be a list of numbers, got {value}")
            value = tuple(value)
        settings[name] = _parsed(name, value)
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


def _parsed(name: str, value: Any) -> Any:
    """Return a value, read where it is still a text and should be numbers."""
    entry = HYPERPARAMETERS[name]
    parse = _PARSERS.get(entry.typed.split()[-1])
    return parse(entry.flag, value) if parse and isinstance(value, str) else value


def parse_numbers(flag: str, text: str) -> tuple[float, ...]:
    """Return numbers that are separated by commas or spaces.

    Parameters
    ----------
    flag : str
        Named by the error.
    text : str
        E.g. "0.002,0.02,2".

    Returns
    -------
    tuple of float
        At least one, all finite.
    """
    words = text.replace(",", " ").split()
    try:
        values = tuple(float(word) for word in words)
    except ValueError:
        values = ()
    if not values or not all(map(math.isfinite, values)):
        raise typer.BadParameter(f"{text!r} must be numbers, separated by commas", param_hint=flag)
    return values


def parse_integers(flag: str, text: str) -> tuple[int, ...]:
    """Return whole numbers that are separated by commas or spaces."""
    values = parse_numbers(flag, text)
    if not all(value.is_integer() for value in values):
        raise typer.BadParameter(f"{text!r} must be whole numbers", param_hint=flag)
    return tuple(int(value) for value in values)


def parse_words(flag: str, text: str) -> tuple[str, ...]:
    """Return words that are separated by commas or spaces."""
    found = tuple(text.replace(",", " ").split())
    if not found:
        raise typer.BadParameter("must be words, separated by commas", param_hint=flag)
    return found


def parse_components(flag: str, text: str) -> int | tuple[int, ...]:
    """Return a number of latents, or the two numbers for appearance and shape."""
    values = parse_integers(flag, text)
    return values[0] if len(values) == 1 else values


def parse_memory(flag: str, text: str) -> int:
    """Return bytes: "4GB" is 4e9 of them, "4GiB" is 4 * 2^30."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} must be like 500MB or 4GB", param_hint=flag)
    amount, unit, is_binary = found.groups()
    return int(float(amount) * (1024 if is_binary else 1000) ** _POWERS[unit.lower()])


def parse_weight(flag: str, text: str) -> float | str:
    """Return a number, or the word auto."""
    if text == AUTO:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} must be a number or auto", param_hint=flag) from None


def parse_count(flag: str, text: str) -> int | str:
    """Return a whole number, or the word auto."""
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be a whole number or auto", param_hint=flag
        ) from None


#: What reads the texts, by what the help calls them, without a number in front.
_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "NUMBERS": parse_numbers,
    "K": parse_components,
    "SIZE": parse_memory,
    "WEIGHT": parse_weight,
    "COUNT": parse_count,
}
