"""Facts about each image of a collection, and what is remarkable about some of them.

The same facts are shown by ``anamorph check``; a fit says the most important of them first, in a
few lines, and refuses images whose intensities cannot be meant.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.images.integers import FEW
from anamorph.images.intensity import typical_intensity
from anamorph.likelihoods import OF_CLASSES, OF_MASKS

#: Most lines that are said about images before a fit; one more may name files that are skipped.
MOST_REMARKS = 4

_ODD = 10.0  # times brighter or darker than most others: worth a warning
_ABSURD = 1e4  # the same: refused
_ODD_TOGETHER, _SEVERAL = 3.0, 3  # times brighter or darker than the images of a model, all of them
_SHARE_OF_LENGTH = 0.25  # of an axis: how far centres may be from each other
_BRIGHT = 30.0  # from where on the default penalties of a federation weigh too much
_MOSTLY = 0.5
_MOST_NAMED = 3
_TRIED = 1000  # values of an image, to see whether all are whole


@dataclass(frozen=True)
class ImageFacts:
    """What there is to know about the values of an image.

    Attributes
    ----------
    lowest, highest : float
        NaN if nothing is observed.
    typical : float
        Typical intensity: the median size of the foreground.
    missing : float
        Share of voxels that are missing, among those that a mask asks for.
    centre : tuple of float
        Centre of mass in voxels; of what is observed where all is 0.
    labels : frozenset of int
        The values, where they are few whole numbers such as labels; empty otherwise.
    is_mask : bool
        Whether there are no values but 0 and one that is positive.
    digest : bytes
        The same for images that hold the same; empty where nobody asked.
    """

    lowest: float
    highest: float
    typical: float
    missing: float
    centre: tuple[float, ...]
    labels: frozenset[int] = frozenset()
    is_mask: bool = False
    digest: bytes = b""


def digest_of(voxels: NDArray[Any]) -> bytes:
    """Return a few bytes that differ where images do."""
    content = hashlib.blake2b(repr(voxels.shape).encode(), digest_size=16)
    content.update(np.ascontiguousarray(voxels).tobytes())
    return content.digest()


def facts_of(voxels: NDArray[np.floating]) -> ImageFacts:
    """Return facts about an image (C, *space), NaN where missing."""
    observed = ~np.isnan(voxels)
    values = voxels[observed]
    if not values.size:
        middle = tuple((length - 1) / 2 for length in voxels.shape[1:])
        return ImageFacts(math.nan, math.nan, 0.0, 1.0, middle)
    return ImageFacts(
        float(values.min()),
        float(values.max()),
        typical_intensity(voxels),
        1 - values.size / voxels.size,
        _find_centre(voxels, observed),
        _find_labels(values),
        _are_of_mask(values),
    )


def _find_labels(values: NDArray[np.floating]) -> frozenset[int]:
    """Return the values of an image if they are few whole numbers, not only 0 and 1."""
    if not np.array_equal(values[:_TRIED], np.rint(values[:_TRIED])):  # most images end here
        return frozenset()
    found = np.unique(values)
    is_label_map = 2 < len(found) <= FEW and found[0] >= 0 and np.array_equal(found, np.rint(found))
    return frozenset(int(value) for value in found) if is_label_map else frozenset()


def _are_of_mask(values: NDArray[np.floating]) -> bool:
    """Tell whether the values of an image are 0 and at most one other, which is positive."""
    for some in (values[:_TRIED], values):  # most images end with the first
        if some.min() < 0 or ((some != 0) & (some != some.max())).any():
            return False
    return True


def _find_centre(voxels: NDArray[np.floating], observed: NDArray[np.bool_]) -> tuple[float, ...]:
    mass = np.where(observed, np.abs(voxels), 0).sum(axis=0, dtype=np.float64)
    if not np.isfinite(mass.sum()) or mass.sum() == 0:
        mass = observed.any(axis=0).astype(np.float64)
    axes = range(mass.ndim)
    sums = [mass.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    return tuple(float(along @ np.arange(len(along)) / along.sum()) for along in sums)


def usual_intensity(facts: Sequence[ImageFacts]) -> float | None:
    """Return the median over images of their typical intensity; None if all images are empty."""
    typical = [fact.typical for fact in facts if fact.typical > 0]
    return float(np.median(typical)) if typical else None


def remark_on_brightness(usual: float | None) -> str | None:
    """Return a warning about intensities far above 1 for a federation, None if they are not.

    Its coordinator sees no image, and default penalties of appearance and mean are those for
    intensities of about 1: with 500 they leave latents of the order of 1e-11.

    Parameters
    ----------
    usual : float or None
        Typical intensity of the images, where it is known.
    """
    if usual is None or usual < _BRIGHT:
        return None
    return (
        f"typical intensities are {usual:.3g}, and the default penalties of a federation are meant "
        "for about 1: the model may learn little; scale='robust' (--scale robust) divides each "
        "image by its own, or divide all by one number"
    )


def check_intensities(
    facts: Sequence[ImageFacts], name: Callable[[int], str], usual: float | None = None
) -> str | None:
    """Return a warning about images far brighter or darker than most, or raise an ImageError.

    Parameters
    ----------
    facts : list of ImageFacts
    name : callable
        Returns what to call an image, given its number.
    usual : float, optional
        Typical intensity of the images of a model; by default the median of these images.

    Returns
    -------
    str or None
        None if there is nothing to say.
    """
    typical = np.array([fact.typical for fact in facts])
    own = usual_intensity(facts)
    if own is None:
        return None
    is_compared = usual is not None
    others = "those of the model" if is_compared else "most others"
    usual = own if usual is None else usual
    factors = np.where(typical > 0, typical / usual, 1.0)
    odd = [int(n) for n in np.argsort(-np.abs(np.log(factors)), kind="stable")]
    odd = [n for n in odd if not 1 / _ODD <= factors[n] <= _ODD]
    if not odd:
        return _remark_on_all(own / usual, len(facts))
    named = ", ".join(f"{name(n)} ({_times(factors[n])})" for n in odd[:_MOST_NAMED])
    more = f" and {len(odd) - _MOST_NAMED} more" if len(odd) > _MOST_NAMED else ""
    remedy = (
        "scale='robust' (--scale robust) divides each image by its own typical intensity; or "
        "leave them out"
    )
    if is_compared:
        remedy = "bring them to the scale of the model, or fit it again with scale='robust'"
    most_are_shares = np.mean([fact.lowest >= 0 and fact.highest <= 1 for fact in facts]) > _MOSTLY
    factor = factors[odd[0]]
    if not 1 / _ABSURD <= factor <= _ABSURD:
        raise ImageError(
            f"intensities differ too much to be of one kind: typical is {usual:.3g}, but not for "
            f"{named}{more}: {remedy}"
        )
    if most_are_shares and any(facts[n].highest > 1 for n in odd):
        raise ImageError(
            f"most images hold 0 to 1, but {named}{more} do not: bring them to one scale; {remedy}"
        )
    return (
        f"intensities of {len(odd)} of {len(facts)} images differ from {others} more than "
        f"{_ODD:g} times, and will be taken for shape and appearance: {named}{more}; {remedy}"
    )


def _remark_on_all(factor: float, n_images: int) -> str | None:
    """Return a warning about images that are all brighter or darker than those of a model."""
    if n_images < _SEVERAL or 1 / _ODD_TOGETHER <= factor <= _ODD_TOGETHER:
        return None
    return (
        f"typical intensities of these images are {_times(factor)} those of the model: if all mean "
        "the same, bring them to the scale of the model"
    )


def _times(factor: float) -> str:
    """Return a factor in words, e.g. "450 times"."""
    return f"{factor:.3g} times" if factor >= 1 else f"1/{1 / factor:.3g} times"


def remark_on_labels(facts: Sequence[ImageFacts], name: Callable[[int], str]) -> str | None:
    """Return a warning about intensities that look like labels, None if they do not."""
    every = frozenset[int]().union(*(fact.labels for fact in facts))
    if len(every) > FEW or not all(fact.labels for fact in facts):
        return None
    return (
        f"images hold only {', '.join(map(str, sorted(every)))}, e.g. {name(0)}: if these are "
        f"labels, use likelihood={OF_CLASSES!r} (--labels)"
    )


def remark_on_masks(facts: Sequence[ImageFacts], name: Callable[[int], str]) -> str | None:
    """Return a hint about intensities that are masks, all of one value, None if they are not."""
    values = {fact.highest for fact in facts if fact.highest != 0}
    if len(values) != 1 or not all(fact.is_mask for fact in facts):
        return None
    (value,) = values
    scale = "" if value == 1 else f" and scale={value:g} (--scale {value:g})"
    return (
        f"images hold only 0 and {value:g}, e.g. {name(0)}: if these are masks, "
        f"likelihood={OF_MASKS!r} (--likelihood {OF_MASKS}){scale} suits them better"
    )


def remark_on_copies(facts: Sequence[ImageFacts], name: Callable[[int], str]) -> str | None:
    """Return a warning about images that hold the same as others, None if there are none."""
    alike: dict[bytes, list[int]] = defaultdict(list)
    for n, fact in enumerate(facts):
        alike[fact.digest or b"%d" % n].append(n)
    groups = [group for group in alike.values() if len(group) > 1]
    if not groups:
        return None
    first, second, *_ = groups[0]
    n_copies = sum(len(group) - 1 for group in groups)
    return (
        f"{n_copies} of {len(facts)} images are copies of others, e.g. {name(second)} of "
        f"{name(first)}: each counts as an image of its own; leave copies out"
    )


def remark_on_missing(facts: Sequence[ImageFacts], name: Callable[[int], str]) -> str | None:
    """Return a warning about images that are mostly missing, None if there are none."""
    mostly = [n for n, fact in enumerate(facts) if fact.missing > _MOSTLY]
    if not mostly:
        return None
    worst = max(mostly, key=lambda n: facts[n].missing)
    return (
        f"{len(mostly)} of {len(facts)} images are mostly missing on the common grid, "
        f"{name(worst)} by {facts[worst].missing:.0%}: are they in one space?"
    )


def remark_on_centres(
    facts: Sequence[ImageFacts], space: tuple[int, ...], name: Callable[[int], str]
) -> str | None:
    """Return a warning about images whose content is far from that of others, None if none is.

    Parameters
    ----------
    facts : list of ImageFacts
    space : tuple of int
        Shape of the images.
    name : callable
        Returns what to call an image, given its number.
    """
    centres = np.array([fact.centre for fact in facts])
    shifts = np.abs(centres - np.median(centres, axis=0)) / np.array(space)
    far = [int(n) for n in np.argsort(-shifts.max(axis=1)) if shifts[n].max() > _SHARE_OF_LENGTH]
    if not far:
        return None
    return (
        f"the centre of mass of {len(far)} of {len(facts)} images is more than a quarter of the "
        f"image away from the others, e.g. of {name(far[0])}: are they aligned and whole?"
    )
