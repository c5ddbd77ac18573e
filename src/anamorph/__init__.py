"""Shape and appearance models learned from images without annotations.

After Ashburner, Brudfors, Bronik and Balbastre, "An Algorithm for Learning Shape and Appearance
Models without Annotations", Medical Image Analysis (2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamorph import moved
from anamorph.exports import lazy_exports

if TYPE_CHECKING:
    from anamorph.classify import EvidenceClassifier as EvidenceClassifier
    from anamorph.classify import GaussianProcessClassifier as GaussianProcessClassifier
    from anamorph.classify import NuisanceRemover as NuisanceRemover
    from anamorph.compare import Comparison as Comparison
    from anamorph.compare import compare_layouts as compare_layouts
    from anamorph.estimator import ShapeAppearanceModel as ShapeAppearanceModel
    from anamorph.explorer import write_explorer as write_explorer
    from anamorph.fitting.run import Progress as Progress
    from anamorph.model.encoding import Encoded as Encoded
    from anamorph.model.presets import PRESETS as PRESETS
    from anamorph.model.presets import preset as preset
    from anamorph.report import write_report as write_report
    from anamorph.storage import Origin as Origin

__version__ = "0.2.0.dev0"

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "classify": ["EvidenceClassifier", "GaussianProcessClassifier", "NuisanceRemover"],
        "compare": ["Comparison", "compare_layouts"],
        "estimator": ["ShapeAppearanceModel"],
        "explorer": ["write_explorer"],
        "fitting.run": ["Progress"],
        "model.encoding": ["Encoded"],
        "model.presets": ["PRESETS", "preset"],
        "report": ["write_report"],
        "storage": ["Origin"],
    },
)
__all__ += ["__version__"]
moved.install()
