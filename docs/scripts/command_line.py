"""The reference of the command line, written from the commands themselves.

``python docs/scripts/command_line.py`` writes it below ``<!-- commands -->`` in
``docs/command-line.md``, so that the page can be read where it is; a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import typer

from anamorph.cli import app

MARKER = "<!-- commands -->"
MARKUP = re.compile(r"\[/?[a-z ]+\]")  # of rich, in texts for the terminal


PAGE = Path(__file__).parents[1] / "command-line.md"


def current_page() -> str:
    """Return the page as it should be: its introduction, and the reference of all commands."""
    introduction = PAGE.read_text(encoding="utf-8").partition(MARKER)[0]
    return f"{introduction}{MARKER}\n\n{reference()}\n"


def reference() -> str:
    """Return a section for every command."""
    return "\n\n".join(section(*named) for named in flat(typer.main.get_command(app)))


def flat(group: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return all commands of a group by their full names, e.g. "cluster fit"."""
    named = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            named.extend(flat(command, f"{prefix}{name} "))
        else:
            named.append((f"{prefix}{name}", command))
    return named


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


if __name__ == "__main__":
    PAGE.write_text(current_page(), encoding="utf-8")
