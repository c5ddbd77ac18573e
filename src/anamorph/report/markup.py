"""HTML from plain values: everything that people wrote is escaped, every picture is embedded."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

_PIXELS_PER_INCH = 96  # of CSS
_ROW_WIDTH = 560  # pixels that a row of images needs
_SHARPNESS = 1.5  # pixels of a picture per pixel of CSS, for screens that have them


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes
    ----------
    anchor : str
        What links to it say.
    title : str
    body : str
        HTML.
    """

    anchor: str
    title: str
    body: str

    @property
    def html(self) -> str:
        """The section, with its heading."""
        return (
            f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">\n'
            f'<h2 id="{self.anchor}-title">{escape(self.title)}</h2>\n{self.body}\n</section>'
        )

    @property
    def link(self) -> str:
        """A link to it."""
        return f'<li><a href="#{self.anchor}">{escape(self.title)}</a></li>'


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def picture(figure: Figure, caption: str, alternative: str, *, is_drawing: bool = False) -> str:
    """Return a figure with its caption, which a click enlarges.

    Parameters
    ----------
    figure : Figure
    caption : str
        What it shows, in plain text.
    alternative : str
        The same for those who cannot see it, in a few words.
    is_drawing : bool
        Whether it consists of lines and points, which stay sharp as SVG, and not of images.
    """
    buffer = io.BytesIO()
    kind = "svg" if is_drawing else "png"
    metadata = {"Date": None} if is_drawing else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=_PIXELS_PER_INCH * _SHARPNESS, metadata=metadata)
    mime = "image/svg+xml" if is_drawing else "image/png"
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    width, height = (round(_PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    # Rows of images are scrolled on narrow screens, where they would else be too small to see.
    narrowest = 0 if is_drawing or width < _ROW_WIDTH else _ROW_WIDTH
    return (
        f'<figure><div class="scroll"><button type="button" title="Click to enlarge">'
        f'<img src="data:{mime};base64,{data}" alt="{escape(alternative)}" '
        f'width="{width}" height="{height}" style="min-width:{narrowest}px"></button></div>\n'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of plain texts, whose first column names the rows."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "\n".join(_row(row) for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a few numbers that matter most, each with its name."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs
    )
    return f'<dl class="facts">{items}</dl>'


def _row(cells: Sequence[str]) -> str:
    first, *others = map(escape, cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{c}</td>" for c in others) + "</tr>"
