"""Pages whose examples run when the site is built, with what they print and draw below them.

A page that has ``executed: true`` at its top is run from its first example to its last, in a folder
of its own:

- ``python`` blocks share their variables. Below each stands what it prints, and the value of its
  last line if that is an expression: a figure as a picture, described by ``figure="..."`` in
  the first line of the block, anything else as text.
- ``console`` blocks hold commands, each after a ``$``, for the shell.

An example that fails stops the build.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

BLOCK = re.compile(r"^```(python|console)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r'\s*figure="([^"]*)"')


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Run the examples of a page that asks for it (called by MkDocs)."""
    if not page.meta.get("executed"):
        return markdown
    folder, name = os.path.split(page.file.src_uri)
    with tempfile.TemporaryDirectory() as workplace, contextlib.chdir(workplace):
        markdown, pictures = execute(markdown, page.file.src_uri)
    for number, picture in enumerate(pictures):
        uri = f"{folder}/{picture_name(name, number)}"
        files.append(File.generated(config, uri, content=picture))
    return markdown


def execute(markdown: str, name: str) -> tuple[str, list[bytes]]:
    """Run the examples of a page in the present folder.

    Parameters
    ----------
    markdown : str
    name : str
        Of the page, for errors and for the names of its pictures.

    Returns
    -------
    markdown : str
        With what examples print and draw.
    pictures : list of bytes
        The figures as PNG.
    """
    variables: dict[str, Any] = {"__name__": "__main__"}
    pictures: list[bytes] = []

    def run(match: re.Match[str]) -> str:
        language, options, code = match.groups()
        line = markdown.count("\n", 0, match.start()) + 1
        described = FIGURE.search(options)
        shown = f"```{language}{FIGURE.sub('', options)}\n{code}```\n"
        text, value = "", None
        try:
            if language == "console":
                text = run_commands(code)
            else:
                text, value = run_python(code, variables)
        except Exception as error:
            raise PluginError(f"{name}: the example in line {line} failed: {error}") from error
        figure = as_figure(value)
        if figure is None and value is not None:
            text += f"{value!r}\n"
        if text:
            shown += f"\n```{{ .text .output }}\n{text.rstrip()}\n```\n"
        if figure is not None:
            if described is None:
                raise PluginError(f'{name}: the figure of line {line} needs figure="..."')
            shown += f"\n![{described[1]}]({picture_name(os.path.basename(name), len(pictures))})\n"
            pictures.append(as_png(figure))
        return shown

    return BLOCK.sub(run, markdown), pictures


def run_python(code: str, variables: dict[str, Any]) -> tuple[str, object]:
    """Return what code prints, and the value of its last line if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<example>", "exec"), variables)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<example>", "eval"), variables)
    return printed.getvalue(), value


def run_commands(code: str) -> str:
    """Return what commands print."""
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", textwrap.dedent(code), re.MULTILINE)
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    environment = os.environ | {
        "PATH": os.pathsep.join(places),
        "COLUMNS": "92",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    printed = ""
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout[-400:]}")
        printed += done.stdout
    return printed


def as_figure(value: object) -> Any:
    """Return the figure that a value is or belongs to, or None."""
    figure = getattr(value, "figure", value)
    return figure if hasattr(figure, "savefig") else None


def as_png(figure: Any) -> bytes:
    """Return a matplotlib figure as a file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, facecolor="white")
    return file.getvalue()


def picture_name(page: str, number: int) -> str:
    """Return the name of a picture of a page."""
    return f"{Path(page).stem}-{number + 1}.png"
