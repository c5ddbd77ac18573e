"""Smooth fields: sums of a few cosines along each axis, and products with them.

A product of two cosines is a sum of two, cos(j) cos(k) = (cos(j - k) + cos(j + k)) / 2. All
products of pairs of fields with an image are therefore products with cosines of up to twice the
order, which are taken axis by axis.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, cast

import numpy as np

from anamorph.arrays.devices import array_namespace
from anamorph.arrays.typing import Array, Float64Array


class Cosines:
    """The products of cosines of orders 0, 1, ... along each axis of a grid; the first is 1.

    Parameters
    ----------
    space : tuple of int
    n_orders : int
        How many along each axis.
    namespace : module
        Of the arrays: numpy, or cupy on a GPU.
    """

    def __init__(self, space: tuple[int, ...], n_orders: int, namespace: Any) -> None:
        self._n_orders, self._n_dims = n_orders, len(space)
        orders = np.arange(2 * n_orders - 1)
        self._axes = [
            namespace.asarray(np.cos(np.pi * np.outer(np.arange(n) + 0.5, orders) / n), np.float32)
            for n in space
        ]
        self._pairs = namespace.asarray(_products_of_pairs(n_orders))

    @property
    def number(self) -> int:
        """How many fields there are."""
        return int(self._n_orders**self._n_dims)

    @cached_property
    def squared_orders(self) -> Float64Array:
        """Sum over axes of the squared order of each field, (number,), in memory."""
        orders = np.indices((self._n_orders,) * self._n_dims).reshape(self._n_dims, -1)
        return np.asarray((orders**2).sum(axis=0), np.float64)

    def combined(self, coefficients: Float64Array) -> Array:
        """Return sums of fields with coefficients (n, number), (n, *space)."""
        shape = (len(coefficients), *(self._n_orders,) * self._n_dims)
        field = coefficients.astype(np.float32).reshape(shape)
        for axis in self._axes:  # the first axis of what is left moves to the end
            field = np.tensordot(field, axis[:, : self._n_orders], axes=(1, 1))
        return field

    def sums(self, images: Array) -> Float64Array:
        """Return the sums over voxels of images (n, *space) times each field, (n, number)."""
        return self._projected(images, self._n_orders).reshape(len(images), -1)

    def gram(self, images: Array) -> Float64Array:
        """Return the sums over voxels of images times each pair of fields, (n, number, number)."""
        sums = self._projected(images, 2 * self._n_orders - 1)
        for _ in range(self._n_dims):  # each axis becomes a pair of axes, at the end
            sums = np.tensordot(sums, self._pairs, axes=(1, 0))
        firsts = range(1, 2 * self._n_dims, 2)
        sums = sums.transpose(0, *firsts, *(first + 1 for first in firsts))
        return sums.reshape(len(images), self.number, self.number)

    def _projected(self, images: Array, n_orders: int) -> Float64Array:
        projected = images
        for n, axis in enumerate(self._axes):
            projected = np.tensordot(projected, axis[:, :n_orders], axes=(1, 0))
            if n == 0:
                projected = projected.astype(np.float64)
        return cast(Float64Array, projected)


@cache
def cosines_for(space: tuple[int, ...], n_orders: int, namespace: Any) -> Cosines:
    """Return the fields of a grid, made once."""
    return Cosines(space, n_orders, namespace)


def cosines_beside(images: Array, n_orders: int) -> Cosines:
    """Return the fields of the grid of images (n, *space), where these are."""
    return cosines_for(images.shape[1:], n_orders, array_namespace(images))


def _products_of_pairs(n_orders: int) -> Float64Array:
    """Return how cosines j times cosines k are made of cosines l, (l, j, k)."""
    products = np.zeros((2 * n_orders - 1, n_orders, n_orders))
    for j in range(n_orders):
        for k in range(n_orders):
            products[abs(j - k), j, k] += 0.5
            products[j + k, j, k] += 0.5
    return products
