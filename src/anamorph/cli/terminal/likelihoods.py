"""Help on likelihoods, from the source of their files: importing them would make help slow."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import anamorph

_FOLDER = Path(anamorph.__file__).parent / "likelihoods"


def likelihood_help() -> str:
    """Return e.g. "gaussian (intensities, the default), bernoulli (binary) or ..."."""
    default = _constants(_statements(_FOLDER / "__init__.py"))["DEFAULT"]
    classes = [
        _constants(statement.body)
        for path in sorted(_FOLDER.glob("*.py"))
        for statement in _statements(path)
        if isinstance(statement, ast.ClassDef)
    ]
    briefs = {words["name"]: words["brief"] for words in classes if "name" in words}
    first = f"{default} ({briefs.pop(default)}, the default)"
    *others, last = (f"{name} ({brief})" for name, brief in sorted(briefs.items()))
    return ", ".join([first, *others]) + f" or {last}."


def _statements(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def _constants(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Return the texts that statements give names to."""
    return {
        target.id: statement.value.value
        for statement in statements
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }
