"""The steps of geodesic shooting on a GPU: the twin of `kernels.steps`, one thread per voxel.

Steps of at most one voxel are pushed by gathering from the 3^d neighbours, without atomic
additions. Which images take longer steps is noted on the GPU, where it is known, so that the
processor need not wait for it: both kernels are launched, and each does its images.

Fields are (N, d, voxel), some with room for more images than there are: see `fourier`. They are
handed over flat, and the shape of a grid as one `places.Divisor` for each axis. Kernels read all
they need before they write: what is written might be what is read next, as far as the compiler
knows.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import (
    find_coordinates,
    divided_quickly,
    shifted,
    read_length,
    find_neighbours,
    added,
    multiplied,
    wrapped,
)
from anamorph.kernels.cuda.warps import find_corners, interpolate_2d, interpolate_3d, push_voxel

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


@device_kernel
def begin_path(fields, scale, velocity, displacement, is_long, shape, n_voxels):
    """Set velocity = fields and displacement = scale * fields, and note which steps are long.

    is_long : (N,) int32, zero before; one thread per image and voxel.
    """
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= is_long.size:
        return
    place = added(multiplied(n, multiplied(len(shape), read_length(n_voxels))), voxel)
    for _ in range(len(shape)):
        speed = fields[np.uint32(place)]
        velocity[np.uint32(place)] = speed
        displacement[np.uint32(place)] = scale * speed
        if not abs(scale * speed) <= _ONE:
            is_long[n] = 1
        place = added(place, read_length(n_voxels))


@device_function
def _change_along(velocity, first, n_voxels, momentum, before, after, n_axes):
    """Return the sum over i of (v_i(after) - v_i(before)) u_i, of the image that is at `first`."""
    total = _ZERO
    for i in range(n_axes):
        start = added(first, multiplied(i, n_voxels))
        difference = velocity[shifted(start, after)] - velocity[shifted(start, before)]
        total += difference * momentum[i]
    return total


@device_kernel
def transposed_jacobian_step(momentum, velocity, scale, out, n_images, shape, n_voxels):
    """Set out = D(id + scale velocity)' momentum; one thread per image and voxel."""
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= n_images:
        return
    size, n_axes, half = read_length(n_voxels), len(shape), _HALF * scale
    nx, ny = read_length(shape[n_axes - 1]), read_length(shape[n_axes - 2])
    first = multiplied(n, multiplied(n_axes, size))
    place = added(first, voxel)
    last = added(place, multiplied(n_axes - 1, size))
    u = momentum[shifted(place, 0)], momentum[shifted(place, size)], momentum[shifted(last, 0)]
    z, y, x = find_coordinates(voxel, shape)
    left, right = find_neighbours(voxel, x, 1, nx)
    upper, lower = find_neighbours(voxel, y, nx, ny)
    along_x = _change_along(velocity, first, size, u, left, right, n_axes)
    along_y = _change_along(velocity, first, size, u, upper, lower, n_axes)
    if n_axes == 2:
        out[shifted(place, 0)] = u[0] + half * along_y
        out[shifted(last, 0)] = u[1] + half * along_x
    else:
        front, back = find_neighbours(voxel, z, multiplied(nx, ny), read_length(shape[0]))
        along_z = _change_along(velocity, first, size, u, front, back, n_axes)
        out[shifted(place, 0)] = u[0] + half * along_z
        out[shifted(place, size)] = u[1] + half * along_y
        out[shifted(last, 0)] = u[2] + half * along_x


@device_function
def _share(step, offset):
    """Return what a short step gives to the place one back (-1), its own (0) or one on (1)."""
    if offset == 0:
        return _ONE - abs(step)
    return max(_ZERO, step) if offset == 1 else max(_ZERO, -step)


