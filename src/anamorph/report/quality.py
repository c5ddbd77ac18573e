"""One page about the quality of images: which to look at first, and what may be wrong with them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from anamorph.arrays.typing import Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import ImageCollection
from anamorph.plots.panels import (
    Images,
    checked_latents,
    draw_rows,
    matched_images,
    mean_image,
    missing_key,
)
from anamorph.report.figures import STYLE, find_meeting_point
from anamorph.report.judging import REMARKABLE, Judgement, judge_images
from anamorph.report.markup import (
    Section,
    format_count,
    format_number,
    make_facts,
    make_paragraph,
    make_picture,
    make_table,
    short_names,
    write_page,
)
from anamorph.storage.errors import WriteError
from anamorph.storage.tables import write_table

_MOST_LISTED = 50
_MOST_SHOWN = 24
_IN_A_ROW = 6
_LONGEST_NAME = 18
_HEADER = ("Image", "Oddness", "What may be wrong", "Correlation", "Fit per voxel", "Latents")


def write_quality(
    model: ShapeAppearanceModel,
    path: str | os.PathLike[str],
    images: Images,
    *,
    latents: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    table: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> list[Judgement]:
    """Write a page that ranks images by how odd they are, with reasons in words.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    path : path
        The page, written completely or not at all.
    images : array of shape (N, *space), list of arrays or paths, or collection
    latents : array of shape (N, K), optional
        Of the images; by default they are encoded.
    names : N strings, optional
        By default those of their files, or their numbers.
    table : path, optional
        A table of all images to write as well; by default none.
    title : str, optional
        "Quality of images" by default.

    Returns
    -------
    list of Judgement
        Of all images, the oddest first.
    """
    check_is_fitted(model, "mean_")
    path = Path(path)
    if not path.parent.is_dir():  # found before the work begins
        raise WriteError(f"{path.parent} does not exist: create it, then write {path.name}")
    opened = model.checked_images(images)
    codes = model.transform(opened) if latents is None else _checked(model, latents, len(opened))
    if names is not None and len(names) != len(opened):
        raise ValueError(f"names must be {len(opened)}, one for each image, got {len(names)}")
    poses = model.poses(opened) if model.settings_.has_poses else None
    judged = judge_images(model, opened, codes, names or _names_of(opened), poses)
    with matplotlib.rc_context(STYLE):
        sections = [_ranking_section(judged)]
        if pictures := _make_pictures(model, opened, codes, poses, judged):
            sections.insert(0, Section("pictures", "Images to look at", pictures))
    write_page(path, title or "Quality of images", _summarise(judged), sections)
    if table is not None:
        write_judgements(table, judged)
    return judged


def write_judgements(path: str | os.PathLike[str], judged: Sequence[Judgement]) -> None:
    """Write a table of judgements, completely or not at all."""
    columns: dict[str, list[Any]] = {
        "oddness": [one.oddness for one in judged],
        "reasons": ["; ".join(one.reasons) or "n/a" for one in judged],
        "correlation": [one.correlation for one in judged],
        "fit": [one.fit for one in judged],
        "latent_distance": [one.distance for one in judged],
    }
    write_table(path, [one.name for one in judged], columns)


def _checked(model: ShapeAppearanceModel, latents: ArrayLike, n_images: int) -> Float64Array:
    return np.asarray(checked_latents(model, latents, n_images), np.float64)


def _names_of(images: ImageCollection) -> list[str]:
    if isinstance(images.identities, range):  # of arrays, which have no names
        return [f"image {n}" for n in images.identities]
    return [str(identity) for identity in images.identities]


def _is_odd(one: Judgement) -> bool:
    return bool(one.reasons) or one.oddness > REMARKABLE


def _summarise(judged: Sequence[Judgement]) -> str:
    odd = [one for one in judged if _is_odd(one)]
    kinds = Counter(
        one.reasons[0].split(":")[0].split(" by about")[0] for one in odd if one.reasons
    )
    text = (
        f"Of {format_count(len(judged), 'image')}, {len(odd)} stand out. Reasons are what measures "
        "suggest; look before you leave an image out."
        if odd
        else f"None of {format_count(len(judged), 'image')} stands out."
    )
    text += (
        " Images are ordered by oddness: the largest deviation from the other images in any of the "
        f"measures, in robust standard deviations, which is remarkable above {REMARKABLE:g}."
    )
    facts = [("Images", f"{len(judged):,}"), ("Stand out", f"{len(odd):,}")]
    facts += [(kind.capitalize(), str(count)) for kind, count in kinds.most_common(4)]
    return make_paragraph(text) + make_facts(facts)


def _make_pictures(
    model: ShapeAppearanceModel,
    images: ImageCollection,
    latents: Float64Array,
    poses: Float64Array | None,
    judged: Sequence[Judgement],
) -> str:
    """Return pictures of the oddest images, each above what the model makes of it."""
    odd = [one for one in judged if _is_odd(one)][:_MOST_SHOWN]
    voxel, pictures = find_meeting_point(model), []
    for first in range(0, len(odd), _IN_A_ROW):
        row = odd[first : first + _IN_A_ROW]
        data = np.concatenate([images.read(slice(one.number, one.number + 1)) for one in row])
        numbers = [one.number for one in row]
        placed = None if poses is None else poses[numbers]
        explained = model.expected_images(latents[numbers], poses=placed)
        data = matched_images(model, data, explained)
        rows = [("image", data), ("as the model\nexplains it", explained)]
        titles = short_names([one.name for one in row], _LONGEST_NAME)
        deciding = np.concatenate([mean_image(model), explained])
        figure = draw_rows(model, rows, titles, deciding, None, voxel, None, missing_key(data))
        caption = "; ".join(f"{one.name}: {_first_reason(one)}" for one in row) + "."
        pictures.append(make_picture(figure, caption, "Odd images and their reconstructions"))
    return "\n".join(pictures)


def _first_reason(one: Judgement) -> str:
    return one.reasons[0] if one.reasons else "unlike the others"


def _ranking_section(judged: Sequence[Judgement]) -> Section:
    shown = judged[:_MOST_LISTED]
    more = "" if len(shown) == len(judged) else f" The first {len(shown)} are listed."
    intro = (
        "Correlation is that with the mean image, fit the log-likelihood per voxel, and latents "
        f"their distance from zero in standard deviations.{more}"
    )
    rows = [
        (
            one.name,
            format_number(one.oddness),
            "; ".join(one.reasons) or "nothing",
            format_number(one.correlation),
            format_number(one.fit),
            format_number(one.distance),
        )
        for one in shown
    ]
    return Section("ranking", "Ranking", make_paragraph(intro) + make_table(_HEADER, rows))
