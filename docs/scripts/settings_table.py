"""Tables of all settings and of default penalties, written from the package itself.

They take the place of ``<!-- settings -->`` and ``<!-- default penalties -->`` on any page.
"""

from __future__ import annotations

from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.hyperparameters import HYPERPARAMETERS, LAYOUTS, Hyperparameter


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the tables where a page asks for them (called by MkDocs)."""
    for marker, write in (
        ("<!-- settings -->", settings_table),
        ("<!-- default penalties -->", penalties_table),
    ):
        markdown = markdown.replace(marker, write()) if marker in markdown else markdown
    return markdown


def settings_table() -> str:
    """Return a row for every hyperparameter."""
    lines = ["| argument | flag | accepted | default | what it does |", "|---|---|---|---|---|"]
    for entry in HYPERPARAMETERS.values():
        cells = (
            f"[`{entry.name}`](#{entry.name})",
            f"`{entry.flag}`" if entry.flag else "",
            entry.accepted.words,
            entry.default_words or "none",
            f"{entry.help}.{layouts_note(entry)}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def layouts_note(entry: Hyperparameter) -> str:
    """Return with which latents a setting has no effect, if there are any."""
    without = [f'`latents="{name}"`' for name in LAYOUTS if name not in entry.layouts]
    return f" No effect with {' or '.join(without)}." if without else ""


def penalties_table() -> str:
    """Return the default penalties of every likelihood."""
    names = ("shape", "appearance", "mean")
    header = " | ".join(f"`{name}_penalty`" for name in names)
    lines = [f"| likelihood | {header} |", "|---|---|---|---|"]
    for likelihood, found in LIKELIHOODS.items():
        weights = (", ".join(f"{weight:g}" for weight in found.default_penalties[n]) for n in names)
        lines.append(f"| {likelihood} | {' | '.join(weights)} |")
    return "\n".join(lines)
