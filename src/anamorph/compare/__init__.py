"""Models and layouts compared by what they predict of voxels that they have not seen."""

from anamorph.compare.layouts import (
    Comparison,
    compare_layouts,
    hide_boxes,
    hide_rectangles,
    layout_models,
    score_hidden,
)

__all__ = [
    "Comparison",
    "compare_layouts",
    "hide_boxes",
    "hide_rectangles",
    "layout_models",
    "score_hidden",
]
