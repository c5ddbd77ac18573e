"""The explorer in a notebook: the page in a frame, which keeps working without a kernel."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from anamorph.estimator import ShapeAppearanceModel
from anamorph.explorer.write import make_page
from anamorph.storage.replace import replacing

_HEIGHT = 900  # pixels of the frame


class Explorer:
    """A page about a model, which notebooks show when it is the last expression of a cell.

    Parameters
    ----------
    page : str
        The HTML.
    """

    def __init__(self, page: str) -> None:
        self.page = page

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, completely or not at all, and return its path."""
        path = Path(path)
        with replacing(path) as temporary:
            temporary.write_text(self.page, encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"Explorer of {len(self.page) / 1e6:.1f} MB: write it with save(path)"

    def _repr_html_(self) -> str:
        # In a sandbox the page cannot reach the notebook around it.
        return (
            f'<iframe title="Explorer" style="width:100%;height:{_HEIGHT}px;border:0" '
            f'sandbox="allow-scripts allow-downloads" srcdoc="{escape(self.page)}"></iframe>'
        )


def explore(model: ShapeAppearanceModel, images: Any = None, **options: Any) -> Explorer:
    """Return the page of `write_explorer` as something that notebooks show.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    images : images, optional
        Images to compare with their reconstructions; none by default.
    **options
        Latents, names, covariates, title and max_megabytes, as for `write_explorer`.
    """
    return Explorer(make_page(model, images=images, **options))
