"""Newton's method for the places that psi = id + displacement takes to given points.

psi is linear within each cell of the grid, along each axis; it is periodic.
"""

from __future__ import annotations

import math

import numpy as np

from anamorph.kernels.compile import Array, Shape, kernel

_LEAST_DETERMINANT = 1e-6  # of a matrix that is inverted


@kernel
def _largest(vector: Array) -> float:
    """Return the largest size of an entry, NaN if any is."""
    largest = 0.0
    for entry in vector:
        if math.isnan(entry):
            return entry
        largest = max(largest, abs(entry))
    return largest


@kernel
def _solve(matrix: Array, residual: Array, step: Array) -> None:
    """Set the solution of matrix (d, d) times step = residual; the residual itself if singular."""
    d = len(residual)
    step[:] = residual
    if d == 2:
        a, b, c, e = matrix[0, 0], matrix[0, 1], matrix[1, 0], matrix[1, 1]
        determinant = a * e - b * c
        if abs(determinant) > _LEAST_DETERMINANT:
            step[0] = (e * residual[0] - b * residual[1]) / determinant
            step[1] = (a * residual[1] - c * residual[0]) / determinant
        return
    determinant = 0.0
    step[:] = 0
    for i in range(3):
        k, m = (i + 1) % 3, (i + 2) % 3
        for j in range(3):
            h, n = (j + 1) % 3, (j + 2) % 3
            cofactor = matrix[k, h] * matrix[m, n] - matrix[k, n] * matrix[m, h]
            step[j] += cofactor * residual[i]
            if j == 0:
                determinant += cofactor * matrix[i, 0]
    if abs(determinant) > _LEAST_DETERMINANT:
        step /= determinant
    else:
        step[:] = residual


@kernel
def find_by_newton(
    displacement: Array,
    shape: Shape,
    points: Array,
    places: Array,
    found: Array,
    tolerance: float,
    max_iterations: int,
    longest_step: float,
) -> None:
    """Set places y with psi(y) = p; `found` is 1 where there is one.

    displacement : (d, voxel), in voxels.
    points, places : (n, d), p and y; places are where to begin, and stay where none is found.
    tolerance, longest_step : in voxels, along an axis.
    """
    d = len(shape)
    place, step = np.empty(d), np.empty(d)
    residual, matrix = np.empty(d), np.empty((d, d))
    ends, weights = np.empty((2, d), np.int64), np.empty((2, d))  # of the cell around a place
    for n in range(len(points)):
        place[:] = places[n]
        for _ in range(max_iterations + 1):
            matrix[:] = 0
            for axis in range(d):
                first = math.floor(place[axis])
                ends[0, axis] = first % shape[axis]
                ends[1, axis] = (first + 1) % shape[axis]
                weights[1, axis] = place[axis] - first
                weights[0, axis] = 1 - weights[1, axis]
                residual[axis] = place[axis] - points[n, axis]
                matrix[axis, axis] = 1
            for corner in range(1 << d):
                voxel, weight = 0, 1.0
                for axis in range(d):
                    end = (corner >> axis) & 1
                    voxel = voxel * shape[axis] + ends[end, axis]
                    weight *= weights[end, axis]
                for i in range(d):
                    residual[i] += weight * displacement[i, voxel]
                for axis in range(d):
                    slope = 1.0 if (corner >> axis) & 1 else -1.0
                    for other in range(d):
                        if other != axis:
                            slope *= weights[(corner >> other) & 1, other]
                    for i in range(d):
                        matrix[i, axis] += slope * displacement[i, voxel]
            if _largest(residual) <= tolerance:
                places[n] = place
                found[n] = 1
                break
            _solve(matrix, residual, step)
            longest = _largest(step)
            if not longest < np.inf:
                break
            factor = min(1.0, longest_step / max(longest, 1e-30))
            for axis in range(d):
                place[axis] -= factor * step[axis]
