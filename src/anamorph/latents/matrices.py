"""Symmetric K x K matrices: checked on arrival, factorised by Cholesky."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]


class NotPositiveDefiniteError(ValueError):
    """A matrix that must be positive definite is not."""


def symmetric_matrix(value: ArrayLike, name: str) -> Matrix:
    """Return a square matrix of finite numbers, in float64 and exactly symmetric.

    Parameters
    ----------
    value : array_like, (K, K)
        Symmetric up to rounding, since it may be a sum of float32 products.
    name : str
        What to call the matrix in an error message.

    Returns
    -------
    ndarray, (K, K)

    Raises
    ------
    ValueError
        If the matrix is not square, or holds NaN or infinity.
    """
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return 0.5 * (matrix + matrix.T)


def cholesky(value: ArrayLike, name: str) -> Matrix:
    """Return the lower triangular factor L of a positive definite matrix L L'.

    Parameters
    ----------
    value : array_like, (K, K)
        Symmetric positive definite.
    name : str
        What to call the matrix in an error message.

    Returns
    -------
    ndarray, (K, K)

    Raises
    ------
    NotPositiveDefiniteError
        If it is not positive definite.
    """
    matrix = symmetric_matrix(value, name)
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(matrix)[0]
        raise NotPositiveDefiniteError(
            f"{name} must be positive definite, got smallest eigenvalue {smallest:.3g}"
        ) from None


def log_determinant(value: ArrayLike, name: str = "matrix") -> float:
    """Return ln|P| of a positive definite matrix, by Cholesky.

    Parameters
    ----------
    value : array_like, (K, K)
        Symmetric positive definite.
    name : str
        What to call the matrix in an error message; "matrix" by default.

    Returns
    -------
    float

    Raises
    ------
    NotPositiveDefiniteError
        If it is not positive definite.
    """
    return 2.0 * float(np.log(np.diag(cholesky(value, name))).sum())


def inverse(value: ArrayLike, name: str) -> Matrix:
    """Return the inverse of a positive definite matrix, exactly symmetric.

    Parameters
    ----------
    value : array_like, (K, K)
        Symmetric positive definite.
    name : str
        What to call the matrix in an error message.

    Returns
    -------
    ndarray, (K, K)

    Raises
    ------
    NotPositiveDefiniteError
        If it is not positive definite.
    """
    factor_inverse = np.linalg.inv(cholesky(value, name))
    return factor_inverse.T @ factor_inverse
