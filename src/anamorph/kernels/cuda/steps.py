"""The steps of geodesic shooting on a GPU: the twin of `kernels.steps`, one thread per voxel.

Steps of at most one voxel are pushed by gathering from the 3^d neighbours, without atomic
additions. Which images take longer steps is noted on the GPU, where it is known, so that the
processor need not wait for it: both kernels are launched, and each does its images.

Fields are (N, d, voxel); some have room for more images than there are, see `fourier`.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.places import divide, index, neighbours
from anamorph.kernels.cuda.warps import corners, interpolate_2d, push_voxel

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


@device_kernel
def begin_path(velocity, scale, displacement, is_long):
    """Set displacement = scale * velocity, and note which images take long steps.

    is_long : (N,) int32, zero before; one thread per image and voxel.
    """
    n_voxels = velocity.shape[2]
    n, voxel = divide(cuda.grid(1), n_voxels)
    if n >= is_long.size:
        return
    for axis in range(velocity.shape[1]):
        step = scale * velocity[n, axis, voxel]
        displacement[n, axis, voxel] = step
        if not abs(step) <= _ONE:
            is_long[n] = 1


@device_kernel
def transposed_jacobian_step(momentum, velocity, scale, out, shape):
    """Set out = D(id + scale velocity)' momentum; one thread per image and voxel."""
    n_voxels = out.shape[2]
    n, voxel = divide(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    half = _HALF * scale
    rest, stride = voxel, 1
    for axis in range(len(shape) - 1, -1, -1):
        length = shape[axis]
        rest, coordinate = divide(rest, length)
        before, after = neighbours(voxel, coordinate, stride, length)
        total = momentum[n, axis, voxel]
        for i in range(len(shape)):
            difference = velocity[n, i, after] - velocity[n, i, before]
            total += half * difference * momentum[n, i, voxel]
        out[n, axis, voxel] = total
        stride *= length


@device_function
def _wrapped(point, length):
    if point < 0:
        return point + length
    return point - length if point >= length else point


@device_function
def _tent(distance):
    return max(_ZERO, _ONE - abs(distance))


@device_kernel
def push_short_steps(momentum, velocity, scale, is_long, out, shape, run):
    """Push along scale * velocity where that is short, and leave zeros where it is not.

    A thread follows the first axis for `run` voxels. Each voxel it passes gives to the one before
    it, its own and the one after it along that axis, of which three are carried along; along the
    other axes, it gathers from the neighbours. So each is looked at a third as often as if all
    were gathered. One thread per image, run, and line along the first axis.
    """
    length, n_lines = shape[0], out.shape[2] // shape[0]
    n, rest = divide(cuda.grid(1), n_lines * ((length + run - 1) // run))
    if n >= is_long.size:
        return
    start, line = divide(rest, n_lines)
    start *= run
    stop = min(start + run, length)
    nx, ny = shape[len(shape) - 1], shape[len(shape) - 2]
    y, x = divide(line, nx)
    left, right = neighbours(x, x, 1, nx)
    before_0, before_1, before_2 = _ZERO, _ZERO, _ZERO
    here_0, here_1, here_2 = _ZERO, _ZERO, _ZERO
    after_0, after_1, after_2 = _ZERO, _ZERO, _ZERO
    for p in range(start - 1, stop + 1):
        plane = _wrapped(p, length) * n_lines
        for oy in range(-1, 2) if len(shape) == 3 else range(1):
            row = plane + (_wrapped(y - oy, ny) * nx if len(shape) == 3 else 0)
            for ox in range(-1, 2):
                place = index(row + (x if ox == 0 else (left if ox == 1 else right)))
                weight = _tent(np.float32(ox) - scale * velocity[n, len(shape) - 1, place])
                if len(shape) == 3:
                    weight *= _tent(np.float32(oy) - scale * velocity[n, 1, place])
                step = scale * velocity[n, 0, place]
                back, stay, on = (
                    weight * max(_ZERO, -step),
                    weight * (_ONE - abs(step)),
                    weight * max(_ZERO, step),
                )
                value = momentum[n, 0, place]
                before_0 += back * value
                here_0 += stay * value
                after_0 += on * value
                value = momentum[n, 1, place]
                before_1 += back * value
                here_1 += stay * value
                after_1 += on * value
                if len(shape) == 3:
                    value = momentum[n, 2, place]
                    before_2 += back * value
                    here_2 += stay * value
                    after_2 += on * value
        if p > start:
            place = index((p - 1) * n_lines + line)
            is_short = is_long[n] == 0
            out[n, 0, place] = before_0 if is_short else _ZERO
            out[n, 1, place] = before_1 if is_short else _ZERO
            if len(shape) == 3:
                out[n, 2, place] = before_2 if is_short else _ZERO
        before_0, before_1, before_2 = here_0, here_1, here_2
        here_0, here_1, here_2 = after_0, after_1, after_2
        after_0, after_1, after_2 = _ZERO, _ZERO, _ZERO


@device_kernel
def push_long_steps(momentum, velocity, scale, is_long, out, shape, n_workers):
    """Push along scale * velocity where that is long, added to `out`.

    `n_workers` threads per image, each for some of its voxels: most images have none to push.
    """
    n, worker = divide(cuda.grid(1), n_workers)
    if n < is_long.size and is_long[n] != 0:
        for voxel in range(worker, out.shape[2], n_workers):
            push_voxel(momentum, velocity, scale, out, shape, n, voxel)


@device_kernel
def compose_step(displacement, velocity, scale, out, is_long, shape):
    """Compose with a step s = scale * velocity: out = s + displacement(id + s).

    It notes, in `is_long` (N,), which images take long steps; one thread per image and voxel.
    """
    n_voxels = out.shape[2]
    n, voxel = divide(cuda.grid(1), n_voxels)
    if n >= out.shape[0]:
        return
    y, nx, ny = len(shape) - 2, shape[len(shape) - 1], shape[len(shape) - 2]
    row, x = divide(voxel, nx)
    plane, row = divide(row, ny)
    step_y, step_x = scale * velocity[n, y, voxel], scale * velocity[n, y + 1, voxel]
    left, right, fx = corners(step_x, x, 1, nx)
    upper, lower, fy = corners(step_y, row, nx, ny)
    is_short = abs(step_y) <= _ONE and abs(step_x) <= _ONE
    if len(shape) == 2:
        for c in range(2):
            value = interpolate_2d(displacement, n, c, upper, lower, left, right, fy, fx)
            out[n, c, voxel] = value + scale * velocity[n, c, voxel]
    else:
        step_z = scale * velocity[n, 0, voxel]
        is_short = is_short and abs(step_z) <= _ONE
        front, back, fz = corners(step_z, plane, nx * ny, shape[0])
        for c in range(3):
            value = interpolate_2d(
                displacement, n, c, front + upper, front + lower, left, right, fy, fx
            )
            behind = interpolate_2d(
                displacement, n, c, back + upper, back + lower, left, right, fy, fx
            )
            out[n, c, voxel] = value + fz * (behind - value) + scale * velocity[n, c, voxel]
    if not is_short:
        is_long[n] = 1
