"""Words and numbers of the report."""

from __future__ import annotations

from collections.abc import Sequence

from anamorph.images.readers import common_beginning

LATENTS = {
    "joint": "each changes shape and appearance together",
    "separate": "each changes either appearance or shape",
    "shape": "each changes shape only; all images have the appearance of the mean",
    "appearance": "each changes appearance only; nothing is warped",
}


def format_lengths(numbers: Sequence[float]) -> str:
    """Return e.g. "28 × 28"."""
    return " × ".join(f"{number:.4g}" for number in numbers)


def format_percent(share: float) -> str:
    """Return e.g. "23 %", with a digit more below ten."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def format_number(value: float) -> str:
    """Return a number with three digits, and a minus as wide as a plus."""
    written = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return written.replace("-", "\N{MINUS SIGN}")


def grid_unit(space: Sequence[int]) -> str:
    """Return "pixels" or "voxels"."""
    return "pixels" if len(space) == 2 else "voxels"


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Return e.g. "1 image", "2 images" or "12,000 images"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def short_names(names: Sequence[str], most: int) -> list[str]:
    """Return names of at most `most` letters, without their common beginning and end."""
    if max(map(len, names), default=0) <= most:
        return list(names)
    start = _n_common_words(names)
    rests = [name[start:] for name in names]
    end = _n_common_words([rest[::-1] for rest in rests])
    kept = [rest[: len(rest) - end] for rest in rests]
    return [_without_middle(short or name, most) for short, name in zip(kept, names, strict=True)]


def _n_common_words(names: Sequence[str]) -> int:
    """Return the number of letters that all names begin with, up to the end of a word."""
    same = enumerate(common_beginning(names), start=1)
    return max((n for n, letter in same if not letter.isalnum()), default=0)


def _without_middle(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"
