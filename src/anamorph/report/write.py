"""Writing the report: what is known goes into sections, and these into one page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import matplotlib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from anamorph import __version__
from anamorph.io.errors import WriteError
from anamorph.io.replace import replacing
from anamorph.model import ShapeAppearanceModel
from anamorph.plots.model_images import Images, checked_latents
from anamorph.report.citation import citation_section
from anamorph.report.figures import STYLE, meeting_point
from anamorph.report.markup import Section
from anamorph.report.sections import (
    fit_section,
    fits_section,
    latents_section,
    mean_section,
    modes_section,
    samples_section,
    settings_section,
    warps_section,
)
from anamorph.report.selection import Examined, examine
from anamorph.report.summary import summary
from anamorph.report.variance import ModeShares, mode_shares

Array = NDArray[np.floating]


def write_report(
    model: ShapeAppearanceModel,
    path: str | os.PathLike[str],
    *,
    images: Images | None = None,
    latents: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    labels: ArrayLike | None = None,
    label_name: str | None = None,
    title: str | None = None,
) -> Path:
    """Write a report on a model: one HTML page with all its pictures, that needs no network.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted one.
    path : path
        Of the page, which is written whole or not at all.
    images : array of shape (N, *space), list of arrays or of paths, or an opened collection
        Images to show fits of; of a large collection a selection is read.
    latents : array of shape (N, K), optional
        By default those of the images that the model was fitted to, while it knows them and they
        are as many as `images`; else those of the images that are shown.
    names : N strings, optional
        Of the images; those of their files by default.
    labels : N labels, optional
        To colour latents by, as for `anamorph.plots.plot_latents`.
    label_name : str, optional
        What the labels are, e.g. "age".
    title : str, optional

    Returns
    -------
    Path
        `path`.
    """
    check_is_fitted(model, "mean_")
    path = Path(path)
    if not path.parent.is_dir():  # before the work, not after it
        raise WriteError(f"{path.parent} does not exist: {path.name} has nowhere to go")
    codes = _known_latents(model, images, latents)
    if labels is not None and (codes is None or len(np.asarray(labels)) != len(codes)):
        known = "no latents" if codes is None else f"{len(codes)} latents"
        raise ValueError(
            f"labels must be one for each image with latents, got {len(np.asarray(labels))} "
            f"labels and {known}: give `latents` of the same images"
        )
    with matplotlib.rc_context(STYLE):
        examined = None if images is None else examine(model, images, codes, names)
        shares = mode_shares(model)
        sections = _sections(model, shares, examined, codes, labels, label_name)
    page = _page(model, shares, sections, title or "Shape and appearance model")
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _known_latents(
    model: ShapeAppearanceModel, images: Images | None, latents: ArrayLike | None
) -> Array | None:
    """Return latents of all images, if they are given or if the model still knows them."""
    if latents is not None:
        rows = np.asarray(latents)
        return checked_latents(model, rows, len(rows) if images is None else len(images))
    known: Array | None = getattr(model, "latents_", None)
    if known is None or (images is not None and len(images) != len(known)):
        return None
    return known


def _sections(
    model: ShapeAppearanceModel,
    shares: ModeShares,
    examined: Examined | None,
    latents: Array | None,
    labels: ArrayLike | None,
    label_name: str | None,
) -> list[Section]:
    voxel = meeting_point(model)
    sections = [
        mean_section(model, voxel),
        modes_section(model, shares, voxel),
        samples_section(model, voxel),
    ]
    if examined is not None:
        sections.append(fits_section(model, examined, voxel))
    if model.settings_.layout.n_shape > 0:
        sections.append(warps_section(model, examined, latents, voxel))
    shown = examined.latents if latents is None and examined is not None else latents
    if shown is not None:
        sections.append(latents_section(model, shown, labels, label_name))
    if model.objective_:
        sections.append(fit_section(model))
    return [*sections, settings_section(model), citation_section()]


def _page(
    model: ShapeAppearanceModel, shares: ModeShares, sections: list[Section], title: str
) -> str:
    folder = files("anamorph.report")
    template = Template((folder / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        version=__version__,
        date=date.today().isoformat(),
        style=(folder / "style.css").read_text(encoding="utf-8"),
        script=(folder / "enlarge.js").read_text(encoding="utf-8"),
        contents="\n".join(section.link for section in sections),
        summary=summary(model, shares),
        sections="\n".join(section.html for section in sections),
    )
