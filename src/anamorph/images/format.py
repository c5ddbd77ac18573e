"""The format of images: their grid and channels, and the rules by which their numbers are read.

A model keeps the format of the images that it was fitted to, so that new images are read by the
same rules whatever they happen to hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.errors import ImageError
from anamorph.likelihoods import LIKELIHOODS

#: Rules for integers that are not a number: by their type, or by what a collection holds.
BY_TYPE, BY_CONTENT = "type", "content"


@dataclass(frozen=True)
class ImageFormat:
    """How the images of a model look as arrays, and how their numbers are read.

    Attributes
    ----------
    likelihood : str
    space : tuple of int
    n_channels : int
    channel_axis : int or None
        Axis of channels in the stack of all images; None if there is none.
    scale : str or float, optional
        How intensities are scaled: "none", "robust", "zscore" or "match", or a number to divide
        them by; by default integers stand for 0 to 1 as `unit` says, and floats for themselves.
    unit : float or str
        The integer that stands for 1; "content" if images held floats, and integers are read by
        what they hold; "type", the default, for the largest value of their type, as all models
        before version 0.2 have it.
    labels : tuple of int, optional
        Labels of the classes of label maps; by default 0, 1, 2, ...
    missing_value : float, optional
        Value in files that stands for missing, besides NaN; by default there is none.
    quantiles : tuple of float, optional
        Those of the intensities that images are matched to, where `scale` is "match".
    """

    likelihood: str
    space: tuple[int, ...]
    n_channels: int
    channel_axis: int | None
    scale: str | float | None = None
    unit: float | str = BY_TYPE
    labels: tuple[int, ...] | None = None
    missing_value: float | None = None
    quantiles: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("labels", "quantiles"):
            if (numbers := getattr(self, name)) is not None:  # a list after a journey as JSON
                object.__setattr__(self, name, tuple(numbers))

    @property
    def holds_labels(self) -> bool:
        """Whether images are integer label maps, one channel per class inside."""
        return LIKELIHOODS[self.likelihood].holds_classes and self.channel_axis is None

    @property
    def n_classes(self) -> int | None:
        """Number of classes of label maps; None if images are not label maps."""
        return self.n_channels if self.holds_labels else None

    @property
    def class_labels(self) -> tuple[int, ...]:
        """The label of every class, in the order of channels."""
        return tuple(range(self.n_channels)) if self.labels is None else self.labels

    def check_like(self, wanted: ImageFormat, name: str) -> None:
        """Raise an ImageError unless images have the shape and the channels of a model.

        Parameters
        ----------
        wanted : ImageFormat
            That of the model.
        name : str
            What to call the image in an error message.
        """
        for what, given, expected in (
            ("shape", self.space, wanted.space),
            ("number of channels", self.n_channels, wanted.n_channels),
        ):
            if given != expected:
                raise ImageError(
                    f"{name} must have the {what} of the images that the model was fitted to, "
                    f"{expected}, got {given}"
                )

    def to_user(self, images: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return images (N, C, *space) with channels on the axis that the user chose.

        Probabilities of classes have the classes last where the user gave label maps.
        """
        if self.channel_axis is not None:
            return np.moveaxis(images, 1, self.channel_axis)
        return np.moveaxis(images, 1, -1) if self.holds_labels else images[:, 0]

    def to_labels(self, classes: NDArray[Any]) -> NDArray[Any]:
        """Return numbers of classes (from 0) as the labels that the images have for them.

        The type is the smallest unsigned one that holds all labels.
        """
        table = np.array(self.class_labels)
        labels: NDArray[Any] = table.astype(np.min_scalar_type(int(table.max())))[classes]
        return labels
