"""The steps of geodesic shooting on a GPU: the twin of `kernels.steps`, one thread per voxel.

Steps of at most one voxel are pushed by gathering from the 3^d neighbours, without atomic
additions. Which images take longer steps is noted on the GPU, where it is known, so that the
processor need not wait for it: both kernels are launched, and each does its images.

Fields are (N, d, voxel).
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from anamorph.kernels.cuda.launch import device_function, device_kernel
from anamorph.kernels.cuda.warps import corners, interpolate_2d, push_voxel

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


@device_kernel
def begin_path(velocity, scale, displacement, is_long):  # type: ignore[no-untyped-def]
    """Set displacement = scale * velocity, and note which images take long steps.

    is_long : (N,) int32, zero before; one thread per image and voxel.
    """
    n_voxels = velocity.shape[2]
    n, voxel = cuda.grid(1) // n_voxels, cuda.grid(1) % n_voxels
    if n >= velocity.shape[0]:
        return
    for axis in range(velocity.shape[1]):
        step = scale * velocity[n, axis, voxel]
        displacement[n, axis, voxel] = step
        if not abs(step) <= _ONE:
            is_long[n] = 1


@device_kernel
def transposed_jacobian_step(momentum, velocity, scale, out, shape):  # type: ignore[no-untyped-def]
    """Set out = D(id + scale velocity)' momentum; one thread per image and voxel."""
    n_voxels = out.shape[2]
    n, voxel = cuda.grid(1) // n_voxels, cuda.grid(1) % n_voxels
    if n >= out.shape[0]:
        return
    half = _HALF * scale
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        length = shape[axis]
        coordinate = voxel // stride % length
        before = voxel - stride if coordinate > 0 else voxel + (length - 1) * stride
        after = voxel + stride if coordinate < length - 1 else voxel - (length - 1) * stride
        total = momentum[n, axis, voxel]
        for i in range(len(shape)):
            difference = velocity[n, i, after] - velocity[n, i, before]
            total += half * difference * momentum[n, i, voxel]
        out[n, axis, voxel] = total
        stride *= length


@device_function
def _wrapped(point, length):  # type: ignore[no-untyped-def]
    if point < 0:
        return point + length
    return point - length if point >= length else point


@device_function
def _tent(distance):  # type: ignore[no-untyped-def]
    return max(_ZERO, _ONE - abs(distance))


@device_kernel
def push_short_steps(momentum, velocity, scale, is_long, out, shape):  # type: ignore[no-untyped-def]
    """Push along scale * velocity where that is short, and leave zeros where it is not.

    One thread per image and voxel: it receives from x - o what goes the way o.
    """
    n_voxels = out.shape[2]
    n, voxel = cuda.grid(1) // n_voxels, cuda.grid(1) % n_voxels
    if n >= out.shape[0]:
        return
    first, second, third = _ZERO, _ZERO, _ZERO
    nx, ny = shape[len(shape) - 1], shape[len(shape) - 2]
    x, y, z = voxel % nx, voxel // nx % ny, voxel // (nx * ny)
    for oy in range(-1, 2) if is_long[n] == 0 else range(0):
        row = _wrapped(y - oy, ny) * nx
        for ox in range(-1, 2):
            place = row + _wrapped(x - ox, nx)
            if len(shape) == 2:
                weight = _tent(np.float32(oy) - scale * velocity[n, 0, place])
                weight *= _tent(np.float32(ox) - scale * velocity[n, 1, place])
                first += weight * momentum[n, 0, place]
                second += weight * momentum[n, 1, place]
            else:
                for oz in range(-1, 2):
                    source = place + _wrapped(z - oz, shape[0]) * nx * ny
                    weight = _tent(np.float32(oz) - scale * velocity[n, 0, source])
                    weight *= _tent(np.float32(oy) - scale * velocity[n, 1, source])
                    weight *= _tent(np.float32(ox) - scale * velocity[n, 2, source])
                    first += weight * momentum[n, 0, source]
                    second += weight * momentum[n, 1, source]
                    third += weight * momentum[n, 2, source]
    out[n, 0, voxel] = first
    out[n, 1, voxel] = second
    if len(shape) == 3:
        out[n, 2, voxel] = third


@device_kernel
def push_long_steps(momentum, velocity, scale, is_long, out, shape, n_workers):  # type: ignore[no-untyped-def]
    """Push along scale * velocity where that is long, added to `out`.

    `n_workers` threads per image, each for some of its voxels: most images have none to push.
    """
    n, worker = cuda.grid(1) // n_workers, cuda.grid(1) % n_workers
    if n < out.shape[0] and is_long[n] != 0:
        for voxel in range(worker, out.shape[2], n_workers):
            push_voxel(momentum, velocity, scale, out, shape, n, voxel)


@device_kernel
def compose_step(displacement, velocity, scale, out, is_long, shape):  # type: ignore[no-untyped-def]
    """Compose with a step s = scale * velocity: out = s + displacement(id + s).

    It notes, in `is_long` (N,), which images take long steps; one thread per image and voxel.
    """
    n_voxels = out.shape[2]
    n, voxel = cuda.grid(1) // n_voxels, cuda.grid(1) % n_voxels
    if n >= out.shape[0]:
        return
    y, nx, ny = len(shape) - 2, shape[len(shape) - 1], shape[len(shape) - 2]
    step_y, step_x = scale * velocity[n, y, voxel], scale * velocity[n, y + 1, voxel]
    left, right, fx = corners(step_x, voxel, 1, nx)
    upper, lower, fy = corners(step_y, voxel, nx, ny)
    is_short = abs(step_y) <= _ONE and abs(step_x) <= _ONE
    if len(shape) == 2:
        for c in range(2):
            value = interpolate_2d(displacement, n, c, upper, lower, left, right, fy, fx)
            out[n, c, voxel] = value + scale * velocity[n, c, voxel]
    else:
        step_z = scale * velocity[n, 0, voxel]
        is_short = is_short and abs(step_z) <= _ONE
        front, back, fz = corners(step_z, voxel, nx * ny, shape[0])
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
