"""Ranges of settings: a coordinator chooses them, so a site checks them before any sum leaves.

Penalties, balance, prior and the like decide what the parameters become that the next sums are
about: they are chosen parameters too. The ranges are wide, and all presets and defaults are within
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from anamorph.federation.protocol.errors import PolicyError
from anamorph.geometry.pose import ALIGNMENTS, NONE
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.hyperparameters import GLOBAL, INTENSITIES, LAYOUTS
from anamorph.model.settings import LatentLayout, Settings

#: Lowest and highest value by setting. Of several weights no one may be higher, nor all be lower.
DEFAULT_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "shape_penalty": (1e-3, 1e3),
        "appearance_penalty": (1e-4, 1e5),
        "mean_penalty": (1e-6, 1e4),
        "balance": (1e-2, 1e3),
        "prior_dof": (0.0, 1e5),
        "decimation": (1e-3, 10.0),
        "n_steps": (1, 64),
        "voxel_size": (1e-3, 1e3),
    }
)

_N_WEIGHTS = {"shape_penalty": 5, "appearance_penalty": 3, "mean_penalty": 3, "balance": 2}


def check_ranges(settings: Settings, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise a PolicyError if a setting is out of its range, or no number at all.

    Parameters
    ----------
    settings : Settings
        As a coordinator sent them: nothing about their types is taken for granted.
    ranges : dict
        Lowest and highest value by setting.
    """
    _check_choice("align", settings.align, ALIGNMENTS)
    have_gains = [name for name, one in LIKELIHOODS.items() if one.has_noise]
    known = INTENSITIES if settings.likelihood_name in have_gains else (GLOBAL,)
    _check_choice("intensity", settings.intensity, known)
    if settings.has_residuals:
        raise PolicyError(f"sites learn no residual warps: residual must be {NONE!r}")
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        numbers = value if isinstance(value, tuple) else (value,)
        n_wanted = settings.n_dims if name == "voxel_size" else _N_WEIGHTS.get(name, 1)
        if len(numbers) != n_wanted or not _are_numbers(numbers):
            raise PolicyError(f"{name} must be {n_wanted} finite numbers >= 0, got {value!r}")
        lowest = min(numbers) if name == "voxel_size" else max(numbers)
        if max(numbers) > high or lowest < low:
            largest = " (its largest weight)" if name in _N_WEIGHTS else ""
            raise PolicyError(
                f"this site allows {name} from {low:g} to {high:g}{largest}, got {_shown(value)}: "
                "change the fit, or 'ranges' in the policy of the site"
            )


def _check_choice(name: str, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, str) or given not in known:
        raise PolicyError(f"{name} must be one of {', '.join(known)}, got {given!r:.80}")


def check_layout(layout: LatentLayout) -> None:
    """Raise a PolicyError unless a layout is one that has a name, so that K is what it says."""
    sizes = (layout.n_latents, layout.n_appearance, layout.n_shape, layout.first_shape)
    if all(type(size) is int and size >= 0 for size in sizes) and layout.n_latents >= 1:
        pair = (layout.n_appearance, layout.n_shape)
        for name in LAYOUTS:
            if name == "separate" and 0 in pair:
                continue
            if layout == LatentLayout.named(name, pair if name == "separate" else sizes[0]):
                return
    raise PolicyError(f"the latents must be laid out as {', '.join(LAYOUTS)}, got {layout}")


def checked_ranges(given: Any) -> dict[str, tuple[float, float]]:
    """Return the default ranges with those of a policy file in their places.

    Raises
    ------
    PolicyError
        If a setting is unknown, or its range not two numbers, the lower one first.
    """
    if not isinstance(given, Mapping):
        raise PolicyError(f"ranges must be a table of settings, got {given!r}")
    ranges = dict(DEFAULT_RANGES)
    for name, bounds in given.items():
        if name not in ranges:
            raise PolicyError(f"ranges has no setting {name!r}; known are {', '.join(ranges)}")
        is_pair = isinstance(bounds, list | tuple) and len(bounds) == 2 and _are_numbers(bounds)
        if not is_pair or bounds[0] > bounds[1]:
            raise PolicyError(
                f"the range of {name} must be two numbers >= 0, the lower one first, got {bounds!r}"
            )
        ranges[name] = (bounds[0], bounds[1])
    return ranges


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
        for value in values
    )


def _shown(value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    return ", ".join(f"{number:g}" for number in values)
