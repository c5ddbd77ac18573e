"""Elementary functions that vectorise: library calls would keep loops scalar, eight times slower.

Both are good to float32 rounding (2e-7 relative), for arguments of either precision.
"""

from __future__ import annotations

import numpy as np

from anamorph.kernels.compile import per_voxel

_LOWEST = np.float32(-87.0)  # exp of less is below the smallest normal float32
_LOG2_E = np.float32(1 / np.log(2))
# ln 2 in two parts: multiples of the first are exact in float32.
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(np.log(2) - 0.693359375)
_HALF, _ONE, _TWO = np.float32(1 / 2), np.float32(1), np.float32(2)
_INVERSE_FACTORIALS = tuple(np.float32(1 / f) for f in (5040, 720, 120, 24, 6, 2, 1, 1))
_E7, _E6, _E5, _E4, _E3, _E2, _E1, _E0 = _INVERSE_FACTORIALS
_ODD = tuple(np.float32(1 / n) for n in (17, 15, 13, 11, 9, 7, 5, 3, 1))
_L17, _L15, _L13, _L11, _L9, _L7, _L5, _L3, _L1 = _ODD


@per_voxel
def exp_of_nonpositive(x: float) -> float:
    """Return exp(x) for x <= 0: exp(x) = 2^n exp(r) with |r| <= ln(2) / 2, by Taylor series."""
    y = max(np.float32(x), _LOWEST)
    power = np.int32(y * _LOG2_E - _HALF)  # rounded to the nearest, since y is not positive
    n = np.float32(power)
    r = y - n * _LN2_HIGH - n * _LN2_LOW
    series = _E7 * r + _E6
    series = series * r + _E5
    series = series * r + _E4
    series = series * r + _E3
    series = series * r + _E2
    series = series * r + _E1
    series = series * r + _E0
    exponent = (power + np.int32(127)) << np.int32(23)
    return series * np.int32(exponent).view(np.float32)


@per_voxel
def log1p_of_fraction(t: float) -> float:
    """Return ln(1 + t) for 0 <= t <= 1: 2 artanh(s) with s = t / (2 + t) <= 1/3, by its series."""
    s = np.float32(t) / (_TWO + np.float32(t))
    q = s * s
    series = _L17 * q + _L15
    series = series * q + _L13
    series = series * q + _L11
    series = series * q + _L9
    series = series * q + _L7
    series = series * q + _L5
    series = series * q + _L3
    series = series * q + _L1
    return _TWO * s * series
