"""The images of the experiments: brain slices, whole brains, hippocampi, faces.

None of them ships with the package; small versions of the experiments draw images of their own.
Slices are of OASIS-1 (Marcus et al. 2007), whose terms of use apply; hippocampi of the Medical
Segmentation Decathlon, Task04 (CC BY-SA 4.0); whole brains from the label maps of SynthSeg
(Apache-2.0); faces of the Face Research Lab London Set, DeBruine and Jones 2017 (CC BY 4.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.datasets import brains
from examples.paper.experiment import Experiment

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Faces:
    """Frontal photographs of people, each once neutral and once smiling.

    Attributes
    ----------
    images : (N, rows, columns, 3)
        Colours from 0 to 1.
    person : (N,)
        Who it is.
    is_smiling : (N,)
    """

    images: Array
    person: NDArray[Any]
    is_smiling: NDArray[np.bool_]

    def take(self, which: NDArray[np.bool_]) -> Faces:
        """Return some of the faces."""
        return Faces(self.images[which], self.person[which], self.is_smiling[which])


def brain_slices(experiment: Experiment) -> Array:
    """Return a slice of each brain, (N, rows, columns, 3): grey matter, white matter, neither."""
    if experiment.is_small:
        labels, _ = brains(16, (16, 20, 16), experiment.seed)
        return one_hot(labels[..., 8], 4)[..., [1, 2, 0, 3]]
    data = experiment.load("oasis200_slice16_2mm_104x88.npz")
    return tissue_maps([data["gm"], data["wm"]])


def whole_brains(experiment: Experiment) -> Array:
    """Return volumes at 4 mm, (N, *space, 3): grey matter, white matter, neither."""
    if experiment.is_small:
        labels, _ = brains(8, (12, 14, 12), experiment.seed)
        return one_hot(labels, 4)[..., [1, 2, 0, 3]]
    data = experiment.load("brains20_centred_4mm_40x48x40.npz")
    return tissue_maps([data["gm"], data["wm"]])


def hippocampi(experiment: Experiment) -> Array:
    """Return volumes at 2 mm, (N, *space, 3): background, anterior, posterior."""
    if experiment.is_small:
        labels, _ = brains(10, (16, 16, 16), experiment.seed)
        return coarser(one_hot(labels, 4), 2, n_axes=3)
    labels = experiment.load("hippocampus_labels_48x64x48.npz")["labels"]
    labels = labels[:, 4:44, 2:58, :44]  # no hippocampus comes near what is cut off
    return coarser(one_hot(labels, 3), 2, n_axes=3)


def faces(experiment: Experiment) -> Faces:
    """Return photographs in colour, from 0 to 1."""
    if experiment.is_small:
        return drawn_faces(12, experiment.seed)
    data = experiment.load("faces_london_128x96.npz")
    images = np.asarray(data["x"] / 255, np.float32)
    return Faces(images, data["person"], data["expression"] == "smiling")


def tissue_maps(classes: list[NDArray[np.uint8]]) -> Array:
    """Return probabilities of classes and of none of them, (N, *space, C + 1), from uint8 maps."""
    maps = np.stack(classes, axis=-1).astype(np.float32) / 255
    rest = np.clip(1 - maps.sum(axis=-1, keepdims=True), 0, 1)
    probabilities = np.concatenate([maps, rest], axis=-1)
    # Maps of 8 bits add up to a little more than 1 in places.
    return np.asarray(probabilities / probabilities.sum(axis=-1, keepdims=True))


def one_hot(labels: NDArray[np.uint8], n_classes: int) -> Array:
    """Return labels (N, *space) as probabilities (N, *space, n_classes)."""
    return np.asarray(labels[..., None] == np.arange(n_classes), np.float32)


def coarser(images: Array, factor: int, n_axes: int = 2) -> Array:
    """Return images (N, *space, C) averaged over blocks of voxels, `factor` along each axis."""
    shape = [len(images)]
    for length in images.shape[1 : 1 + n_axes]:
        shape += [length // factor, factor]
    blocks = images.reshape(*shape, images.shape[-1])
    return np.asarray(blocks.mean(axis=tuple(range(2, 2 * n_axes + 1, 2))))


def drawn_faces(n_people: int, seed: int) -> Faces:
    """Draw faces of 20 x 16: an oval of some size and colour, eyes, and a mouth that may smile."""
    generator = np.random.default_rng(seed)
    images, person, is_smiling = [], [], []
    down, across = (np.indices((20, 16)) - np.reshape([9.5, 7.5], (2, 1, 1))).astype(np.float32)
    for n in range(n_people):
        height, width = generator.normal([8.0, 6.0], 0.5)
        skin = generator.uniform([0.6, 0.4, 0.3], [1.0, 0.8, 0.7])
        for smile in (False, True):
            image = np.full((20, 16, 3), 0.1)
            image[(down / height) ** 2 + (across / width) ** 2 < 1] = skin
            image[(np.abs(down + 2) < 1) & (np.abs(np.abs(across) - 2.5) < 1)] = 0.0
            image[(np.abs(down - 4) < 1) & (np.abs(across) < 2 + 2 * smile)] = [0.8, 0.1, 0.1]
            images.append(image + 0.02 * generator.standard_normal(image.shape))
            person.append(f"{n:03d}")
            is_smiling.append(smile)
    return Faces(np.array(images, np.float32), np.array(person), np.array(is_smiling))
