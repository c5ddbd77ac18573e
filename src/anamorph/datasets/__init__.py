"""Images that ship with the package, and those that are fetched.

``digits.npz`` holds the first 400 training images of MNIST (LeCun, Cortes and Burges, "The MNIST
database of handwritten digits", CC BY-SA 3.0), as 28 x 28 uint8, with their labels.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from anamorph.datasets.mnist import MNIST, mnist

__all__ = ["MNIST", "digits", "mnist"]


def digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return 400 handwritten digits, (400, 28, 28) uint8, and what they are, (400,)."""
    with (files(__name__) / "digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["images"], arrays["labels"]
