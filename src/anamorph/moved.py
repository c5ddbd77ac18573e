"""Modules of version 0.1 that have moved: their documented names still import, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Modules that no longer exist, and where their public names are now: the first module that has a
#: name is its home.
MOVED: dict[str, tuple[str, ...]] = {
    "anamorph.io": ("anamorph.images", "anamorph.storage"),
    "anamorph.io.arrays": ("anamorph.images",),
    "anamorph.io.collection": ("anamorph.images",),
    "anamorph.io.errors": ("anamorph.images", "anamorph.storage"),
    "anamorph.io.files": ("anamorph.images",),
    "anamorph.io.grid": ("anamorph.images",),
    "anamorph.io.hidden": ("anamorph.images",),
    "anamorph.io.modelfile": ("anamorph.storage",),
    "anamorph.io.names": ("anamorph.images",),
    "anamorph.io.nifti": ("anamorph.storage",),
    "anamorph.io.participants": ("anamorph.images",),
    "anamorph.encoding": ("anamorph",),
    "anamorph.generator": ("anamorph.model.generator",),
    "anamorph.parameters": ("anamorph.model.parameters",),
    "anamorph.presets": ("anamorph",),
    "anamorph.progress": ("anamorph", "anamorph.fitting.run"),
    "anamorph.settings": ("anamorph.model.settings",),
    "anamorph.federation.agent": ("anamorph.federation",),
    "anamorph.federation.analysis": (
        "anamorph.federation",
        "anamorph.federation.coordinator.statistics",
    ),
    "anamorph.federation.errors": ("anamorph.federation",),
    "anamorph.federation.fit": ("anamorph.federation",),
    "anamorph.federation.identity": (
        "anamorph.federation",
        "anamorph.federation.protocol.identity",
    ),
    "anamorph.federation.policy": ("anamorph.federation",),
    "anamorph.federation.transport": ("anamorph.federation",),
}
#: Names of modules that are packages now.
MOVED_NAMES: dict[str, dict[str, str]] = {
    "anamorph.model": {"PARTS": "anamorph.estimator", "ShapeAppearanceModel": "anamorph"},
}


def find_moved_name(module: str, name: str, homes: Sequence[str] | None = None) -> Any:
    """Return a name from where it is now, with a DeprecationWarning that says where.

    Parameters
    ----------
    module, name : str
        Where the name was in version 0.1.
    homes : sequence of str, optional
        Modules to look for it in; by default what `MOVED_NAMES` says.

    Raises
    ------
    AttributeError
        If the module never documented such a name.
    """
    if homes is None:
        homes = [home for known, home in MOVED_NAMES.get(module, {}).items() if known == name]
    for home in homes if not name.startswith("__") else ():
        found = getattr(import_module(home), name, None)
        if found is not None:
            warnings.warn(
                f"{module}.{name} has moved: import {name} from {home}",
                DeprecationWarning,
                stacklevel=3,
            )
            return found
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


class MovedModules(MetaPathFinder, Loader):
    """An import finder for the modules of `MOVED`: each becomes a module that looks names up."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to make a module that has moved, and None for every other module."""
        if name not in MOVED:
            return None
        return ModuleSpec(name, self, is_package=any(old.startswith(f"{name}.") for old in MOVED))

    def exec_module(self, module: ModuleType) -> None:
        """Give the module names that are looked up when they are used."""
        old = module.__name__
        module.__getattr__ = lambda name: find_moved_name(old, name, MOVED[old])  # type: ignore[method-assign]


def install() -> None:
    """Make Python find the modules that have moved."""
    sys.meta_path.insert(0, MovedModules())
