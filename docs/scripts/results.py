"""Numbers of experiments, put into their pages when the site is built.

A page ``results/NAME.md`` shows numbers of ``results/NAME/results.json``, which an experiment
wrote:

- ``{{ ENTRY.KEY }}`` is a number, ``{{ ENTRY.KEY | .2f }}`` one with a format. Keys of what is
  inside follow after dots, as do places in lists: ``{{ 300.error_percent_95.0 | .1f }}``.
- A line with ``{{ *.KEY }}`` is repeated for every entry, in the order of the file, or of their
  numbers if that is what entries are called; ``{{ * }}`` is the entry's name.

What is not there stops the build, so that no page says what no experiment has found.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

PLACE = re.compile(r"\{\{ (.+?)(?: \| ([^}]+))? \}\}")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Fill in the numbers of a page of results (called by MkDocs)."""
    folder, _, name = page.file.src_uri.rpartition("/")
    if folder != "results":
        return markdown
    path = Path(config.docs_dir) / folder / Path(name).stem / "results.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return fill(markdown, results, name)


def fill(markdown: str, results: dict[str, Any], name: str) -> str:
    """Return a page with the numbers of its experiment.

    Parameters
    ----------
    markdown : str
    results : dict
        Entries of ``results.json``.
    name : str
        Of the page, for errors.
    """
    are_numbers = all(entry.isdigit() for entry in results)
    entries = sorted(results, key=int) if are_numbers else list(results)
    lines = []
    for line in markdown.split("\n"):
        if re.search(r"\{\{ \*[. ]", line):
            lines += [
                _filled(line.replace("{{ * }}", entry).replace("{{ *.", f"{{{{ {entry}."), results)
                for entry in entries
            ]
        else:
            lines.append(_filled(line, results))
    missing = [place for line in lines for place, _ in PLACE.findall(line)]
    if missing:
        raise PluginError(f"{name}: results.json has no {missing[0]}: run the experiment again")
    return "\n".join(lines)


def _filled(line: str, results: dict[str, Any]) -> str:
    """Return a line with its numbers; places of which there is no number stay as they are."""

    def number(match: re.Match[str]) -> str:
        try:
            value = look_up(results, match[1])
        except (KeyError, IndexError, TypeError, ValueError):
            return match[0]
        return "–" if value is None else format(value, match[2] or "")

    return PLACE.sub(number, line)


def look_up(results: Any, path: str) -> Any:
    """Return what stands at a path of keys and of places in lists, joined by dots."""
    value = results
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return ", ".join(map(str, value)) if isinstance(value, list) else value
