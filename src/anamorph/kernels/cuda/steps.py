"""The steps of geodesic shooting (Algorithm 4) on a GPU, one thread per voxel.

Steps of at most one voxel are pushed by gathering from the 3^d neighbours, without atomic
additions. The GPU notes which images take longer steps, and the processor does not wait to learn
it: it launches both kernels, and each does its images.

Fields are (N, d, voxel), given flat, some with room for more images than there are: see `fourier`.
The shape of a grid is one `places.Divisor` per axis. Kernels read all they need before they write:
the compiler cannot know that what is written is not read next.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import (
    added,
    divided_quickly,
    find_coordinates,
    find_neighbours,
    multiplied,
    read_length,
    shifted,
    wrapped,
)
from anamorph.kernels.cuda.warps import find_corners, interpolate_2d, interpolate_3d, push_voxel
from anamorph.kernels.formulas.steps import neighbour_weight, turned, twice_derivative

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
def _sum_twice_derivatives(velocity, first, n_voxels, momentum, before, after, n_axes):
    """Return 2 sum_i (d_j v_i) u_i, of the image that is at `first`."""
    total = _ZERO
    for i in range(n_axes):
        start = added(first, multiplied(i, n_voxels))
        v_before, v_after = velocity[shifted(start, before)], velocity[shifted(start, after)]
        total += twice_derivative(v_before, v_after, momentum[i])
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
    along_x = _sum_twice_derivatives(velocity, first, size, u, left, right, n_axes)
    along_y = _sum_twice_derivatives(velocity, first, size, u, upper, lower, n_axes)
    if n_axes == 2:
        out[shifted(place, 0)] = turned(u[0], half, along_y)
        out[shifted(last, 0)] = turned(u[1], half, along_x)
    else:
        front, back = find_neighbours(voxel, z, multiplied(nx, ny), read_length(shape[0]))
        along_z = _sum_twice_derivatives(velocity, first, size, u, front, back, n_axes)
        out[shifted(place, 0)] = turned(u[0], half, along_z)
        out[shifted(place, size)] = turned(u[1], half, along_y)
        out[shifted(last, 0)] = turned(u[2], half, along_x)


@device_kernel
def push_short_steps(
    momentum, velocity, scale, is_long, is_long_next, out, shape, n_lines, n_runs, run
):
    """Push along scale * velocity where that is short, and write zeros where it is not.

    A thread follows the first axis for `run` voxels and keeps three sums: each voxel it passes
    gives to the voxel before it, to its own place and to the one after it along that axis. Along
    the other axes, the thread gathers from the neighbours. Each voxel is read a third as often as
    if everything were gathered. One thread per image, run, and line along the first axis.

    is_long, is_long_next : (N,) int32
        Which images take a long step now; the note for the next step is cleared.
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
                weight = neighbour_weight(scale * velocity[shifted(first_2, place)], ox)
                if len(shape) == 3:
                    weight *= neighbour_weight(scale * velocity[shifted(first_1, place)], oy)
                step = scale * velocity[shifted(first_0, place)]
                back, stay, on = (
                    weight * neighbour_weight(step, -1),
                    weight * neighbour_weight(step, 0),
                    weight * neighbour_weight(step, 1),
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
    """Add to `out` what is pushed along scale * velocity where that is long; fields are not flat.

    Few threads per image, each for some of its voxels: most images have none to push.
    """
    n, worker = divided_quickly(cuda.grid(1), n_workers)
    if n < is_long.size and is_long[n] != 0:
        for voxel in range(worker, out.shape[2], n_workers[0]):
            push_voxel(momentum, velocity, scale, out, shape, n, voxel)


@device_kernel
def compose_step(displacement, velocity, scale, out, is_long, shape, n_voxels):
    """Compose with a step s = scale * velocity: out = s + displacement(id + s).

    Notes in `is_long` (N,) which images take long steps; one thread per image and voxel.
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
