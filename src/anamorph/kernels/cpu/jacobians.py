"""Jacobians of small steps id - s, and what their transposes do, for fields (N, d, voxel).

Derivatives are central differences on a periodic grid; shooting uses the same ones in blocks, see
`steps`. Voxels along an axis come in three runs: those at its beginning, whose neighbour is at the
other end, those between, and those at its end.
"""

from __future__ import annotations

from anamorph.kernels.compile import Array, Shape, formula, kernel
from anamorph.kernels.formulas.steps import turned, twice_derivative, twice_divergence


@formula
def _find_run(part: int, first: int, stride: int, span: int) -> tuple[int, int, int, int]:
    """Return where a run begins and ends, and how far its voxels are from those before and after.

    first, span : where a line along the axis begins, with all axes after it, and its length.
    """
    last = first + span
    if part == 0:
        return first, first + stride, span - stride, stride % span
    if part == 1:
        return first + stride, max(first + stride, last - stride), -stride, stride
    return max(last - stride, first + stride), last, -stride, stride - span


@formula
def _add_derivative(
    out: Array, factor: float, before: Array, after: Array, momentum: Array
) -> None:
    for x in range(out.size):
        out[x] = turned(out[x], factor, twice_derivative(before[x], after[x], momentum[x]))


@formula
def _add_divergence(
    out: Array, factor: float, before: Array, after: Array, m_before: Array, m_after: Array
) -> None:
    for x in range(out.size):
        change = twice_divergence(before[x], after[x], m_before[x], m_after[x])
        out[x] = turned(out[x], factor, change)


@kernel
def multiply_transposed_jacobian(steps: Array, momentum: Array, shape: Shape, out: Array) -> None:
    """Set out = D(id - s)' u: out_j = u_j - sum_i (d_j s_i) u_i.

    steps, momentum, out : (N, d, voxel), s, u and the result.
    """
    half = out.dtype.type(-0.5)
    for n in range(out.shape[0]):
        stride = 1
        for j in range(len(shape) - 1, -1, -1):
            span = stride * shape[j]
            out[n, j] = momentum[n, j]
            for i in range(len(shape)):
                s, u, total = steps[n, i], momentum[n, i], out[n, j]
                for first in range(0, total.size, span):
                    for part in range(3):
                        begin, end, before, after = _find_run(part, first, stride, span)
                        _add_derivative(
                            total[begin:end], half, s[begin + before : end + before],
                            s[begin + after : end + after], u[begin:end],
                        )  # fmt: skip
            stride = span


@kernel
def multiply_jacobian(
    steps: Array, momentum: Array, adjoint: Array, shape: Shape, out: Array, force: Array
) -> None:
    """Transpose `multiply_transposed_jacobian` with respect to u, and add what s gets from it.

    With m the derivative with respect to its result:

        out_i = m_i - sum_j (d_j s_i) m_j           force_i += sum_j d_j (u_i m_j)

    steps, momentum, adjoint, out, force : (N, d, voxel), s, u, m and the results.
    """
    minus_half, half = out.dtype.type(-0.5), out.dtype.type(0.5)
    for n in range(out.shape[0]):
        out[n] = adjoint[n]
        stride = 1
        for j in range(len(shape) - 1, -1, -1):
            span, m = stride * shape[j], adjoint[n, j]
            for i in range(len(shape)):
                s, u, total, push = steps[n, i], momentum[n, i], out[n, i], force[n, i]
                for first in range(0, total.size, span):
                    for part in range(3):
                        begin, end, before, after = _find_run(part, first, stride, span)
                        low, high = begin + before, end + before
                        next_low, next_high = begin + after, end + after
                        _add_derivative(
                            total[begin:end], minus_half, s[low:high], s[next_low:next_high],
                            m[begin:end],
                        )  # fmt: skip
                        _add_divergence(
                            push[begin:end], half, u[low:high], u[next_low:next_high],
                            m[low:high], m[next_low:next_high],
                        )  # fmt: skip
            stride = span
