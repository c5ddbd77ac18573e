"""Print the oldest allowed version of every dependency, as constraints that pip understands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_NAME = re.compile(r"[\w.-]+")
_FLOOR = re.compile(r"[>~]=\s*([\w.]+)")
_EXTRAS = ("dev", "cluster", "federation")  # docs and GPUs are for newer versions only


def floors(requirements: Iterable[str]) -> list[str]:
    """Return ``name==version`` for each requirement.

    Parameters
    ----------
    requirements : iterable of str
        As in ``project.dependencies``: ``name>=version`` or ``name~=version``, perhaps with extras
        and further limits.
    """
    constraints = []
    for requirement in requirements:
        name, floor = _NAME.match(requirement), _FLOOR.search(requirement)
        if name is None or floor is None:
            raise ValueError(f"pyproject.toml must say from which version on {requirement!r} works")
        constraints.append(f"{name[0]}=={floor[1]}")
    return constraints


if __name__ == "__main__":
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in _EXTRAS for line in extras[extra])]
    print("\n".join(floors(wanted)))
