"""Classifiers: by the evidence of images under models, and by their latents."""

from anamorph.classify.evidence import EvidenceClassifier
from anamorph.classify.gaussian_process import GaussianProcessClassifier
from anamorph.classify.nuisance import NuisanceRemover

__all__ = ["EvidenceClassifier", "GaussianProcessClassifier", "NuisanceRemover"]
