"""The progress of predictions for many images, told to whoever listens; a bar for notebooks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from importlib import import_module
from typing import Any

#: Told how many images are done, and of how many.
Listener = Callable[[int, int], object]

_listener: ContextVar[Listener | None] = ContextVar("anamorph_progress", default=None)


@contextmanager
def progress_told(listener: Listener | None) -> Iterator[None]:
    """Tell a listener of the progress of predictions within a ``with`` block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def progress_of_part(part: slice, n_images: int) -> Iterator[None]:
    """Let predictions for some of all images be told as what they are: a part of the whole."""
    listener = _listener.get()

    def tell(n_done: int, _: int) -> None:
        if listener is not None:
            listener(part.start + n_done, n_images)

    with progress_told(None if listener is None else tell):
        yield


class ImageCounter:
    """Counts images that are done, by any thread, and tells whoever listens.

    Parameters
    ----------
    n_images : int
        To do in all.
    """

    def __init__(self, n_images: int) -> None:
        self._n_images, self._n_done = n_images, 0
        self._listener, self._lock = _listener.get(), threading.Lock()

    def add(self, count: int) -> None:
        """Count some images as done."""
        if self._listener is None:
            return
        with self._lock:
            self._n_done += count
            self._listener(self._n_done, self._n_images)


def is_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class NotebookBar:
    """A progress bar in the output of a notebook, which needs nothing to be installed.

    Parameters
    ----------
    text : str
        What is done.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._handle: Any = None

    def show(self, n_done: int, n_all: int, facts: str = "") -> None:
        """Show how much is done."""
        shell = import_module("IPython.display")
        bar = shell.HTML(
            f"<div>{escape(self._text)} <progress value='{n_done}' max='{n_all}'></progress> "
            f"{n_done}/{n_all}{escape(', ' + facts if facts else '')}</div>"
        )
        if self._handle is None:
            self._handle = shell.display(bar, display_id=True)
        else:
            self._handle.update(bar)


@contextmanager
def shown_in_notebook(is_asked_for: bool, text: str) -> Iterator[None]:
    """Show the progress of predictions in a notebook, if it is asked for and this is one."""
    if not (is_asked_for and is_notebook()):
        yield
        return
    with progress_told(NotebookBar(text).show):
        yield
