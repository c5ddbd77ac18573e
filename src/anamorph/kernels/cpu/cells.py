"""Where psi = id + displacement, linear within each cell of the grid, takes on given values.

A place y with psi(y) = p is p less the displacement at y. So it is in one of the cells around p,
as far away as displacements are long, and all of these are looked at: slow, but nothing escapes.
The equations of one cell are solved in closed form in 2D, and by Newton's method in 3D.
"""

from __future__ import annotations

import math

import numpy as np

from anamorph.kernels.compile import Array, Shape, kernel

_SLACK = 1e-6  # of a cell: places on the border of two cells belong to both
_MOST_STEPS = 30
_STARTS = (0.5, 0.1, 0.9)


@kernel
def _solve_quadratic(k2: float, k1: float, k0: float) -> tuple[float, float]:
    """Return both roots of k2 t^2 + k1 t + k0, NaN where there is none."""
    discriminant = k1 * k1 - 4 * k2 * k0
    if discriminant < 0:
        return np.nan, np.nan
    q = -0.5 * (k1 + math.copysign(math.sqrt(discriminant), k1))
    return q / k2 if k2 != 0 else np.nan, k0 / q if q != 0 else np.nan


@kernel
def find_in_planes(
    displacement: Array, shape: Shape, points: Array, reach: Array, places: Array, found: Array
) -> None:
    """Set places y with psi(y) = p, in 2D; `found` is 1 where there is one.

    displacement : (2, voxel), in voxels.
    points, places : (n, 2), p and y; where none is found, a place stays as it was.
    reach : (2, 2), least and largest displacement along each axis.
    """
    ny, nx = shape
    corners = np.empty((4, 2))
    for n in range(len(points)):
        py, px = points[n, 0], points[n, 1]
        for i in range(math.floor(py - reach[0, 1]), math.floor(py - reach[0, 0]) + 1):
            for j in range(math.floor(px - reach[1, 1]), math.floor(px - reach[1, 0]) + 1):
                for c in range(4):
                    y, x = i + c // 2, j + c % 2
                    voxel = (y % ny) * nx + x % nx
                    corners[c, 0] = y - py + displacement[0, voxel]
                    corners[c, 1] = x - px + displacement[1, voxel]
                if corners[:, 0].min() > _SLACK or corners[:, 0].max() < -_SLACK:
                    continue
                if corners[:, 1].min() > _SLACK or corners[:, 1].max() < -_SLACK:
                    continue
                # 0 = h + t e + s f + s t g, with s along y and t along x
                hy, hx = corners[0]
                ey, ex = corners[1, 0] - hy, corners[1, 1] - hx
                fy, fx = corners[2, 0] - hy, corners[2, 1] - hx
                gy, gx = corners[3, 0] - hy - ey - fy, corners[3, 1] - hx - ex - fx
                roots = _solve_quadratic(
                    gx * ey - gy * ex, fx * ey - fy * ex + gx * hy - gy * hx, fx * hy - fy * hx
                )
                for t in roots:
                    ay, ax = fy + t * gy, fx + t * gx
                    by, bx = hy + t * ey, hx + t * ex
                    s = -by / ay if abs(ay) > abs(ax) else -bx / ax
                    if -_SLACK <= s <= 1 + _SLACK and -_SLACK <= t <= 1 + _SLACK:
                        places[n, 0], places[n, 1] = i + s, j + t
                        found[n] = 1


@kernel
def _solve_cell(corners: Array, place: Array) -> bool:
    """Find where a trilinear function with values (8, 3) at the corners of a cell is zero."""
    matrix, weights, slopes = np.empty((3, 3)), np.empty(8), np.empty((8, 3))
    value, step = np.empty(3), np.empty(3)
    for start in _STARTS:
        place[:] = start
        for _ in range(_MOST_STEPS):
            for c in range(8):
                wz = place[0] if c & 4 else 1 - place[0]
                wy = place[1] if c & 2 else 1 - place[1]
                wx = place[2] if c & 1 else 1 - place[2]
                weights[c] = wz * wy * wx
                slopes[c, 0] = (1.0 if c & 4 else -1.0) * wy * wx
                slopes[c, 1] = (1.0 if c & 2 else -1.0) * wz * wx
                slopes[c, 2] = (1.0 if c & 1 else -1.0) * wz * wy
            value[:] = 0
            matrix[:] = 0
            for c in range(8):
                for k in range(3):
                    value[k] += weights[c] * corners[c, k]
                    for axis in range(3):
                        matrix[k, axis] += slopes[c, axis] * corners[c, k]
            a, b, c3 = matrix[0], matrix[1], matrix[2]
            ab0 = a[1] * b[2] - a[2] * b[1]
            ab1 = a[2] * b[0] - a[0] * b[2]
            ab2 = a[0] * b[1] - a[1] * b[0]
            determinant = ab0 * c3[0] + ab1 * c3[1] + ab2 * c3[2]
            if determinant == 0:
                break
            for axis in range(3):  # the columns of the inverse are cross products of the rows
                n1, n2 = (axis + 1) % 3, (axis + 2) % 3
                bc = b[n1] * c3[n2] - b[n2] * c3[n1]
                ca = c3[n1] * a[n2] - c3[n2] * a[n1]
                ab = ab0 if axis == 0 else (ab1 if axis == 1 else ab2)
                step[axis] = (bc * value[0] + ca * value[1] + ab * value[2]) / determinant
            longest = np.abs(step).max()
            if longest > 1:
                step /= longest
            for axis in range(3):
                place[axis] = min(1.5, max(-0.5, place[axis] - step[axis]))
            if longest < 1e-9:
                break
        if longest < 1e-6 and place.min() >= -_SLACK and place.max() <= 1 + _SLACK:
            return True
    return False


@kernel
def find_in_volumes(
    displacement: Array, shape: Shape, points: Array, reach: Array, places: Array, found: Array
) -> None:
    """Do what `find_in_planes` does, in 3D: displacement (3, voxel), points and places (n, 3)."""
    nz, ny, nx = shape
    corners, place = np.empty((8, 3)), np.empty(3)
    for n in range(len(points)):
        p = points[n]
        for h in range(math.floor(p[0] - reach[0, 1]), math.floor(p[0] - reach[0, 0]) + 1):
            for i in range(math.floor(p[1] - reach[1, 1]), math.floor(p[1] - reach[1, 0]) + 1):
                for j in range(math.floor(p[2] - reach[2, 1]), math.floor(p[2] - reach[2, 0]) + 1):
                    for c in range(8):
                        z, y, x = h + (c >> 2), i + (c >> 1) % 2, j + c % 2
                        voxel = ((z % nz) * ny + y % ny) * nx + x % nx
                        corners[c, 0] = z - p[0] + displacement[0, voxel]
                        corners[c, 1] = y - p[1] + displacement[1, voxel]
                        corners[c, 2] = x - p[2] + displacement[2, voxel]
                    is_near = True
                    for k in range(3):
                        if corners[:, k].min() > _SLACK or corners[:, k].max() < -_SLACK:
                            is_near = False
                    if is_near and _solve_cell(corners, place):
                        places[n, 0], places[n, 1], places[n, 2] = (
                            h + place[0], i + place[1], j + place[2],
                        )  # fmt: skip
                        found[n] = 1
