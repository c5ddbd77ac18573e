"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return what a package needs to export names without importing their modules.

    ``import anamorph`` and ``anamorph --help`` stay quick this way: Numba, SciPy and matplotlib
    are loaded by the modules that use them.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict of lists of str
        The names that each module of the package holds, by the module's name relative to the
        package. A name that starts with "anamorph." is absolute.

    Returns
    -------
    all_names : list of str
        For ``__all__``.
    getattr_ : callable
        For ``__getattr__``.
    dir_ : callable
        For ``__dir__``.
    """
    module_of = {
        name: module if module.startswith("anamorph.") else f"{package}.{module}"
        for module, names in homes.items()
        for name in names
    }

    def get_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return sorted(module_of), get_name, list_names
