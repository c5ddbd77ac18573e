"""Five sets of images, and random halves of them to learn from and to predict.

None of them ships with the package; their sources and terms are those in `examples.paper.images`.
The small version draws images of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.images.hidden import Boxes
from examples.paper.images import coarser, drawn_faces, one_hot, tissue_maps

Array = NDArray[np.floating]

#: Share of the voxels of a test image that its box hides.
HIDDEN_SHARE = 0.29


@dataclass(frozen=True)
class Dataset:
    """Images to learn from and to predict.

    Attributes
    ----------
    images : (N, *space, C)
    likelihood : str
    n_training, n_test : int
    group : (N,)
        Images of one group are all learnt from or all predicted; by default each is its own.
    """

    images: Array
    likelihood: str
    n_training: int
    n_test: int
    group: NDArray[Any]

    @property
    def space(self) -> tuple[int, ...]:
        """Shape of the grid."""
        return self.images.shape[1:-1]

    def split(self, seed: int) -> Split:
        """Return a random choice of images to learn from and to predict, with their boxes."""
        draws = np.random.default_rng(seed)
        groups = draws.permutation(np.unique(self.group))
        order = np.concatenate([np.flatnonzero(self.group == group) for group in groups])
        test = order[self.n_training : self.n_training + self.n_test]
        boxes = draw_boxes(len(test), self.space, seed)
        return Split(self.images[order[: self.n_training]], self.images[test], boxes)


@dataclass(frozen=True)
class Split:
    """Images to learn from, images to predict, and what is hidden of these.

    Attributes
    ----------
    training : (N, *space, C)
    test : (M, *space, C)
    is_hidden : (M, *space) bool
    """

    training: Array
    test: Array
    is_hidden: NDArray[np.bool_]

    @property
    def observed(self) -> Array:
        """Test images with NaN where they are hidden."""
        return np.where(self.is_hidden[..., None], np.float32(np.nan), self.test)

    def relative_error(self, predicted: Array) -> float:
        """Return the squared error of hidden voxels, relative to that of the mean image."""
        hidden = self.is_hidden
        mean = np.broadcast_to(self.training.mean(axis=0), self.test.shape)[hidden]
        error = np.square(predicted[hidden] - self.test[hidden]).sum()
        return float(error / np.square(mean - self.test[hidden]).sum())

    def folds(self, n_folds: int, seed: int) -> Iterator[Split]:
        """Yield splits of the training images, so that choices can be made on them alone."""
        fold = np.random.default_rng(seed).permutation(len(self.training)) % n_folds
        for n in range(n_folds):
            test = self.training[fold == n]
            boxes = draw_boxes(len(test), self.is_hidden.shape[1:], seed + n)
            yield Split(self.training[fold != n], test, boxes)


def draw_boxes(n_images: int, space: tuple[int, ...], seed: int) -> NDArray[np.bool_]:
    """Return a box per image, (N, *space), at a random place within it."""
    sides = Boxes.draw(1, space, HIDDEN_SHARE, seed).sides
    places = np.subtract(space, sides) + 1
    corners = np.random.default_rng(seed).integers(0, places, (n_images, len(space)))
    return Boxes(space, sides, corners.astype(np.intp)).mask()


def digits(data: Path) -> Dataset:
    """Return handwritten digits of 28 x 28."""
    images = np.load(data / "mnist.npz")["x_train"][:5000]
    return _each_its_own(images[..., None] / np.float32(255), "bernoulli", 300, 200)


def faces(data: Path) -> Dataset:
    """Return photographs of 64 x 48 in colour: nobody is both learnt from and predicted."""
    stored = np.load(data / "faces_london_128x96.npz")
    images = coarser(np.asarray(stored["x"] / 255, np.float32), 2)
    return Dataset(images, "gaussian", 120, 80, stored["person"])


def t1_slices(data: Path) -> Dataset:
    """Return intensities of a slice through each brain, 4 mm."""
    t1 = np.load(data / "oasis200_slice16_2mm_104x88.npz")["t1"]
    images = coarser(np.asarray(t1[..., None] / 255, np.float32), 2)
    return _each_its_own(images, "gaussian", 120, 80)


def tissue_slices(data: Path) -> Dataset:
    """Return tissue maps of a slice through each brain, 4 mm."""
    stored = np.load(data / "oasis200_slice16_2mm_104x88.npz")
    images = coarser(tissue_maps([stored["gm"], stored["wm"]]), 2)
    return _each_its_own(images, "categorical", 120, 80)


def hippocampi(data: Path) -> Dataset:
    """Return volumes at half size, 20 x 28 x 22: background, anterior and posterior part."""
    labels = np.load(data / "hippocampus_labels_48x64x48.npz")["labels"]
    labels = labels[:, 4:44, 2:58, :44]  # no hippocampus comes near what is cut off
    return _each_its_own(coarser(one_hot(labels, 3), 2, n_axes=3), "categorical", 80, 60)


def drawn(data: Path | None = None) -> Dataset:
    """Return faces that are drawn in a moment, for a run of seconds."""
    some = drawn_faces(20, 0)
    return Dataset(some.images, "gaussian", 28, 12, some.person)


#: All sets by name.
DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "digits": digits,
    "faces": faces,
    "T1 slices": t1_slices,
    "tissue maps": tissue_slices,
    "hippocampi": hippocampi,
}


def _each_its_own(images: Array, likelihood: str, n_training: int, n_test: int) -> Dataset:
    group = np.arange(len(images))
    return Dataset(np.asarray(images, np.float32), likelihood, n_training, n_test, group)
