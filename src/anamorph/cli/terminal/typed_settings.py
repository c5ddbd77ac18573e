"""The settings of a model as one parameter of a command, for which people type many options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anamorph.cli.terminal.flags import KEYS
from anamorph.cli.terminal.setting_options import SETTINGS
from anamorph.cli.terminal.settings import chosen_likelihood, merged_settings

Command = Callable[..., None]


@dataclass(frozen=True)
class TypedSettings:
    """What was typed of the settings of a model.

    Attributes
    ----------
    preset : str or None
    config : Path or None
        A TOML file.
    labels : bool
        Whether images are label maps.
    flags : dict
        All others, by the argument of the estimator that they set; None: not typed.
    """

    preset: str | None
    config: Path | None
    labels: bool
    flags: dict[str, Any]

    @classmethod
    def collected(cls, options: dict[str, Any]) -> TypedSettings:
        """Return what was typed, from values of options by their names in `SETTINGS`."""
        flags = dict(options)
        preset, config = flags.pop("preset", None), flags.pop("config", None)
        labels = flags.pop("labels", False)
        by_argument = {KEYS[name.replace("_", "-")]: value for name, value in flags.items()}
        return cls(preset, config, labels, by_argument)

    def also(self, **flags: Any) -> TypedSettings:
        """Return these settings with others, by the argument of the estimator that they set."""
        return replace(self, flags=self.flags | flags)

    def merged(self, tissues: bool = False) -> dict[str, Any]:
        """Return arguments of the estimator: of the preset, the file and the flags.

        Parameters
        ----------
        tissues : bool
            Whether images are tissue maps.
        """
        likelihood = chosen_likelihood(self.flags.get("likelihood"), self.labels, tissues)
        return merged_settings(self.preset, self.config, self.flags | {"likelihood": likelihood})


def with_settings(*names: str, but: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command options for settings of a model, in place of its parameter ``settings``.

    The command gets what was typed as one `TypedSettings`. All of its parameters must be such that
    they can be given by name.

    Parameters
    ----------
    *names : str
        Options of `SETTINGS`, in the order in which help shows them; by default all.
    but : collection of str
        Those of all to leave out.
    """
    chosen = names or tuple(name for name in SETTINGS if name not in but)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            typed = {name: given.pop(name) for name in chosen}
            command(settings=TypedSettings.collected(typed), **given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        options = [
            option
            for parameter in own
            for option in (
                map(_option, chosen) if parameter.annotation is TypedSettings else [parameter]
            )
        ]
        by_name = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
        run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
        return run

    return decorate


def _option(name: str) -> inspect.Parameter:
    annotation, default = SETTINGS[name]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
