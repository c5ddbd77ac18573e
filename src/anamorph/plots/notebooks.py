"""Figures and axes that notebooks show when they are the last expression of a cell.

Notebooks show the figures of pyplot, which anamorph does not use: it needs no screen.
"""

from __future__ import annotations

import io
from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that notebooks show."""

    def _repr_png_(self) -> bytes:
        return png_of(self)


class ShownAxes(Axes):
    """Axes whose figure notebooks show."""

    def _repr_png_(self) -> bytes:
        figure = cast("Figure", self.figure)  # `get_figure(root=True)` needs matplotlib 3.10
        return png_of(figure)


def png_of(figure: Figure) -> bytes:
    """Return a figure as a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()
