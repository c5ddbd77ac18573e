"""The generative model: its settings and parameters, from latents to images and back."""

from anamorph.model.presets import PRESETS, preset

__all__ = ["PRESETS", "preset"]
