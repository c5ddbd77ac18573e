"""A page on its own: title, summary and sections in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from anamorph import __version__
from anamorph.report.markup import Section
from anamorph.storage.replace import replacing

#: What pages are about, above their titles.
KIND = "Shape and appearance model"

_FOLDER = files("anamorph.report")


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
