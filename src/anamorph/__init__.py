"""Shape and appearance models learned from images without annotations.

After Ashburner, Brudfors, Bronik and Balbastre, "An Algorithm for Learning Shape and Appearance
Models without Annotations", Medical Image Analysis (2019).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anamorph.classify.evidence import EvidenceClassifier
    from anamorph.estimator import ShapeAppearanceModel

__version__ = "0.2.0.dev0"
__all__ = ["EvidenceClassifier", "ShapeAppearanceModel", "__version__"]

# Estimators, and Numba with them, are imported when they are first asked for.
_HOMES = {
    "EvidenceClassifier": "anamorph.classify.evidence",
    "ShapeAppearanceModel": "anamorph.estimator",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'anamorph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
