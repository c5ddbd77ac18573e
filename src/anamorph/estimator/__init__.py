"""The estimator that people call: one class, in three files by what it does.

`model` has the hyperparameters and the fit, `fitted` what a fitted model does with images and
latents, `template` what it does in the space of its template, which `template_space` describes.
"""

from anamorph.estimator.fitted import PARTS
from anamorph.estimator.model import OpenSites, ShapeAppearanceModel

__all__ = ["PARTS", "OpenSites", "ShapeAppearanceModel"]
