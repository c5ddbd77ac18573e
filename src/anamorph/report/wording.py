"""Words and numbers for people."""

from __future__ import annotations

from collections.abc import Sequence

LIKELIHOODS = {
    "gaussian": "intensities with Gaussian noise",
    "bernoulli": "binary images, or probabilities",
    "categorical": "label or tissue maps, as probabilities of classes",
}
LATENTS = {
    "joint": "each changes shape and appearance together",
    "separate": "each changes either appearance or shape",
    "shape": "each changes shape only; all images have the appearance of the mean",
    "appearance": "each changes appearance only; nothing is warped",
}


def times(numbers: Sequence[float]) -> str:
    """Return e.g. "28 × 28"."""
    return " × ".join(f"{number:.4g}" for number in numbers)


def percent(share: float) -> str:
    """Return e.g. "23 %", with a digit more below ten."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Return e.g. "1.1 ms", "0.42 s", "41 s", "12 min" or "3.2 h"."""
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def number(value: float) -> str:
    """Return three digits of a number, with a minus that is as wide as a plus."""
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def grid_unit(space: Sequence[int]) -> str:
    """Return what the elements of a grid are called."""
    return "pixels" if len(space) == 2 else "voxels"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return e.g. "1 image", "2 images" or "12,000 images"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def shortened(name: str, most: int) -> str:
    """Return a name with its middle left out where it is long: its ends tell it from others."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"
