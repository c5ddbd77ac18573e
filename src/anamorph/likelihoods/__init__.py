"""Likelihoods of images given a warped appearance: one file each, found by being in this folder."""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules

from anamorph.likelihoods.base import Derivatives, Likelihood

#: The likelihood of images of which nothing is said.
DEFAULT = "gaussian"

#: All likelihoods by name, the default first.
LIKELIHOODS: dict[str, Likelihood] = {}


def find_likelihoods() -> None:
    """Register every likelihood that is defined in a module of this folder."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    found = {
        kind.name: kind()
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Likelihood)
        and kind.__module__ == module.__name__
        and not inspect.isabstract(kind)
    }
    LIKELIHOODS.clear()
    for name in sorted(found, key=lambda name: (name != DEFAULT, name)):
        LIKELIHOODS[name] = found[name]


find_likelihoods()

#: The likelihood of label maps and tissue maps.
OF_CLASSES = next(name for name, kind in LIKELIHOODS.items() if kind.holds_classes)
#: The likelihood of masks, whose voxels are 0 or 1.
OF_MASKS = next(
    name
    for name, kind in LIKELIHOODS.items()
    if kind.value_range == (0, 1) and not kind.holds_classes
)

__all__ = [
    "DEFAULT",
    "LIKELIHOODS",
    "OF_CLASSES",
    "OF_MASKS",
    "Derivatives",
    "Likelihood",
    "find_likelihoods",
]
