"""Words and numbers for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

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
    written = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return written.replace("-", "\N{MINUS SIGN}")


def grid_unit(space: Sequence[int]) -> str:
    """Return what the elements of a grid are called."""
    return "pixels" if len(space) == 2 else "voxels"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return e.g. "1 image", "2 images" or "12,000 images"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def short_names(names: Sequence[str], most: int) -> list[str]:
    """Return names of at most so many letters, without what all of them begin and end with."""
    if max(map(len, names), default=0) <= most:
        return list(names)
    start = _n_common(names)
    rests = [name[start:] for name in names]
    end = _n_common([rest[::-1] for rest in rests])
    kept = [rest[: len(rest) - end] for rest in rests]
    return [_without_middle(short or name, most) for short, name in zip(kept, names, strict=True)]


def _n_common(names: Sequence[str]) -> int:
    """Return how many letters all names begin with, up to the end of a word."""
    columns = zip(*names, strict=False)
    same = "".join(column[0] for column in takewhile(lambda c: len(set(c)) == 1, columns))
    return max((n + 1 for n, letter in enumerate(same) if not letter.isalnum()), default=0)


def _without_middle(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"
