"""Handwritten digits of MNIST: 400 ship with the package, all 70,000 are fetched from OpenML.

LeCun, Cortes and Burges, "The MNIST database of handwritten digits", CC BY-SA 3.0. ``digits.npz``
holds the first 400 training images.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_N_TRAIN, _SIDE = 60000, 28


def digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return 400 handwritten digits, which ship with the package.

    Returns
    -------
    images : array of shape (400, 28, 28), uint8
    labels : array of shape (400,), uint8
        Which digit each image shows, 0 to 9.
    """
    with (files(__package__) / "digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["images"], arrays["labels"]


class MNIST(NamedTuple):
    """Handwritten digits and their labels, in the original order.

    Attributes
    ----------
    train_images : (60000, 28, 28) uint8
    train_labels : (60000,) uint8
    test_images : (10000, 28, 28) uint8
    test_labels : (10000,) uint8
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def mnist(data_home: str | os.PathLike[str] | None = None) -> MNIST:
    """Return MNIST: fetched from OpenML on the first call, then read from scikit-learn's cache.

    Parameters
    ----------
    data_home : path, optional
        Folder of the cache; scikit-learn's by default.

    Returns
    -------
    MNIST
        `train_images`, `train_labels`, `test_images`, `test_labels`.

    Raises
    ------
    ConnectionError
        If the cache does not hold the images and OpenML cannot be reached.
    """
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(
            "mnist_784",
            version=1,
            as_frame=False,
            parser="liac-arff",  # the other one needs pandas
            data_home=data_home,
        )
    except OSError as error:  # every failure of the network is one
        raise ConnectionError(
            f"MNIST could not be fetched from OpenML: {error}; connect to a network once, or use "
            "anamorph.datasets.digits(), which ships with the package"
        ) from None
    images = found.data.astype(np.uint8).reshape(-1, _SIDE, _SIDE)
    labels = found.target.astype(np.uint8)
    return MNIST(images[:_N_TRAIN], labels[:_N_TRAIN], images[_N_TRAIN:], labels[_N_TRAIN:])
