"""Random symmetric positive definite matrices for the tests of this folder."""

import numpy as np
from numpy.typing import NDArray


def random_spd(
    generator: np.random.Generator, size: int, log10_condition: float, scale: float = 1.0
) -> NDArray[np.float64]:
    """Return a matrix with random axes and eigenvalues from scale down to scale / condition."""
    axes, _ = np.linalg.qr(generator.standard_normal((size, size)))
    eigenvalues = scale * np.logspace(0, -log10_condition, size)
    return (axes * eigenvalues) @ axes.T
