"""A collection of image files on one grid, read as float32 channels with NaN for missing.

- All headers are read first, to find files that do not match each other; voxels are read later.
- Compressed files and resampled images are decoded once, into a cache.
- Intensities are scaled like those of arrays: bool, uint8 and uint16 to [0, 1]. Other integers of
  NIfTI files, and integers with a slope, are used as they are. Counts are never scaled.
- Several files per image are tissue maps, probabilities of classes. What their sum lacks to 1 is
  the probability of the background, which becomes the last class.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import ALMOST_ONE, ImageFormat, check_contrast, normalise
from anamorph.images.cache import Cache
from anamorph.images.errors import ImageError
from anamorph.images.grid import Grid, slices_inside
from anamorph.images.labels import as_labels, one_hot
from anamorph.images.readers import identities_of, open_image, suffix_of
from anamorph.images.readers.resample import resample, resample_labels
from anamorph.images.readers.source import Source
from anamorph.likelihoods import LIKELIHOODS, OF_CLASSES

AnyPath = str | os.PathLike[str]


class FileImages:
    """A collection of image files, read a few at a time.

    Parameters
    ----------
    files : list of paths, or list of tuples of paths
        One file per image, or one tissue map per class and image (see `match_tissues`).
    likelihood : str
        One of `anamorph.likelihoods.LIKELIHOODS`, "gaussian" by default. Categorical images are
        label maps, tissue maps, or probabilities along `channel_axis`.
    channel_axis : int, optional
        Axis of the stack of images that holds channels or classes, for arrays and NIfTI files;
        by default there is none.
    n_classes : int, optional
        Number of classes of label maps; by default one more than the largest label.
    resample : bool
        Whether to resample images onto one grid by their affines; False by default.
    pad : int
        Margin: voxels to add on every side, all missing; 0 by default.
    onto : Grid, optional
        The grid of all images before padding; by default that of the first file.
    cache : path, optional
        Folder for decoded images, which later collections reuse while the size and the time of
        the files stay the same; a temporary file by default.

    Attributes
    ----------
    format : ImageFormat
    grid : Grid
        The grid of the images with their margin.
    affine : array of shape (4, 4), or None
        From voxels to mm; None if the files have none.
    voxel_size : tuple of float
        Size of a voxel along each axis, in mm; 1 if the files have no affine.
    suffix : str
        Suffix of the first file, e.g. ".nii.gz".
    pad : int
    identities : list of str
        File names without suffix; with their folders where file names repeat.
    """

    def __init__(
        self,
        files: Sequence[AnyPath] | Sequence[Sequence[AnyPath]],
        likelihood: str = "gaussian",
        channel_axis: int | None = None,
        n_classes: int | None = None,
        *,
        resample: bool = False,
        pad: int = 0,
        onto: Grid | None = None,
        cache: AnyPath | None = None,
    ) -> None:
        if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
            raise ValueError(f"pad must be an integer >= 0, got {pad!r}")
        paths = _grouped(files)
        self.identities = identities_of([group[0] for group in paths])
        self._likelihood = kind = LIKELIHOODS[likelihood]
        self._channel_axis = channel_axis
        self._has_tissues = len(paths[0]) > 1
        self._has_labels = kind.holds_classes and channel_axis is None and not self._has_tissues
        if self._has_tissues and not kind.holds_classes:
            raise ImageError(
                f"several files per image are tissue maps, for likelihood={OF_CLASSES!r}, got "
                f"likelihood={likelihood!r}"
            )
        as_what = {"as_labels": self._has_labels, "is_scaled": kind.scales_integers}
        self._sources = [
            [open_image(path, channel_axis, **as_what) for path in group] for group in paths
        ]
        self._first = self._sources[0][0]
        self._inner = self._first.grid if onto is None else onto
        self._check_alike(resample, None if onto is None else "the model's grid")
        self.pad = pad
        self.grid = self._inner.padded(pad)
        self.affine, self.voxel_size = self.grid.affine, self.grid.voxel_size
        self.suffix = suffix_of(self._first.path)
        self._cache, self._given_cache = Cache(cache), cache
        self.format = self._find_format(n_classes)

    def __len__(self) -> int:
        return len(self._sources)

    def name(self, n: int) -> str:
        """Return what to call an image in an error message: its file, or files."""
        return " and ".join(str(source.path) for source in self._sources[n])

    def read(self, part: slice) -> NDArray[np.float32]:
        """Return images (n, C, *space), NaN where missing."""
        numbers = range(len(self))[part]
        shape = (len(numbers), self.format.n_channels, *self.format.space)
        images = np.full(shape, np.nan, np.float32)
        inner = slices_inside(self._inner, self.pad)
        for image, n in zip(images, numbers, strict=True):
            image[:, *inner] = self._read_channels(n)
        return images

    def subset(self, numbers: Sequence[int]) -> FileImages:
        """Return a collection of some of the images, without reading anything."""
        some = copy(self)
        some._sources = [self._sources[n] for n in numbers]
        some.identities = [self.identities[n] for n in numbers]
        return some

    def arguments(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the arguments with which another process opens some of the images.

        ``FileImages(**arguments)`` reads the same images on any machine where the files have the
        same paths.
        """
        return {
            "files": [[os.path.abspath(file.path) for file in self._sources[n]] for n in numbers],
            "likelihood": self._likelihood.name,
            "channel_axis": self._channel_axis,
            "n_classes": self.format.n_classes,
            "resample": True,  # this collection has checked whether that is allowed
            "pad": self.pad,
            "onto": self._inner,
            "cache": None if self._given_cache is None else os.path.abspath(self._given_cache),
        }

    def check(self, *, for_fit: bool) -> None:
        """Read every image once, and raise an ImageError if one cannot be used.

        Parameters
        ----------
        for_fit : bool
            Whether a model will be fitted to them: a constant image is an error then.
        """
        for n in range(len(self)):
            if self._has_labels:
                voxels: NDArray[Any] = self._read_labels(n)
            else:
                voxels = self._read_intensities(n)
                self._check_values(n, voxels)
            if for_fit and not self._likelihood.accepts_constant:
                check_contrast(voxels[None], n, self.name)

    # ---- voxels

    def _read_channels(self, n: int) -> NDArray[np.float32]:
        """Return an image (C, *space) without its margin."""
        if self._has_labels:
            return one_hot(self._read_labels(n), self.format.n_channels).squeeze(0)
        channels = self._read_intensities(n)
        if self._has_tissues:
            channels = np.clip(channels, 0, 1)
            background = np.maximum(0, 1 - channels.sum(axis=0, keepdims=True))
            channels = np.concatenate([channels, background])
        if self._likelihood.holds_classes:
            normalise(channels, axis=0)
        return channels

    def _read_labels(self, n: int) -> NDArray[np.int16]:
        """Return the labels in the file of an image, (1, *space)."""
        return self._stored(self._sources[n][0])

    def _read_intensities(self, n: int) -> NDArray[np.float32]:
        """Return the scaled values in the files of an image, (C, *space)."""
        maps = []
        for source in self._sources[n]:
            voxels = self._stored(source).astype(np.float32)
            maps.append(voxels if source.scale is None else voxels / np.float32(source.scale))
        return maps[0] if len(maps) == 1 else np.concatenate(maps)

    def _stored(self, source: Source) -> NDArray[Any]:
        """Return voxels (C, *space) on the common grid, from the cache if decoding is slow."""
        is_elsewhere = source.grid.difference(self._inner) is not None
        if not (source.is_slow or is_elsewhere):
            return self._decode(source, is_elsewhere)
        facts = (
            os.path.abspath(source.path),
            source.stamp,
            self._has_labels,
            self._likelihood.scales_integers,
            self._channel_axis,
            self._inner.facts() if is_elsewhere else None,
        )
        return self._cache.get(source.path.name, facts, lambda: self._decode(source, is_elsewhere))

    def _decode(self, source: Source, is_elsewhere: bool) -> NDArray[Any]:
        voxels = source.load()
        if self._has_labels:
            labels = as_labels(source.path, voxels)
            return resample_labels(labels, source.grid, self._inner) if is_elsewhere else labels
        return resample(voxels, source.grid, self._inner) if is_elsewhere else voxels

    # ---- the format and the grid that all files share

    def _find_format(self, n_classes: int | None) -> ImageFormat:
        last_axis = len(self._inner.space) + 1
        n_channels = self._first.n_channels or 1
        axis = None if self._first.n_channels is None else last_axis
        if self._has_labels:
            n_channels = self._count_classes(n_classes)
        elif self._has_tissues:
            n_channels, axis = len(self._sources[0]) + 1, last_axis
        elif self._channel_axis is not None:
            axis = self._channel_axis % (last_axis + 1)
        return ImageFormat(self._likelihood.name, self.grid.space, n_channels, axis)

    def _count_classes(self, n_classes: int | None) -> int:
        highest = 1
        for n in range(len(self)):
            largest = int(self._read_labels(n).max())
            if n_classes is not None and largest >= n_classes:
                raise ImageError(
                    f"{self.name(n)} has label {largest}, and labels must be below {n_classes}, "
                    "the number of classes of the model"
                )
            highest = max(highest, largest)
        return highest + 1 if n_classes is None else n_classes

    def _check_alike(self, may_resample: bool, name: str | None) -> None:
        reference = name or self._first.path
        for source in chain.from_iterable(self._sources):
            difference = self._inner.difference(source.grid)
            advice = "use resample=True (--resample) to bring all images onto one grid"
            if self._inner.affine is None or source.grid.affine is None:
                advice = "bring them to one size first, only NIfTI files can be resampled"
            elif may_resample:
                difference = None
            if difference is not None:
                raise ImageError(f"{reference} and {source.path} differ in {difference}: {advice}")
            self._check_same_content(source)

    def _check_same_content(self, source: Source) -> None:
        first = self._first
        if self._has_tissues and source.n_channels is not None:
            raise ImageError(f"{source.path} has channels: a tissue map is grey")
        if source.n_channels != first.n_channels:
            raise ImageError(
                f"{first.path} has {_count_channels(first)} and {source.path} has "
                f"{_count_channels(source)}: convert them to be alike"
            )
        is_bounded = np.isfinite(self._likelihood.value_range[1])  # else nothing finds it out
        if not is_bounded and (source.scale is None) != (first.scale is None):
            scaled, other = (first, source) if source.scale is None else (source, first)
            raise ImageError(
                f"{scaled.path} holds integers that stand for 0 to 1 and {other.path} does not: "
                "convert them to one type"
            )

    # ---- checks of one image

    def _check_values(self, n: int, voxels: NDArray[np.float32]) -> None:
        observed = voxels[~np.isnan(voxels)]
        if np.isinf(observed).any():
            raise ImageError(f"{self.name(n)} contains infinity: NaN marks missing voxels")
        if observed.size == 0:
            raise ImageError(
                f"{self.name(n)} has no observed voxel on the common grid: leave it out"
            )
        slack = ALMOST_ONE if self._has_tissues else 0.0
        lowest, highest = observed.min(), observed.max()
        if not self._likelihood.accepts(lowest, highest, slack):
            raise ImageError(
                f"{self.name(n)} holds {lowest:.4g} to {highest:.4g}, and {self._likelihood.name} "
                f"images have {self._likelihood.range_words}: {self._likelihood.range_advice}"
            )
        if not self._likelihood.holds_classes:
            return
        total = voxels.sum(axis=0)
        most_missing = np.inf if self._has_tissues else ALMOST_ONE  # the rest is background
        wrong = (total - 1 > ALMOST_ONE) | (1 - total > most_missing)  # not where it is NaN
        if wrong.any():
            raise ImageError(
                f"{self.name(n)}: probabilities of classes sum to {total[wrong][0]:.4g} at a "
                "voxel, not to 1: normalise them, or add a background class"
            )


def _grouped(files: Sequence[AnyPath] | Sequence[Sequence[AnyPath]]) -> list[tuple[Path, ...]]:
    """Return the files of every image."""
    if isinstance(files, str | os.PathLike):
        raise ImageError(f"{files} is one path: give a list of files")
    groups = [
        (Path(item),) if isinstance(item, str | os.PathLike) else tuple(map(Path, item))
        for item in files
    ]
    if not groups or not groups[0]:
        raise ImageError("no images: the list of files is empty")
    for group in groups:
        if len(group) != len(groups[0]):
            raise ImageError(
                f"every image needs as many files: {groups[0][0]} is one of {len(groups[0])}, and "
                f"another image has {len(group)}"
            )
    return groups


def _count_channels(source: Source) -> str:
    return "1 channel" if source.n_channels in (None, 1) else f"{source.n_channels} channels"
