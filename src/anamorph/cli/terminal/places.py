"""Output files: they never replace inputs, and replace other files only with --force."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from anamorph.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_DOTS_PER_INCH = 150
_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".svg", ".pdf", ".html"),
    *(".nii", ".gz", ".mgz", ".mgh", ".img", ".hdr", ".npy", ".npz", ".h5", ".mat"),
    *(".tsv", ".csv", ".txt", ".json", ".safetensors", ".ply", ".obj", ".stl", ".vtk", ".gii"),
)


def reserve(paths: Sequence[Path], inputs: Iterable[Path | None] = (), *, force: bool) -> None:
    """Create the folders of output files, and raise a CommandError if one cannot be written.

    Called before the work begins: a fit of hours must not end without a place for its result.

    Parameters
    ----------
    paths : list of Path
        Files to write.
    inputs : list of Path or None
        Files that the command reads, which even `force` does not replace; none by default. None
        stands for an option that was not given.
    force : bool
        Whether existing files may be replaced.
    """
    kept = _real_paths(inputs)
    for path in paths:
        if os.path.realpath(path) in kept:
            raise CommandError(f"{path} is one of the inputs: write somewhere else")
        if path.is_dir():
            raise CommandError(f"{path} is a folder: give the name of a file")
        if path.exists() and not path.is_file():
            raise CommandError(f"{path} is a device or a pipe: give the name of a file")
        if path.is_symlink() and not path.exists() and _is_circle(path):
            raise CommandError(f"{path} is a link that leads in a circle: remove it")
    check_free(paths, force=force)
    for folder in {Path(os.path.realpath(path)).parent for path in paths}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"{folder} cannot be made: {error.strerror}") from None
        if not os.access(folder, os.W_OK):
            raise CommandError(f"{folder} may not be written to: check its permissions")


def checked_folder(path: Path) -> Path:
    """Return the folder for outputs, or raise an error about a name that means a file.

    Else ``-o modes.png`` would make a folder of that name.
    """
    if path.exists() and not path.is_dir():
        raise typer.BadParameter(f"{path} is a file: give a folder")
    if path.name.lower().endswith(_SUFFIXES) and not path.exists():
        raise typer.BadParameter(
            f"{path} is the name of a file, and several may be written: give a folder, such as "
            f"{path.with_name(path.name.partition('.')[0] or 'out')}"
        )
    return path


def check_free(paths: Iterable[Path], *, force: bool) -> None:
    """Raise a CommandError if a file exists, unless existing files may be replaced."""
    for path in paths:
        if path.exists() and not force:
            raise CommandError(f"{path} exists already: use --force to replace it")


def check_checkpoint(path: Path, others: Iterable[Path | None]) -> None:
    """Raise a CommandError if a checkpoint, which a fit removes at its end, is another file.

    Parameters
    ----------
    path : Path
    others : list of Path or None
        Other files that the fit reads or writes; None stands for an option that was not given.
    """
    if os.path.realpath(path) in _real_paths(others):
        raise CommandError(
            f"--checkpoint {path} is an input or output of the fit, and would be removed at its "
            "end: give another file"
        )


def paths_in(folder: Path, names: Sequence[str], ending: str) -> list[Path]:
    """Return a path in a folder for each name, all different.

    Parameters
    ----------
    folder : Path
    names : list of str
        Names of images; a slash in them becomes an underscore.
    ending : str
        E.g. "_reconstruction.nii.gz".
    """
    stems = [name.replace("/", "_").replace(os.sep, "_") for name in names]
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        path = folder / f"{twice}{ending}"
        raise CommandError(f"two images would be written to {path}: rename one of them")
    return [folder / f"{stem}{ending}" for stem in stems]


def path_beside(model_file: Path, ending: str) -> Path:
    """Return the path of a file beside a model file, e.g. "a.latents.tsv" for "a.safetensors"."""
    if not model_file.name:
        raise CommandError(f"{model_file} is a folder: give the name of a file")
    return model_file.with_name(model_file.name.removesuffix(".safetensors") + ending)


def save_figure(figure: Figure | SubFigure, path: Path) -> None:
    """Write a figure of `anamorph.plots` to a PNG file, completely or not at all."""
    from anamorph.storage.replace import replacing

    with replacing(path) as temporary:
        cast("Figure", figure).savefig(temporary, dpi=_DOTS_PER_INCH, bbox_inches="tight")


def _is_circle(link: Path) -> bool:
    return os.path.islink(os.path.realpath(link))


def _real_paths(paths: Iterable[Path | None]) -> set[str]:
    """Return the real paths, with links followed, of the paths that were given."""
    return {os.path.realpath(path) for path in paths if path is not None}
