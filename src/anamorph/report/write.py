"""One page about a model: a summary, its sections, and how to cite the method."""

from __future__ import annotations

import os
from collections.abc import Sequence, Sized
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import matplotlib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from anamorph import __version__
from anamorph.arrays.typing import Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.run import duration
from anamorph.plots.panels import Images, checked_latents
from anamorph.report.figures import STYLE, find_meeting_point
from anamorph.report.held_out import HeldOut, held_out_section, measure_held_out
from anamorph.report.markup import (
    KIND,
    LATENTS,
    Section,
    format_count,
    format_lengths,
    format_percent,
    grid_unit,
    make_facts,
    make_paragraph,
    read_part,
    write_page,
)
from anamorph.report.measures import Examined, ModeShares, examine, mode_shares
from anamorph.report.outliers import outliers_section
from anamorph.report.sections import (
    fit_section,
    fits_section,
    latents_section,
    mean_section,
    modes_section,
    poses_section,
    samples_section,
    settings_section,
    warps_section,
)
from anamorph.storage.errors import WriteError

CITATION = Template(read_part("citation.html").rstrip()).substitute(version=__version__)


def write_report(
    model: ShapeAppearanceModel,
    path: str | os.PathLike[str],
    *,
    images: Images | None = None,
    latents: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    labels: ArrayLike | None = None,
    label_name: str | None = None,
    held_out: Images | HeldOut | None = None,
    title: str | None = None,
    explorer: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a report on a model: one HTML page with all its pictures, which needs no network.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    path : path
        The page, written completely or not at all.
    images : array of shape (N, *space), list of arrays or paths, or collection, optional
        Images to show fits of; none by default. Only a selection of a large collection is read.
    latents : array of shape (N, K), optional
        Latents of the images. By default the shown images are encoded, or all images if there are
        labels; without images, `model.latents_` if the model has them.
    names : N strings, optional
        Names of the images or latents; by default those of their files.
    labels : N labels, optional
        Labels to colour latents by, as in `anamorph.plots.plot_latents`; none by default.
    label_name : str, optional
        Name of the labels, e.g. "age"; none by default.
    held_out : images as above, or HeldOut, optional
        Images that the model was not fitted to, whose reconstructions are measured (root mean
        squared error, or Dice of classes), or such measures; none by default.
    title : str, optional
        Title of the page; "Shape and appearance model" by default.
    explorer : path, optional
        A page of `anamorph.explorer.write_explorer` to link to; none by default.

    Returns
    -------
    Path
        `path`.
    """
    check_is_fitted(model, "mean_")
    path = Path(path)
    if not path.parent.is_dir():  # found before the work begins
        raise WriteError(f"{path.parent} does not exist: create it, then write {path.name}")
    codes = _known_latents(model, images, latents)
    known = codes if images is None else images
    _check_count("names", names, known)
    _check_count("labels", labels, known)
    if codes is None and images is not None and labels is not None:
        codes = model.transform(images)
    with matplotlib.rc_context(STYLE):
        examined = None if images is None else examine(model, images, codes, names)
        shares = mode_shares(model)
        measured = (
            held_out
            if held_out is None or isinstance(held_out, HeldOut)
            else measure_held_out(model, held_out)
        )
        sections = _make_sections(
            model, shares, examined, codes, names, labels, label_name, measured
        )
    summary = _summarise(model, shares) + _link_to(explorer, path)
    write_page(path, title or KIND, summary, sections)
    return path


def _known_latents(
    model: ShapeAppearanceModel, images: Images | None, latents: ArrayLike | None
) -> Array | None:
    """Return the latents of all images, if they are known.

    `model.latents_` may belong to other images than those that are given.
    """
    if latents is not None:
        rows = np.asarray(latents)
        return checked_latents(model, rows, len(rows) if images is None else len(images))
    return getattr(model, "latents_", None) if images is None else None


def _check_count(name: str, given: Any, known: Sized | None) -> None:
    """Raise a ValueError unless there is one value per image, or per row of latents."""
    if given is None:
        return
    if known is None:
        raise ValueError(f"{name} are of images: give `images`, or their `latents`")
    if len(given) != len(known):
        raise ValueError(f"{name} must be {len(known)}, one for each image, got {len(given)}")


def _make_sections(
    model: ShapeAppearanceModel,
    shares: ModeShares,
    examined: Examined | None,
    latents: Array | None,
    names: Sequence[str] | None,
    labels: ArrayLike | None,
    label_name: str | None,
    held_out: HeldOut | None,
) -> list[Section]:
    voxel = find_meeting_point(model)
    sections = [
        mean_section(model, voxel),
        modes_section(model, shares, voxel),
        samples_section(model, voxel),
    ]
    if examined is not None:
        sections.append(fits_section(model, examined, voxel))
        if examined.poses is not None:
            sections.append(poses_section(model, examined.poses, examined.names))
    if model.settings_.layout.n_shape > 0:
        sections.append(warps_section(model, examined, latents, names, shares, voxel))
    shown = examined.latents if latents is None and examined is not None else latents
    if shown is not None:
        sections.append(latents_section(model, shown, shares, labels, label_name))
    if examined is not None:
        sections.append(outliers_section(model, examined.latents, examined.names, examined.fit))
    elif latents is not None:
        sections.append(outliers_section(model, latents, names, None))
    if held_out is not None:
        sections.append(held_out_section(held_out))
    if model.objective_:
        sections.append(fit_section(model))
    return [*sections, settings_section(model), Section("citation", "How to cite", CITATION)]


def _link_to(explorer: str | os.PathLike[str] | None, report: Path) -> str:
    """Return a link from the report to the page of an explorer, relative where it can be."""
    if explorer is None:
        return ""
    there, here = Path(explorer).resolve(), report.resolve().parent
    if not there.is_file():
        raise WriteError(f"{explorer} does not exist: write it with 'anamorph explore' first")
    try:
        address = quote(Path(os.path.relpath(there, here)).as_posix())
    except ValueError:  # on another drive
        address = there.as_uri()
    return f'<p><a href="{escape(address)}">Move the latents and see the images</a></p>'


def _summarise(model: ShapeAppearanceModel, shares: ModeShares) -> str:
    """Return the model in a paragraph and a few numbers."""
    settings, origin = model.settings_, model.origin_
    what = "images" if len(settings.space) == 2 else "volumes"
    first = int(shares.together.argmax())
    sentences = [
        f"This model was learnt from {origin.n_images:,} {what} of "
        f"{format_lengths(settings.space)} {grid_unit(settings.space)}, "
        f"without any annotation ({settings.likelihood_name} likelihood, for "
        f"{settings.likelihood.description}).",
        "It describes every image by a mean and "
        f"{format_count(settings.layout.n_latents, 'latent')}, "
        f"numbers of which {LATENTS[model.latents]}.",
        f"Mode {first + 1} carries the largest share of the variance that the modes explain, "
        f"{format_percent(shares.together[first])}.",
    ]
    facts = [
        ("Images", f"{origin.n_images:,}"),
        ("Grid", format_lengths(settings.space)),
        ("Latents", f"{settings.layout.n_latents}"),
        ("Iterations", f"{model.n_iter_}"),
    ]
    if origin.seconds:
        facts.append(("Time to fit", duration(sum(origin.seconds))))
    return make_paragraph(" ".join(sentences)) + make_facts(facts)
