"""The reference of the command line, written from the commands themselves when the site is built.

It takes the place of ``<!-- commands -->`` on any page.
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

MARKER = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the reference where a page asks for it (called by MkDocs)."""
    return markdown.replace(MARKER, reference()) if MARKER in markdown else markdown


def reference() -> str:
    """Return a section for every command."""
    if find_spec("anamorph.cli") is None:
        return "This version has no command line."
    import typer

    from anamorph.cli import app

    program = typer.main.get_command(app)
    commands: dict[str, Any] = getattr(program, "commands", {})
    return "\n\n".join(section(name, command) for name, command in commands.items())


def section(name: str, command: Any) -> str:
    """Return what a command does, how it is called, and its arguments and options."""
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [
        item for item in command.params if item.param_type_name == "option" and not item.hidden
    ]
    usage = " ".join(["anamorph", name, *(usage_of(item) for item in arguments), "[options]"])
    parts = [
        f"## {name}",
        described(command.help),
        f"```console\n$ {usage}\n```",
        table("argument", [(usage_of(item), item) for item in arguments]),
        table("option", [(names_of(item), item) for item in options]),
        described(command.epilog),
    ]
    return "\n\n".join(part for part in parts if part)


def described(text: str | None) -> str:
    """Return the text of a command as paragraphs."""
    return inspect.cleandoc(text or "").replace("\b", "").strip()


def usage_of(argument: Any) -> str:
    """Return an argument as it stands in a call."""
    name = (argument.metavar or argument.name).upper()
    repeated = f"{name}..." if argument.nargs == -1 else name
    return repeated if argument.required else f"[{repeated}]"


def names_of(option: Any) -> str:
    """Return the names of an option, with what it takes."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    choices = getattr(option.type, "choices", None)
    taken = " \\| ".join(map(str, choices)) if choices else option.type.name.replace("_", " ")
    return f"{names} {taken}"


def table(kind: str, rows: list[tuple[str, Any]]) -> str:
    """Return arguments or options with what they mean, or nothing if there are none."""
    if not rows:
        return ""
    lines = [f"| {kind} | meaning |", "|---|---|"]
    for name, item in rows:
        meaning = " ".join((getattr(item, "help", None) or "").split()).replace("|", "\\|")
        default = getattr(item, "default", None)
        is_worth_saying = default not in (None, False, (), []) and not callable(default)
        lines.append(f"| {name} | {meaning}{f' Default: `{default}`.' if is_worth_saying else ''} |")
    return "\n".join(lines)
