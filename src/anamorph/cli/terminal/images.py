"""Image arguments of commands: files, folders, patterns, tissue maps, participants."""

from __future__ import annotations

import glob
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.messages import counted

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.bids import BidsFile
    from anamorph.images.files import FileImages
    from anamorph.images.grid import Grid

_DIGITS = re.compile(r"(\d+)")
_BIDS_PART = re.compile(r"(sub|ses)-[a-zA-Z0-9]+")
_MOST_SEARCHED = 5000  # files of a BIDS dataset
_MOST_NAMED = 3

_logger = logging.getLogger("anamorph.cli")


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
    resample : bool or None
        Whether to resample images onto one grid; None, by default, if headers say where they are.
    cache : Path or None
        Folder for decoded images; None, by default, for a temporary file.
    missing_value : float or None
        Value in files that stands for missing; None, by default, if there is none.
    mask : str or None
        File, folder or pattern of images that are 0 where others are missing; None by default.
    bids : Path or None
        Root of a BIDS dataset to take images from instead; None by default.
    suffix : str or None
        Of those images.
    entities : list of str
        Entities that they must have, as KEY=VALUE; by default any.
    """

    arguments: options.Images = ()  # type: ignore[assignment] # a list cannot be a default
    tissues: options.Tissues = False
    participants: options.ParticipantsTable = None
    resample: options.Resample = None
    cache: options.CacheFolder = None
    missing_value: options.MissingValue = None
    mask: options.Mask = None
    bids: options.Bids = None
    suffix: options.BidsSuffix = None
    entities: options.BidsEntities = ()  # type: ignore[assignment]

    @property
    def are_given(self) -> bool:
        """Whether there are any images."""
        return bool(self.arguments) or self.bids is not None

    def find(self) -> ImageList:
        """Return the files of all images, naturally sorted, and the names of the images."""
        if self.bids is not None:
            found = self._find_in_dataset(self.bids)
            return found if self.mask is None else found.with_masks(find_files([self.mask]))
        if not self.arguments:
            raise CommandError(
                "no images: give files, folders or quoted patterns, or --bids FOLDER --suffix NAME"
            )
        for flag, value in (("--suffix", self.suffix), ("--entity", self.entities)):
            if value:
                raise CommandError(f"{flag} chooses images of a BIDS dataset: give --bids FOLDER")
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
        images = (
            ImageList(files, identities_of([group[0] for group in files]))
            if self.participants is None
            else _select_images(files, self.participants)
        )
        return images if self.mask is None else images.with_masks(find_files([self.mask]))

    def _find_in_dataset(self, root: Path) -> ImageList:
        """Return the images of a BIDS dataset, named by their entities."""
        from anamorph.images.bids import find_bids, short_names
        from anamorph.images.participants import read_participants

        if self.arguments or self.tissues:
            raise CommandError("give images, or --bids and --suffix, and not both")
        if self.suffix is None:
            raise CommandError("--bids needs the suffix of the images, e.g. --suffix T1w")
        entities = {}
        for text in self.entities:
            key, sign, value = text.partition("=")
            if not (key and sign):
                raise CommandError(f"--entity must be KEY=VALUE, e.g. ses=01, got {text}")
            entities[key] = value
        found = find_bids(root, self.suffix, entities)
        if self.participants is not None:
            known = set(read_participants(self.participants).ids)
            found = [file for file in found if file.participant in known]
            if not found:
                raise CommandError(f"{self.participants} has no participant of {root}")
        return ImageList([(file.path,) for file in found], short_names(found), None, found)

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

    def open_to_fit(
        self,
        model: ShapeAppearanceModel,
        images: ImageList,
        pad: int | None,
        reference: Path | None = None,
    ) -> FileImages:
        """Return images to fit a model to.

        Parameters
        ----------
        model : ShapeAppearanceModel
            Not fitted yet.
        images : ImageList
        pad : int or None
            Margin, in voxels; None: what images need to be aligned, if the model aligns them.
        reference : Path, optional
            File whose grid all images are brought onto; by default they have or find their own.
        """
        from anamorph.geometry.pose import NONE
        from anamorph.images.files import AUTO, FileImages
        from anamorph.likelihoods import LIKELIHOODS
        from anamorph.model.checks import check_choice

        # Before the fit checks it, since it decides how files are read.
        check_choice("likelihood", model.likelihood, tuple(LIKELIHOODS))
        found = 0 if model.align == NONE else AUTO
        return FileImages(
            images.for_reader,
            model.likelihood,
            model.channel_axis,
            resample=True if reference is not None else self.resample,
            pad=found if pad is None else pad,
            onto=None if reference is None else _checked_reference(reference),
            cache=self.cache,
            scale=model.scale,
            missing_value=self.missing_value,
            mask=images.masks,
        )

    def open_like(
        self, model: ShapeAppearanceModel, files: FileImages, images: ImageList
    ) -> FileImages:
        """Return more images, as those that a model is fitted to: their grid, margin and scale."""
        from anamorph.images.files import FileImages
        from anamorph.images.grid import Grid

        onto = None
        if files.affine is not None:
            onto = Grid(files.format.space, files.affine).padded(-files.pad)
        return FileImages(
            images.for_reader,
            model.likelihood,
            model.channel_axis,
            like=files.format,
            resample=self.resample,
            pad=files.pad,
            onto=onto,
            cache=self.cache,
            missing_value=self.missing_value,
            mask=images.masks,
        )

    def inputs(self, images: ImageList | None) -> list[Path]:
        """Return every file that the command reads: those of the images, if any, and the table."""
        files = [] if images is None else [*images.all_files, *(images.masks or [])]
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
        return model.open_files(
            images.for_reader,
            resample=self.resample,
            cache=self.cache,
            missing_value=self.missing_value,
            mask=images.masks,
        )


#: The same, of commands that can do without images: they ask `are_given`.
OptionalImageArguments = ImageArguments


@dataclass(frozen=True)
class ImageList:
    """Files of images, and the names of the images.

    Attributes
    ----------
    files : list of tuples of Path
        One file for each image, or one for each class of each image.
    names : list of str
        All different.
    masks : list of Path, optional
        One for each image; none by default.
    bids : list of BidsFile, optional
        What their names say, where they come from a BIDS dataset; None by default.
    """

    files: list[tuple[Path, ...]]
    names: list[str]
    masks: list[Path] | None = None
    bids: list[BidsFile] | None = None

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
        masks = None if self.masks is None else [self.masks[n] for n in numbers]
        bids = None if self.bids is None else [self.bids[n] for n in numbers]
        files, names = [self.files[n] for n in numbers], [self.names[n] for n in numbers]
        return ImageList(files, names, masks, bids)

    def with_masks(self, masks: list[Path]) -> ImageList:
        """Return these images with masks: one for all, or one for each in the same order."""
        if len(masks) == 1:
            return replace(self, masks=masks * len(self))
        if len(masks) != len(self):
            raise CommandError(
                f"--mask must be one file, or one for each of {len(self)} images, got {len(masks)}"
            )
        return replace(self, masks=masks)


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
        if not argument:  # it would be the folder that the command is called from
            raise CommandError("an image has an empty name: is a variable of the shell not set?")
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
    """Return the images in a folder, and say what else there is that might have been one."""
    from anamorph.images.readers import SUFFIXES, suffix_of

    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    found = [path for path in visible if suffix_of(path) and not _is_header_of_pair(path, visible)]
    if not found:
        raise CommandError(
            _describe_bids(folder) or f"{folder} is a folder without images ({', '.join(SUFFIXES)})"
        )
    headers = {path for path in visible if _is_header_of_pair(path, visible)}
    _tell_skipped(folder, [path for path in visible if path not in headers.union(found)])
    return found


def _is_header_of_pair(path: Path, others: Sequence[Path]) -> bool:
    """Tell whether a file is the header of an image that is there, too."""
    if path.suffix.lower() != ".hdr":
        return False
    return any(path.with_suffix(suffix) in others for suffix in (".img", ".IMG"))


def _tell_skipped(folder: Path, skipped: Sequence[Path]) -> None:
    """Say which files and folders in a folder are not read."""
    folders = [path for path in skipped if path.is_dir()]
    files = [path for path in skipped if path not in folders]
    parts = []
    if files:
        kinds = Counter("".join(path.suffixes[-2:]) or path.name for path in files)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_MOST_NAMED))
        named = ", ".join(path.name for path in files[:_MOST_NAMED])
        more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
        parts.append(f"{counted(len(files), 'file')} of other kinds ({counts}): {named}{more}")
    if folders:
        parts.append(f"{counted(len(folders), 'folder')} in it, not searched")
    if parts:
        _logger.warning("%s", f"{folder}: skipped {'; and '.join(parts)}")


def _describe_bids(folder: Path) -> str | None:
    """Return what to type for a BIDS dataset, None if a folder is not the root of one."""
    from anamorph.images.readers import suffix_of

    if not (folder / "dataset_description.json").exists() and not any(folder.glob("sub-*/")):
        return None
    patterns: Counter[str] = Counter()
    for path in islice(folder.glob("sub-*/**/*"), _MOST_SEARCHED):
        if suffix_of(path):
            *folders, name = path.relative_to(folder).parts
            places = [_BIDS_PART.sub(r"\1-*", part) for part in folders]
            patterns[str(folder.joinpath(*places, f"*_{name.rsplit('_', 1)[-1]}"))] += 1
    if not patterns:
        return f"{folder} is the root of a BIDS dataset in which no images were found"
    shown = " or ".join(f"'{pattern}'" for pattern, _ in patterns.most_common(_MOST_NAMED))
    return (
        f"{folder} is the root of a BIDS dataset: say which of its images, e.g. {shown}, or by "
        f"--bids {folder} --suffix T1w"
    )


def _checked_reference(path: Path) -> Grid:
    """Return the grid of a reference file."""
    from anamorph.images.readers import open_image

    grid = open_image(path, None, as_labels=False).grid
    if grid.affine is None:
        raise CommandError(f"--reference {path} must be a volume, which says where its voxels are")
    return grid


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
