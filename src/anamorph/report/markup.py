"""HTML from plain values, and their wording: text is escaped, pictures are embedded.

Sections fill a page on its own: one file that needs no network.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from matplotlib.figure import Figure, SubFigure

from anamorph import __version__
from anamorph.images.readers import common_beginning
from anamorph.storage.replace import replacing

_PIXELS_PER_INCH = 96  # of CSS
_ROW_WIDTH = 560  # pixels, least width of a row of images
_SHARPNESS = 1.5  # pixels of a picture per pixel of CSS, for fine screens


LATENTS = {
    "joint": "each changes shape and appearance together",
    "separate": "each changes either appearance or shape",
    "shape": "each changes shape only; all images have the appearance of the mean",
    "appearance": "each changes appearance only; nothing is warped",
}

#: What pages are about, above their titles.
KIND = "Shape and appearance model"

_FOLDER = files("anamorph.report")


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes
    ----------
    anchor : str
        Target of links to it.
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
        """A link to the section, as an item of a list."""
        return f'<li><a href="#{self.anchor}">{escape(self.title)}</a></li>'


def make_paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def make_picture(
    figure: Figure | SubFigure, caption: str, alternative: str, *, is_drawing: bool = False
) -> str:
    """Return a figure with its caption; a click enlarges it.

    Parameters
    ----------
    figure : Figure
        One of its own: a part of another is refused.
    caption : str
        Plain text below the figure.
    alternative : str
        A short description for people who cannot see the figure.
    is_drawing : bool
        Whether the figure consists of lines and points, which stay sharp as SVG; False by default.
    """
    assert isinstance(figure, Figure)
    buffer = io.BytesIO()
    kind = "svg" if is_drawing else "png"
    metadata = {"Date": None} if is_drawing else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=_PIXELS_PER_INCH * _SHARPNESS, metadata=metadata)
    mime = "image/svg+xml" if is_drawing else "image/png"
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    width, height = (round(_PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    # Narrow screens scroll rows of images, which would be too small otherwise.
    narrowest = 0 if is_drawing or width < _ROW_WIDTH else _ROW_WIDTH
    return (
        f'<figure><div class="scroll"><button type="button" title="Click to enlarge">'
        f'<img src="data:{mime};base64,{data}" alt="{escape(alternative)}" '
        f'width="{width}" height="{height}" style="min-width:{narrowest}px"></button></div>\n'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def make_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of plain texts; the first column names the rows."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "\n".join(_make_row(row) for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def make_facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of the most important numbers with their names."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs
    )
    return f'<dl class="facts">{items}</dl>'


def _make_row(cells: Sequence[str]) -> str:
    first, *others = map(escape, cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{c}</td>" for c in others) + "</tr>"


def format_lengths(numbers: Sequence[float]) -> str:
    """Return e.g. "28 × 28"."""
    return " × ".join(f"{number:.4g}" for number in numbers)


def format_percent(share: float) -> str:
    """Return e.g. "23 %", with a digit more below ten."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def format_number(value: float) -> str:
    """Return a number with three digits, and a minus as wide as a plus."""
    written = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return written.replace("-", "\N{MINUS SIGN}")


def grid_unit(space: Sequence[int]) -> str:
    """Return "pixels" or "voxels"."""
    return "pixels" if len(space) == 2 else "voxels"


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Return e.g. "1 image", "2 images" or "12,000 images"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def short_names(names: Sequence[str], most: int) -> list[str]:
    """Return names of at most `most` letters, without their common beginning and end."""
    if max(map(len, names), default=0) <= most:
        return list(names)
    start = _n_common_words(names)
    rests = [name[start:] for name in names]
    end = _n_common_words([rest[::-1] for rest in rests])
    kept = [rest[: len(rest) - end] for rest in rests]
    return [_without_middle(short or name, most) for short, name in zip(kept, names, strict=True)]


def _n_common_words(names: Sequence[str]) -> int:
    """Return the number of letters that all names begin with, up to the end of a word."""
    same = enumerate(common_beginning(names), start=1)
    return max((n for n, letter in same if not letter.isalnum()), default=0)


def _without_middle(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"


def read_part(name: str) -> str:
    """Return the text of a file of this package."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def fill_page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return a page as HTML.

    Parameters
    ----------
    title : str
        Plain text.
    summary : str
        HTML below the title.
    sections : list of Section
    """
    return Template(read_part("page.html")).substitute(
        title=escape(title),
        kind="" if title == KIND else f'<p class="kind">{KIND}</p>',
        version=__version__,
        date=date.today().isoformat(),
        style=read_part("style.css"),
        script=read_part("enlarge.js"),
        contents="\n".join(section.link for section in sections),
        summary=summary,
        sections="\n".join(section.html for section in sections),
    )


def write_page(path: Path, title: str, summary: str, sections: Sequence[Section]) -> None:
    """Write a page, completely or not at all; parameters as in `fill_page`."""
    with replacing(path) as temporary:
        temporary.write_text(fill_page(title, summary, sections), encoding="utf-8")
