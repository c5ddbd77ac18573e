"""The explorer: one page that computes the images of a model in a browser, without a server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from anamorph import __version__
from anamorph.arrays.typing import Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.explorer.bundle import joined_modules
from anamorph.explorer.encoding import as_text
from anamorph.explorer.packing import ExplorerError, pack_model
from anamorph.explorer.people import packed_pictures, people_facts
from anamorph.images.collection import ImageCollection
from anamorph.plots.panels import Images, checked_latents
from anamorph.storage.errors import WriteError
from anamorph.storage.replace import replacing

_FOLDER = files("anamorph.explorer")
_MEGABYTE = 1e6
_TEXT_PER_BYTE = 4 / 3  # of base64
_LEAST_MEGABYTES = 0.3  # scripts, and room for a small model
_ROOM_FOR_FACTS = 2e4  # bytes, besides what is known of images

#: Default size of a page, in megabytes.
MAX_MEGABYTES = 25.0


def write_explorer(
    model: ShapeAppearanceModel,
    path: str | os.PathLike[str],
    *,
    images: Images | None = None,
    latents: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    covariates: Mapping[str, ArrayLike] | None = None,
    title: str | None = None,
    max_megabytes: float = MAX_MEGABYTES,
) -> Path:
    """Write one HTML page in which people move the latents of a model and see its images.

    The page needs no network and no server. It holds the model; it holds names, latents,
    covariates and images only if they are given, and says so. Latents that the model keeps from
    its fit are not taken: give ``latents=model.latents_``.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    path : path
        The page, written completely or not at all.
    images : array of shape (N, *space), list of arrays or paths, or collection, optional
        Images to put on a map and to compare with their reconstructions; none by default.
    latents : array of shape (N, K), optional
        Latents of the images; by default the images are encoded.
    names : N strings, optional
        Names of images; by default those of their files, or numbers.
    covariates : dict of N values each, optional
        Numbers or texts to arrange and to colour the map by; none by default.
    title : str, optional
        Title of the page; "Shape and appearance model" by default.
    max_megabytes : float
        The largest size of the page; 25 by default. Modes that do not fit are dropped from the
        end, then images, and the page says so.

    Returns
    -------
    Path
        `path`.
    """
    path = Path(path)
    if not path.parent.is_dir():  # found before the work begins
        raise WriteError(f"{path.parent} does not exist: create it, then write {path.name}")
    page = make_page(
        model,
        images=images,
        latents=latents,
        names=names,
        covariates=covariates,
        title=title,
        max_megabytes=max_megabytes,
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def make_page(
    model: ShapeAppearanceModel,
    *,
    images: Images | None = None,
    latents: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    covariates: Mapping[str, ArrayLike] | None = None,
    title: str | None = None,
    max_megabytes: float = MAX_MEGABYTES,
) -> str:
    """Return the page that `write_explorer` writes."""
    check_is_fitted(model, "mean_")
    if not (np.isfinite(max_megabytes) and max_megabytes >= _LEAST_MEGABYTES):
        raise ExplorerError(
            f"max_megabytes must be at least {_LEAST_MEGABYTES}, got {max_megabytes!r}"
        )
    collection, codes = _known_latents(model, images, latents)
    called = _checked_names(collection, codes, names)
    known = _checked_covariates(codes, covariates)
    people = None if codes is None else people_facts(codes, called, known)
    code = {name: joined_modules(f"{name}.js") for name in ("page", "worker")}
    style = _read("style.css")
    texts = (*code.values(), style, _as_json({"people": people}))
    room = (max_megabytes * _MEGABYTE - _ROOM_FOR_FACTS - sum(map(len, texts))) / _TEXT_PER_BYTE
    packed = pack_model(model, room)
    chunks = [packed.mean, *(column for mode in packed.modes for column in mode.values())]
    if people is not None:
        room -= sum(map(len, chunks))
        palette = packed.facts["palette"]
        pictures = [] if collection is None else packed_pictures(model, collection, palette, room)
        chunks += pictures
        kept = [mode["latent"] - 1 for mode in packed.facts["modes"]]
        people["latents"] = [[row[k] for k in kept] for row in people["latents"]]
        people |= {"nPictures": len(pictures), "givesPictures": collection is not None}
    facts = packed.facts | {
        "title": title or "Shape and appearance model",
        "version": __version__,
        "people": people,
        "chunks": [len(chunk) for chunk in chunks],
    }
    return _fill_page(facts, b"".join(chunks), code, style)


def _fill_page(facts: dict[str, Any], data: bytes, code: dict[str, str], style: str) -> str:
    return Template(_read("page.html")).substitute(
        version=__version__,
        title=escape(facts["title"]),
        style=style,
        style_hash=_hash_of(style),
        script=code["page"],
        script_hash=_hash_of(code["page"]),
        worker=code["worker"],
        facts=_as_json(facts),
        data=as_text(data),
    )


def _as_json(facts: dict[str, Any]) -> str:
    """Return JSON that no text in it can end: HTML knows no escapes within a script."""
    return json.dumps(facts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _hash_of(text: str) -> str:
    """Return what a Content-Security-Policy calls a script or a style sheet."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _known_latents(
    model: ShapeAppearanceModel, images: Images | None, latents: ArrayLike | None
) -> tuple[ImageCollection | None, Float64Array | None]:
    """Return opened images and their latents, of those that are given."""
    collection = None if images is None else model.checked_images(images)
    if latents is not None:
        rows = np.asarray(latents, np.float64)
        n_rows = len(rows) if collection is None else len(collection)
        if not np.isfinite(rows).all():
            raise ExplorerError("latents must be finite numbers: leave out images without latents")
        return collection, np.asarray(checked_latents(model, rows, n_rows), np.float64)
    return collection, None if images is None else model.transform(images)


def _checked_names(
    images: ImageCollection | None, latents: Float64Array | None, names: Sequence[str] | None
) -> list[str]:
    if latents is None:
        if names is not None:
            raise ExplorerError("names are of images: give `images`, or their `latents`")
        return []
    if names is not None and len(names) != len(latents):
        raise ExplorerError(f"names must be {len(latents)}, one for each image, got {len(names)}")
    if names is not None:
        return list(names)
    if images is not None:
        return [str(images.name(n)) for n in range(len(images))]
    return [f"image {n}" for n in range(len(latents))]


def _checked_covariates(
    latents: Float64Array | None, covariates: Mapping[str, ArrayLike] | None
) -> dict[str, ArrayLike]:
    known = dict(covariates or {})
    if known and latents is None:
        raise ExplorerError("covariates are of images: give `images`, or their `latents`")
    for name, values in known.items():
        assert latents is not None
        if np.shape(values) != (len(latents),):
            raise ExplorerError(
                f"covariate {name!r} must have {len(latents)} values, one for each image, got "
                f"shape {np.shape(values)}"
            )
    return known
