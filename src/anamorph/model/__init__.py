"""The generative model: its settings and parameters, from latents to images and back."""

from typing import Any

from anamorph.model.presets import PRESETS, preset
from anamorph.moved import find_moved_name

__all__ = ["PRESETS", "preset"]


def __getattr__(name: str) -> Any:  # `anamorph.model` was the module of the estimator
    return find_moved_name(__name__, name)
