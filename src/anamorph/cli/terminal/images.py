"""Image arguments of commands: files, folders, patterns, tissue maps, participants."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.files import FileImages

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class ImageArguments:
    """The arguments of a command about its images.

    Attributes
    ----------
    arguments : list of str
        Files, folders and patterns; one for each class with tissue maps.
    tissues : bool
        Whether images are tissue maps; False by default.
    participants : Path or None
        A table that selects and names images; None by default.
    resample : bool
        Whether to resample images onto one grid; False by default.
    cache : Path or None
        Folder for decoded images; None, by default, for a temporary file.
    """

    arguments: options.Images
    tissues: options.Tissues = False
    participants: options.ParticipantsTable = None
    resample: options.Resample = False
    cache: options.CacheFolder = None

    def find(self) -> ImageList:
        """Return the files of all images, naturally sorted, and the names of the images."""
        from anamorph.images.readers import identities_of, match_tissues

        files: list[tuple[Path, ...]]
        if self.tissues:
            if len(self.arguments) < 2:
                raise CommandError(
                    "--tissues needs a quoted pattern (or folder) for each class, at least two, "
                    "e.g. --tissues 'rc1*.nii' 'rc2*.nii'"
                )
            files = match_tissues(*(find_files([argument]) for argument in self.arguments))
        else:
            files = [(path,) for path in find_files(self.arguments)]
        if self.participants is None:
            return ImageList(files, identities_of([group[0] for group in files]))
        return _select_images(files, self.participants)

    def find_several(self) -> ImageList:
        """Return the files of images to fit a model to; at least two images are needed."""
        images = self.find()
        if len(images) > 1:
            return images
        if self.tissues and all(Path(argument).is_file() for argument in self.arguments):
            raise CommandError(
                f"--tissues got {len(self.arguments)} files, which are the classes of one image: "
                "quote the patterns, one for each class, so that the shell does not replace them "
                "by their files, e.g. --tissues 'rc1*.nii' 'rc2*.nii'"
            )
        raise CommandError(
            f"{images.all_files[0]} is one image, and a model needs at least two: give a folder "
            "or a pattern, with one image per file"
        )

    def open_to_fit(self, model: ShapeAppearanceModel, images: ImageList, pad: int) -> FileImages:
        """Return images to fit a model to, with a margin of `pad` voxels."""
        from anamorph.images.files import FileImages
        from anamorph.likelihoods import LIKELIHOODS
        from anamorph.model.checks import check_choice

        # Before the fit checks it, since it decides how files are read.
        check_choice("likelihood", model.likelihood, tuple(LIKELIHOODS))
        return FileImages(
            images.for_reader,
            model.likelihood,
            model.channel_axis,
            resample=self.resample,
            pad=pad,
            cache=self.cache,
        )

    def inputs(self, images: ImageList | None) -> list[Path]:
        """Return every file that the command reads: those of the images, if any, and the table."""
        files = [] if images is None else images.all_files
        return files if self.participants is None else [*files, self.participants]

    def open_for(self, model: ShapeAppearanceModel, images: ImageList) -> FileImages:
        """Return images as a fitted model needs them."""
        from anamorph.likelihoods import LIKELIHOODS

        wanted = model.image_format_
        was_tissues = (
            LIKELIHOODS[wanted.likelihood].holds_classes
            and wanted.channel_axis is not None
            and model.channel_axis is None
        )
        if was_tissues and not self.tissues:
            raise CommandError(
                "this model was fitted to tissue maps: give --tissues, and a quoted pattern for "
                "each class in the same order"
            )
        n_classes = wanted.n_channels - 1  # the last one is the background
        if was_tissues and len(images.files[0]) != n_classes:
            raise CommandError(
                f"this model was fitted to tissue maps of {n_classes} classes: give as many quoted "
                f"patterns, got {len(images.files[0])}"
            )
        return model.open_files(images.for_reader, resample=self.resample, cache=self.cache)


@dataclass(frozen=True)
class OptionalImageArguments(ImageArguments):
    """The arguments of a command about its images, of which there may be none."""

    arguments: options.Images = ()  # type: ignore[assignment] # a list cannot be a default


@dataclass(frozen=True)
class ImageList:
    """Files of images, and the names of the images.

    Attributes
    ----------
    files : list of tuples of Path
        One file for each image, or one for each class of each image.
    names : list of str
        All different.
    """

    files: list[tuple[Path, ...]]
    names: list[str]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def for_reader(self) -> list[Any]:
        """The files in the form that `FileImages` takes."""
        return [group[0] if len(group) == 1 else group for group in self.files]

    @property
    def all_files(self) -> list[Path]:
        """All files in one list."""
        return [path for group in self.files for path in group]

    def take(self, numbers: Sequence[int]) -> ImageList:
        """Return some of the images."""
        return ImageList([self.files[n] for n in numbers], [self.names[n] for n in numbers])


def columns_of(
    images: ImageList, participants: Path | None, names: Sequence[str], what: str
) -> dict[str, list[str]]:
    """Return columns of a table of participants by name, with one text per image.

    Parameters
    ----------
    images : ImageList
    participants : Path or None
        The table; required if there are names.
    names : list of str
        Names of the columns.
    what : str
        Options that name columns, for an error message.
    """
    from anamorph.images.participants import read_participants

    if not names:
        return {}
    if participants is None:
        raise CommandError(f"{what} of a table: give --participants")
    table = read_participants(participants).matched([group[0] for group in images.files])
    return {name: [str(text) for text in table.labels(name)] for name in names}


def find_files(arguments: Sequence[str]) -> list[Path]:
    """Return image files, naturally sorted ("img2" before "img10").

    Parameters
    ----------
    arguments : list of str
        Files; folders, for all image files in them; patterns that the shell did not expand.
    """
    found: list[Path] = []
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            found += _find_in_folder(path)
        elif not path.exists() and glob.has_magic(argument):
            matches = [Path(match) for match in glob.glob(argument, recursive=True)]
            if not matches:
                raise CommandError(f"{argument} matches no file: check the pattern")
            found += matches
        else:
            found.append(path)
    return sorted(found, key=natural_order)


def natural_order(path: Path) -> list[tuple[int, int | str]]:
    """Return a sort key of a path that orders the numbers in it by value."""
    parts = _DIGITS.split(str(path))
    return [(0, int(part)) if part.isdecimal() else (1, part.lower()) for part in parts if part]


def _find_in_folder(folder: Path) -> list[Path]:
    from anamorph.images.readers import SUFFIXES, suffix_of

    found = [path for path in folder.iterdir() if suffix_of(path) and not path.name.startswith(".")]
    if not found:
        raise CommandError(f"{folder} is a folder without images ({', '.join(SUFFIXES)})")
    return found


def _select_images(files: list[tuple[Path, ...]], participants: Path) -> ImageList:
    """Return the images whose participant is in a table, named by participant."""
    from anamorph.images.participants import read_participants

    table = read_participants(participants)
    known = [group for group in files if table.has(group[0])]
    if not known:
        raise CommandError(f"{participants} has no participant whose id is in {files[0][0]}")
    names = table.matched([group[0] for group in known]).ids
    first: dict[str, Path] = {}
    for name, group in zip(names, known, strict=True):
        if name in first:
            raise CommandError(
                f"{first[name]} and {group[0]} are both of {name} in {participants}: give one "
                "image for each participant"
            )
        first[name] = group[0]
    return ImageList(known, names)
