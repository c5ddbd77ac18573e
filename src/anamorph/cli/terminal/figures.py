"""Figures as picture files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_DOTS_PER_INCH = 150


def save_figure(figure: Figure | SubFigure, path: Path) -> None:
    """Write a figure of `anamorph.plots` to a PNG file, whole or not at all."""
    from anamorph.storage.replace import replacing

    with replacing(path) as temporary:
        cast("Figure", figure).savefig(temporary, dpi=_DOTS_PER_INCH, bbox_inches="tight")
