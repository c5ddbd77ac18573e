"""ES modules joined into one script, which a page holds without fetching anything.

Modules are kept as they are, but for their imports and the word ``export``; those that a module
imports stand before it. All share one scope, so no two of them may declare the same name.
"""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath

_IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
_DECLARED = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE
)
_EXPORT = re.compile(r"^export (?=async |function|class|const|let)", re.MULTILINE)
_SCRIPTS = files("anamorph.explorer") / "scripts"


class BundleError(Exception):
    """Modules that cannot be joined."""


def joined_modules(entry: str, folder: Traversable = _SCRIPTS) -> str:
    """Return the script of a module and of all that it imports.

    Parameters
    ----------
    entry : str
        Path of the module in the folder, e.g. "worker.js".
    folder : Traversable
        Where modules are; by default those of this package.
    """
    ordered: dict[str, str] = {}
    _collect(entry, folder, ordered, ())
    owners: dict[str, str] = {}
    for path, text in ordered.items():
        for name in _DECLARED.findall(text):
            if name in owners:
                raise BundleError(f"{owners[name]} and {path} both declare {name}: rename one")
            owners[name] = path
    script = "\n".join(_EXPORT.sub("", text) for text in ordered.values())
    if "</script" in script.lower() or "<!--" in script:
        raise BundleError(f"{entry} or what it imports holds text that would end a script")
    return script


def _collect(
    path: str, folder: Traversable, ordered: dict[str, str], above: tuple[str, ...]
) -> None:
    """Add a module after those that it imports."""
    if path in ordered:
        return
    if path in above:
        raise BundleError(f"modules import each other in a circle: {' -> '.join((*above, path))}")
    text = folder.joinpath(path).read_text(encoding="utf-8")
    for imported in _IMPORT.findall(text):
        other = normpath(join(dirname(path), imported))
        _collect(other, folder, ordered, (*above, path))
    rest = _IMPORT.sub("", text)
    if re.search(r"^(import\b|export (default|\{|\*))", rest, re.MULTILINE):
        raise BundleError(f'{path} has an import or export of a form other than {{names}} from "x"')
    ordered[path] = rest
