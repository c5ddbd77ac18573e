"""The reference of the command line, written from the commands themselves when the site is built.

It takes the place of ``<!-- commands -->`` on any page.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer

from anamorph.cli import app

MARKER = "<!-- commands -->"
MARKUP = re.compile(r"\[/?[a-z ]+\]")  # of rich, in texts for the terminal


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the reference where a page asks for it (called by MkDocs)."""
    return markdown.replace(MARKER, reference()) if MARKER in markdown else markdown


def reference() -> str:
    """Return a section for every command."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return "\n\n".join(section(name, command) for name, command in flattened(commands).items())


def flattened(commands: dict[str, Any]) -> dict[str, Any]:
    """Return commands by name, those of groups by both names."""
    found: dict[str, Any] = {}
    for name, command in commands.items():
        inner = flattened(getattr(command, "commands", {}))
        found |= {f"{name} {other}": one for other, one in inner.items()} or {name: command}
    return found


def section(name: str, command: Any) -> str:
    """Return what a command does, how it is called, and its arguments and options."""
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [
        item for item in command.params if item.param_type_name == "option" and not item.hidden
    ]
    usage = " ".join(["anamorph", name, *map(placeholder, arguments), "[OPTIONS]"])
    parts = [
        f"## {name}",
        inspect.cleandoc(command.help or ""),
        f"```text\n{usage}\n```",
        table("argument", [(f"`{placeholder(item)}`", item) for item in arguments]),
        *(
            table(panel or "option", [(names_of(item), item) for item in some])
            for panel, some in in_panels(options).items()
        ),
        examples(command.epilog or ""),
    ]
    return "\n\n".join(part for part in parts if part)


def in_panels(options: list[Any]) -> dict[str, list[Any]]:
    """Return options by the panel of the help that they are in, "" for those in none."""
    panels: dict[str, list[Any]] = {"": []}
    for item in options:
        panels.setdefault(getattr(item, "rich_help_panel", None) or "", []).append(item)
    return panels


def placeholder(item: Any) -> str:
    """Return what stands for the value of an argument or an option."""
    if item.metavar:
        return f"{item.metavar}{'...' * is_repeated(item)}"
    choices = getattr(item.type, "choices", None)
    return "|".join(map(str, choices)) if choices else str(item.type.name).upper()


def is_repeated(item: Any) -> bool:
    """Tell whether any number of values may be given, and the placeholder does not say so."""
    return item.nargs == -1 and not item.metavar.rstrip("]").endswith("...")


def names_of(option: Any) -> str:
    """Return the names of an option, and what it takes."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    taken = escaped(placeholder(option)).replace(" ", "\N{NO-BREAK SPACE}")
    return f"{names}\N{NO-BREAK SPACE}{taken}"


def table(title: str, rows: list[tuple[str, Any]]) -> str:
    """Return arguments or options with what they mean, or nothing if there are none."""
    if not rows:
        return ""
    lines = [f"| {title} | |", "|---|---|"]
    for name, item in rows:
        meaning = escaped(" ".join((item.help or "").split()))
        default = item.default
        is_worth_saying = default not in (None, False, 0, (), []) and not callable(default)
        meaning += f" By default {default}." if is_worth_saying else ""
        meaning += " Required." if item.required else ""
        lines.append(f"| {name} | {meaning} |")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return text that means itself in a cell of a table."""
    return re.sub(r"([|*_<])", r"\\\1", text)


def examples(epilog: str) -> str:
    """Return the examples of a command as one block, and what else is said below its options."""
    lines = [line.strip() for line in MARKUP.sub("", inspect.cleandoc(epilog)).splitlines()]
    commands = [f"$ {line}" for line in lines if line.startswith("anamorph ")]
    words = [line for line in lines if line and not line.startswith(("anamorph ", "Examples"))]
    block = "```console\n" + "\n".join(commands) + "\n```" if commands else ""
    return "\n\n".join(part for part in (block, "\n".join(words)) if part)
