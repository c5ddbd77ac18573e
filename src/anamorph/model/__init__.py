"""The generative model: settings and parameters, from latents to images and back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anamorph.model.encoding import Encoded, encode
    from anamorph.model.generator import Generator
    from anamorph.model.parameters import Parameters
    from anamorph.model.predicting import Predictor
    from anamorph.model.settings import LatentLayout, Settings

__all__ = ["Encoded", "Generator", "LatentLayout", "Parameters", "Predictor", "Settings", "encode"]

# Imported when they are first asked for: they load Numba.
_HOMES = {
    "Encoded": "anamorph.model.encoding",
    "Generator": "anamorph.model.generator",
    "LatentLayout": "anamorph.model.settings",
    "Parameters": "anamorph.model.parameters",
    "Predictor": "anamorph.model.predicting",
    "Settings": "anamorph.model.settings",
    "encode": "anamorph.model.encoding",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