@device_kernel
def push_short_steps(
    momentum, velocity, scale, is_long, is_long_next, out, shape, n_lines, n_runs, run
):
    """Push along scale * velocity where that is short, and leave zeros where it is not.

    A thread follows the first axis for `run` voxels. Each voxel it passes gives to the one before
    it, its own and the one after it along that axis, of which three are carried along; along the
    other axes, it gathers from the neighbours. So each is looked at a third as often as if all
    were gathered. One thread per image, run, and line along the first axis.

    is_long, is_long_next : (N,) int32
        Which images take a long step now; it is cleared for the next one.
    """
    rest, line = divided_quickly(cuda.grid(1), n_lines)
    n, start = divided_quickly(rest, n_runs)
    if n >= is_long.size:
        return
    if line == 0 and start == 0:
        is_long_next[n] = 0
    is_short = is_long[n] == 0
    length, size, last = read_length(shape[0]), read_length(n_lines), len(shape) - 1
    nx = read_length(shape[last])
    start = multiplied(start, run)
    stop = min(added(start, run), length)
    y, x = divided_quickly(line, shape[last])
    left, right = find_neighbours(x, x, 1, nx)
    n_voxels = multiplied(length, size)
    first_0 = multiplied(n, multiplied(len(shape), n_voxels))
    first_1, first_2 = added(first_0, n_voxels), added(first_0, multiplied(last, n_voxels))
    before_0, before_1, before_2 = _ZERO, _ZERO, _ZERO
    here_0, here_1, here_2 = _ZERO, _ZERO, _ZERO
    after_0, after_1, after_2 = _ZERO, _ZERO, _ZERO
    for p in range(start - 1, stop + 1):
        plane = multiplied(wrapped(p, shape[0]), size)
        for oy in range(-1, 2) if len(shape) == 3 else range(1):
            row = plane
            if len(shape) == 3:
                row = added(plane, multiplied(wrapped(added(y, -oy), shape[1]), nx))
            for ox in range(-1, 2):
                place = added(row, x if ox == 0 else (left if ox == 1 else right))
                weight = _share(scale * velocity[shifted(first_2, place)], ox)
                if len(shape) == 3:
                    weight *= _share(scale * velocity[shifted(first_1, place)], oy)
                step = scale * velocity[shifted(first_0, place)]
                back, stay, on = (
                    weight * _share(step, -1),
                    weight * _share(step, 0),
                    weight * _share(step, 1),
                )
                value = momentum[shifted(first_0, place)]
                before_0 += back * value
                here_0 += stay * value
                after_0 += on * value
                value = momentum[shifted(first_1, place)]
                before_1 += back * value
                here_1 += stay * value
                after_1 += on * value
                if len(shape) == 3:
                    value = momentum[shifted(first_2, place)]
                    before_2 += back * value
                    here_2 += stay * value
                    after_2 += on * value
        if p > start:
            place = added(multiplied(p - 1, size), line)
            out[shifted(first_0, place)] = before_0 if is_short else _ZERO
            out[shifted(first_1, place)] = before_1 if is_short else _ZERO
            if len(shape) == 3:
                out[shifted(first_2, place)] = before_2 if is_short else _ZERO
        before_0, before_1, before_2 = here_0, here_1, here_2
        here_0, here_1, here_2 = after_0, after_1, after_2
        after_0, after_1, after_2 = _ZERO, _ZERO, _ZERO


@device_kernel
def push_long_steps(momentum, velocity, scale, is_long, out, shape, n_workers):
    """Push along scale * velocity where that is long, added to `out`; fields are not flat.

    Some threads per image, each for some of its voxels: most images have none to push.
    """
    n, worker = divided_quickly(cuda.grid(1), n_workers)
    if n < is_long.size and is_long[n] != 0:
        for voxel in range(worker, out.shape[2], n_workers[0]):
            push_voxel(momentum, velocity, scale, out, shape, n, voxel)


@device_kernel
def compose_step(displacement, velocity, scale, out, is_long, shape, n_voxels):
    """Compose with a step s = scale * velocity: out = s + displacement(id + s).

    It notes, in `is_long` (N,), which images take long steps; one thread per image and voxel.
    """
    n, voxel = divided_quickly(cuda.grid(1), n_voxels)
    if n >= is_long.size:
        return
    size, n_axes = read_length(n_voxels), len(shape)
    nx, ny = read_length(shape[n_axes - 1]), read_length(shape[n_axes - 2])
    first = multiplied(n, multiplied(n_axes, size))
    place = added(first, voxel)
    last = added(place, multiplied(n_axes - 1, size))
    z, y, x = find_coordinates(voxel, shape)
    step_y, step_x = scale * velocity[shifted(last, -size)], scale * velocity[shifted(last, 0)]
    left, right, fx = find_corners(step_x, x, 1, shape[n_axes - 1])
    upper, lower, fy = find_corners(step_y, y, nx, shape[n_axes - 2])
    upper, lower = added(upper, first), added(lower, first)
    is_short = abs(step_y) <= _ONE and abs(step_x) <= _ONE
    if n_axes == 2:
        moved_y = interpolate_2d(displacement, upper, lower, left, right, fy, fx)
        upper, lower = added(upper, size), added(lower, size)
        moved_x = interpolate_2d(displacement, upper, lower, left, right, fy, fx)
    else:
        step_z = scale * velocity[shifted(place, 0)]
        is_short = is_short and abs(step_z) <= _ONE
        front, back, fz = find_corners(step_z, z, multiplied(nx, ny), shape[0])
        around = front, back, left, right, fz, fy, fx
        moved_z = interpolate_3d(displacement, upper, lower, around)
        upper, lower = added(upper, size), added(lower, size)
        moved_y = interpolate_3d(displacement, upper, lower, around)
        upper, lower = added(upper, size), added(lower, size)
        moved_x = interpolate_3d(displacement, upper, lower, around)
        out[shifted(place, 0)] = step_z + moved_z
    out[shifted(last, -size)] = step_y + moved_y
    out[shifted(last, 0)] = step_x + moved_x
    if not is_short:
        is_long[n] = 1
