"""MNIST, all of it: fetched once from OpenML and kept by scikit-learn.

LeCun, Cortes and Burges, "The MNIST database of handwritten digits", CC BY-SA 3.0.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_N_TRAIN, _SIDE = 60000, 28


class MNIST(NamedTuple):
    """Handwritten digits and what they are, in the original order.

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
    """Return MNIST, fetched from OpenML the first time and read from scikit-learn's cache then.

    Parameters
    ----------
    data_home : path, optional
        Folder of the cache; by default that of scikit-learn.

    Returns
    -------
    MNIST
        `train_images`, `train_labels`, `test_images`, `test_labels`.

    Raises
    ------
    ConnectionError
        If the data are not in the cache and cannot be fetched.
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
