"""A collection of image files on one grid, read as float32 channels with NaN for missing.

- All headers are read first, to find files that do not match each other; voxels are read later.
- Compressed files and resampled images are decoded once, into a cache.
- Numbers are read by the rules of arrays: floats stay, integers are scaled by what they hold.
  Integers of volumes whose type says nothing about their range are used as they are.
- Several files per image are tissue maps, probabilities of classes. What their sum lacks to 1 is
  the probability of the background, which becomes the last class.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.arrays import normalise
from anamorph.images.cache import Cache, Decoder
from anamorph.images.errors import ImageError
from anamorph.images.facts import (
    MOST_REMARKS,
    ImageFacts,
    check_intensities,
    digest_of,
    facts_of,
    remark_on_centres,
    remark_on_copies,
    remark_on_labels,
    remark_on_masks,
    remark_on_missing,
    usual_intensity,
)
from anamorph.images.foreground import are_crops
from anamorph.images.format import BY_CONTENT, ImageFormat
from anamorph.images.grid import (
    Grid,
    check_place,
    describe_grids,
    grid_for_all,
    grids_must_match,
    slices_inside,
)
from anamorph.images.intensity import Scaling, checked_scale, find_scaling
from anamorph.images.labels import MISSING, format_labels, one_hot
from anamorph.images.masks import Masks
from anamorph.images.quantiles import QuantileMap, average_quantiles
from anamorph.images.readers import identities_of, open_image, suffix_of
from anamorph.images.readers.source import Source
from anamorph.images.rules import (
    check_channels,
    check_contrast,
    check_one_unit,
    check_scaling,
    check_values,
    compares_intensities,
    divisor_of,
    find_unit_of_files,
    found_classes,
    grouped,
    is_unbounded,
    missing_value_of,
)
from anamorph.likelihoods import LIKELIHOODS, OF_CLASSES

AnyPath = str | os.PathLike[str]

#: Stands for a margin where images need one.
AUTO = "auto"
_MARGIN_SHARE = 0.1  # of the longest axis
_ROUNDING = 1e-5  # by which interpolation may change what is the same everywhere, relative to it

_SCALED = {
    "robust": "divided by its own typical intensity",
    "zscore": "less the mean of its foreground, and divided by its standard deviation",
    "match": "brought to the average quantiles of all images",
}

_logger = logging.getLogger(__name__)


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
        Number of classes of label maps 0, 1, 2, ...; by default there is one for each label.
    resample : bool, optional
        Whether to resample images that are on different grids onto one, by their affines. By
        default they are if all headers say where voxels are.
    pad : int or "auto"
        Margin: voxels to add on every side, all missing; 0 by default. "auto" adds a tenth of the
        longest axis where most images are crops, which show no background, and nothing elsewhere:
        for images that are aligned, which takes parts of them out of the box.
    onto : Grid, optional
        The grid of all images before padding. By default that of the first file, or where grids
        differ one that holds all images.
    cache : path, optional
        Folder for decoded images, which later collections reuse while the size and the time of
        the files stay the same; a temporary file by default.
    scale : {"none", "robust", "zscore", "match"} or float, optional
        How to scale intensities, each image by itself: "robust" divides by its typical intensity,
        "zscore" makes mean 0 and standard deviation 1 of its foreground, "match" brings its
        quantiles to the average of all images, a number divides. By default floats stay, and
        integers are divided by what stands for 1 among them.
    like : ImageFormat, optional
        Format of the images that a model was fitted to, by whose rules these are read; it
        overrides `n_classes` and `scale`. By default rules are found from the images.
    missing_value : float, optional
        Value in the files that stands for missing, besides NaN; that of `like` by default.
    mask : path, or list of paths, optional
        An image for all, or one for each, which is 0 where voxels are missing; none by default.

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
        resample: bool | None = None,
        pad: int | str = 0,
        onto: Grid | None = None,
        cache: AnyPath | None = None,
        scale: str | float | None = None,
        like: ImageFormat | None = None,
        missing_value: float | None = None,
        mask: AnyPath | Sequence[AnyPath] | None = None,
    ) -> None:
        if pad != AUTO and (isinstance(pad, bool) or not isinstance(pad, int) or pad < 0):
            raise ValueError(f"pad must be an integer >= 0 or {AUTO!r}, got {pad!r}")
        paths = grouped(files)
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
        self._missing_value = missing_value_of(missing_value, like)
        self._scale = like.scale if like is not None else checked_scale(scale)
        check_scaling(kind, self._scale, has_labels=self._has_labels)
        self._sources = [
            [open_image(path, channel_axis, as_labels=self._has_labels) for path in group]
            for group in paths
        ]
        self._first = self._sources[0][0]
        everything = list(chain.from_iterable(self._sources))
        self._target = "the common grid" if like is None else "the model's grid"
        named = None if onto is None else (self._target if like else "the given grid", onto)
        self._inner = (
            grid_for_all(everything, resample=resample is not False) if onto is None else onto
        )
        grids_must_match(everything, named, may_resample=resample)
        check_channels(everything, are_tissues=self._has_tissues)
        self.suffix = suffix_of(self._first.path)
        self._given_cache = cache
        self._decoder = Decoder(
            self._inner,
            Cache(cache),
            self._has_labels,
            channel_axis,
            self._missing_value,
            for_model=like is not None,
        )
        self._masks = None
        if mask is not None:
            self._masks = Masks(mask, len(paths), self._inner, may_resample=resample)
        self._unit = self._find_unit(like)
        self._adds_margin = pad == AUTO
        self.pad = self._found_margin() if isinstance(pad, str) else pad
        self.grid = self._inner.padded(self.pad)
        self.affine, self.voxel_size = self.grid.affine, self.grid.voxel_size
        self.format = self._find_format(n_classes, like)
        if self._scale == "match" and like is None:
            found = average_quantiles(map(self._read_unscaled, range(len(self))))
            self.format = replace(self.format, quantiles=found)

    #: Typical intensity of the images, known once they were checked for a fit.
    typical: float | None = None
    _checked_as: tuple[bool, float | None] | None = None  # what they were checked for last

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
        some._masks = None if self._masks is None else self._masks.subset(numbers)
        return some

    @property
    def understood(self) -> str | None:
        """What files were taken for, in one line; None if they are taken as they are."""
        grids = describe_grids(list(chain.from_iterable(self._sources)), self._inner)
        margin = None
        if self._adds_margin and self.pad:
            margin = (
                f"most show no background at their borders, and get a margin of {self.pad} missing "
                "voxels for their alignment"
            )
        return "; ".join(filter(None, (self._understood_numbers, grids, margin))) or None

    @property
    def _understood_numbers(self) -> str | None:
        if self._has_labels:
            labels = self.format.class_labels
            return f"labels {format_labels(labels)} are {len(labels)} classes"
        if isinstance(self._scale, float):
            return f"values are divided by {self._scale:g}"
        if self._scale in _SCALED:
            return f"each image is {_SCALED[self._scale]}"
        integers = self._first.integers
        if integers is None or integers.kind == "b" or not self._likelihood.scales_integers:
            return None
        divisor = divisor_of(integers, self.format.unit)
        read = "taken as they are" if divisor == 1 else f"divided by {divisor:g}"
        return f"{integers} values are {read}"

    def grid_of(self, n: int) -> Grid:
        """Return the grid of the file of an image, before resampling and without margin."""
        return self._sources[n][0].grid

    def missing_share(self, n: int) -> float:
        """Return which share of an image is missing, from 0 to 1; the margin does not count."""
        voxels = self._read_channels(n)
        return float(np.isnan(voxels).mean())

    def arguments(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the arguments with which another process opens some of the images.

        ``FileImages(**arguments)`` reads the same images on any machine where the files have the
        same paths.
        """
        return {
            "files": [[os.path.abspath(file.path) for file in self._sources[n]] for n in numbers],
            "likelihood": self._likelihood.name,
            "channel_axis": self._channel_axis,
            "like": self.format,
            "missing_value": self._missing_value,
            "mask": None if self._masks is None else self._masks.paths(numbers),
            "resample": True,  # this collection has checked whether that is allowed
            "pad": self.pad,
            "onto": self._inner,
            "cache": None if self._given_cache is None else os.path.abspath(self._given_cache),
        }

    def check(self, *, for_fit: bool, usual: float | None = None) -> None:
        """Read every image once, and raise an ImageError if one cannot be used.

        What is remarkable but can be used is logged, in four lines at most. Images that were
        checked for the same, and some of them, are not read again.

        Parameters
        ----------
        for_fit : bool
            Whether a model will be fitted to them: a constant image is an error then, and so are
            intensities that differ absurdly.
        usual : float, optional
            Typical intensity of the images of a model, which these should have about; by default
            they are not compared with any.
        """
        if self._checked_as != (for_fit, usual):
            self.compare(self.find_facts(for_fit=for_fit), for_fit=for_fit, usual=usual)
            self._checked_as = for_fit, usual

    def find_facts(self, *, for_fit: bool) -> list[ImageFacts]:
        """Read every image once, raise an ImageError if one cannot be used, and return facts.

        The first half of `check`, about each image by itself: partitions of a collection can be
        looked at in different places.

        Parameters
        ----------
        for_fit : bool
            Whether a model will be fitted to them: a constant image is an error then.
        """
        facts = []
        for n in range(len(self)):
            if self._has_labels:
                voxels: NDArray[Any] = self._read_labels(n)
                missing = voxels == MISSING
            else:
                voxels = self._read_intensities(n)
                missing = np.isnan(voxels)
            self._check_observed(n, missing)
            if not self._has_labels:
                check_values(self.name(n), voxels, self._likelihood, are_tissues=self._has_tissues)
            if for_fit and not self._likelihood.accepts_constant:
                check_contrast(voxels[None], n, self.name)
                self._check_contrast_of_files(n, voxels[~missing])
            digest = digest_of(voxels) if for_fit else b""
            if self._has_labels:
                voxels = np.where(voxels == MISSING, np.nan, voxels != self.format.class_labels[0])
            share = self._share_missing(n, missing)
            facts.append(replace(facts_of(voxels), missing=share, digest=digest))
        return facts

    def _share_missing(self, n: int, missing: NDArray[np.bool_]) -> float:
        """Return which share of an image is missing; what its mask leaves out was never asked."""
        if self._masks is None:
            return float(missing.mean())
        asked = np.broadcast_to(self._masks.observed(n), missing.shape)
        return float(missing[asked].mean())  # checked before: something is observed

    def compare(
        self, facts: list[ImageFacts], *, for_fit: bool, usual: float | None = None
    ) -> None:
        """Compare the images with each other, log what is remarkable, refuse what is absurd.

        The second half of `check`.

        Parameters
        ----------
        facts : list of ImageFacts
            Of all images, from `find_facts`.
        for_fit, usual
            As in `check`.
        """
        remarks = [check_place(list(chain.from_iterable(self._sources)))]
        if (for_fit or usual is not None) and compares_intensities(self._likelihood, self._scale):
            remarks.insert(0, check_intensities(facts, self.name, usual))
            if for_fit:
                self.typical = usual_intensity(facts)
                remarks.insert(0, remark_on_labels(facts, self.name))
                remarks.append(remark_on_masks(facts, self.name))
        if for_fit:
            remarks.append(remark_on_copies(facts, self.name))
            remarks.append(remark_on_missing(facts, self.name))
            remarks.append(remark_on_centres(facts, self._inner.space, self.name))
        for remark in [remark for remark in remarks if remark][:MOST_REMARKS]:
            _logger.warning("%s", remark)

    # ---- voxels

    def _read_channels(self, n: int) -> NDArray[np.float32]:
        """Return an image (C, *space) without its margin."""
        if self._has_labels:
            return one_hot(self._read_labels(n), self.format.class_labels).squeeze(0)
        channels = self._read_intensities(n)
        if self._has_tissues:
            channels = np.clip(channels, 0, 1)
            background = np.maximum(0, 1 - channels.sum(axis=0, keepdims=True))
            channels = np.concatenate([channels, background])
        if self._likelihood.holds_classes:
            normalise(channels, axis=0)
        return channels

    def _read_labels(self, n: int) -> NDArray[np.int32]:
        """Return the labels in the file of an image, (1, *space)."""
        labels: NDArray[np.int32] = self._decoder.read(self._sources[n][0])
        if self._masks is not None:
            labels = np.where(self._masks.observed(n), labels, np.int32(MISSING))
        return labels

    def _read_intensities(self, n: int) -> NDArray[np.float32]:
        """Return the scaled values in the files of an image, (C, *space)."""
        channels = self._read_unscaled(n)
        if np.isnan(channels).all():  # an error of its own, when images are checked
            return channels
        return self._scaling_of(n, channels).apply(channels)

    def unscaled(self, n: int, image: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return a scaled image (C, *space) in the intensities of image n."""
        if self._scale is None:
            return image
        return self._scaling_of(n, self._read_unscaled(n)).undo(image)

    def _scaling_of(self, n: int, own: NDArray[np.float32]) -> Scaling | QuantileMap:
        return find_scaling(own, self._scale, self.name(n), self.format.quantiles)

    def _read_unscaled(self, n: int) -> NDArray[np.float32]:
        """Return the values in the files of an image, integers divided by what stands for 1."""
        maps = []
        for source in self._sources[n]:
            voxels = self._decoder.read(source).astype(np.float32)
            with np.errstate(invalid="ignore", over="ignore"):  # whatever a damaged file holds
                maps.append(voxels / np.float32(self._divisor(source)))
        channels = maps[0] if len(maps) == 1 else np.concatenate(maps)
        if self._masks is not None:
            channels = np.where(self._masks.observed(n), channels, np.float32(np.nan))
        return channels

    def _divisor(self, source: Source) -> float:
        if source.integers is None or not self._likelihood.scales_integers:
            return 1.0
        return divisor_of(source.integers, self._unit)

    def _check_contrast_of_files(self, n: int, observed: NDArray[Any]) -> None:
        """Raise an ImageError if the files of an image on another grid are constant.

        Brought onto the grid, such an image is constant where it is observed, and missing around
        it: as one may be of which something is not known.
        """
        if self._masks is not None or not any(map(self._decoder.is_elsewhere, self._sources[n])):
            return
        if np.ptp(observed) <= _ROUNDING * np.abs(observed).max():
            files = np.concatenate([source.load() for source in self._sources[n]])
            check_contrast(files[None], n, self.name)

    def _check_observed(self, n: int, missing: NDArray[np.bool_]) -> None:
        """Raise an ImageError if nothing is observed in an image, and say why."""
        if not missing.all():
            return
        source = self._sources[n][0]
        if self._decoder.is_elsewhere(source) and source.grid.share_inside(self._inner) == 0:
            why = f"it lies wholly outside {self._target}: check its affine, or align it first"
        elif self._masks is not None:
            why = "all that it holds is outside the mask, or missing: check the mask"
        else:
            why = "all its voxels are missing: leave it out"
        raise ImageError(f"{self.name(n)} has no observed voxel: {why}")

    # ---- the format and the grid that all files share

    def _found_margin(self) -> int:
        """Return the margin that images need where poses take parts of them out of their box."""

        def read(n: int) -> NDArray[np.floating]:
            if not self._has_labels:
                return self._read_unscaled(n)
            labels = self._read_labels(n)
            return np.where(labels == MISSING, np.nan, labels)

        is_needed = are_crops(read, len(self))
        return math.ceil(_MARGIN_SHARE * max(self._inner.space)) if is_needed else 0

    def _find_format(self, n_classes: int | None, like: ImageFormat | None) -> ImageFormat:
        last_axis = len(self._inner.space) + 1
        n_channels, labels = self._first.n_channels or 1, None
        axis = None if self._first.n_channels is None else last_axis
        if self._has_labels:
            maps = map(self._read_labels, range(len(self)))
            n_channels, labels = found_classes(maps, self.name, n_classes, like)
        elif self._has_tissues:
            n_channels, axis = len(self._sources[0]) + 1, last_axis
        elif self._channel_axis is not None:
            axis = self._channel_axis % (last_axis + 1)
        return ImageFormat(
            self._likelihood.name,
            self.grid.space,
            n_channels,
            axis,
            self._scale,
            self._unit,
            labels,
            self._missing_value,
            None if like is None else like.quantiles,
        )

    def _find_unit(self, like: ImageFormat | None) -> float | str:
        """Return the integer that stands for 1, or the rule that finds it."""
        known = BY_CONTENT if like is None else like.unit
        if self._has_labels or self._scale is not None or not self._likelihood.scales_integers:
            return known

        sources = list(chain.from_iterable(self._sources))
        may_scale = is_unbounded(self._likelihood)
        for_model = like is not None
        unit = find_unit_of_files(
            sources,
            known,
            self._decoder.read_unresampled,
            may_scale=may_scale,
            for_model=for_model,
        )
        if may_scale:  # else the range of values finds it out
            check_one_unit(sources, unit, for_model=for_model)
        return unit
