"""Bad input is refused before any work, in one line that says what is accepted."""

from __future__ import annotations

import numpy as np
import pytest

from anamorph.solvers import solve_field, solve_velocity

H, G = np.ones((3, 5, 4), np.float32), np.ones((2, 5, 4), np.float32)
FIELD, VELOCITY = (0.1, 1, 1), (0.1, 1, 1, 1, 1)


def with_value(array, value):
    array = array.copy()
    array.flat[0] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((H, G, FIELD, (1,)), {}, "voxel_size must hold 2 or 3 numbers"),
        ((H, G, FIELD, 1.0), {}, "voxel_size must hold 2 or 3 numbers"),
        ((H, G, FIELD, (1, 0)), {}, "voxel_size must be positive"),
        ((H, G, FIELD, (1, np.nan)), {}, "voxel_size must be positive"),
        ((H[0], G[0], FIELD, (1, 1)), {}, "gradient must have shape"),
        ((H, G[:0], FIELD, (1, 1)), {}, "gradient must not be empty"),
        ((H[:1], G, FIELD, (1, 1)), {}, r"hessian must have shape \(2, 5, 4\) or \(3, 5, 4\)"),
        ((H[:, :3], G, FIELD, (1, 1)), {}, "hessian must have shape"),
        ((H[None], G, FIELD, (1, 1)), {}, "hessian must have shape"),
        ((H, G, (1, 1), (1, 1)), {}, "penalty must hold 3 numbers"),
        ((H, G, (1, -1, 1), (1, 1)), {}, "penalty must not be negative"),
        ((H, G, (1, np.inf, 1), (1, 1)), {}, "penalty must be finite"),
        ((H, G, (0, 0, 0), (1, 1)), {}, "penalty must have a positive weight"),
        ((with_value(H, np.nan), G, FIELD, (1, 1)), {}, "hessian must be finite"),
        ((H, with_value(G, np.inf), FIELD, (1, 1)), {}, "gradient must be finite"),
        ((with_value(H, -1), G, FIELD, (1, 1)), {}, "hessian must be positive semi-definite"),
        ((H * 0, G, (0, 1, 1), (1, 1)), {}, "the system is singular"),
        ((H, G, FIELD, (1, 1)), {"weight": 0.0}, "weight must be positive"),
        ((H, G, FIELD, (1, 1)), {"weight": [1.0, 2.0]}, "weight must be a number or have"),
        ((H, G, FIELD, (1, 1)), {"weight": np.nan}, "weight must be positive"),
        ((H, G, FIELD, (1, 1)), {"start": G[:1]}, "start must have the shape"),
        ((H, G, FIELD, (1, 1)), {"start": G * np.nan}, "start must be finite"),
        ((H, G, FIELD, (1, 1)), {"tolerance": 0.0}, "tolerance must be positive"),
        ((H, G, FIELD, (1, 1)), {"max_cycles": 0}, "max_cycles must be an integer >= 1"),
    ],
)
def test_fields(arguments, options, message):
    with pytest.raises(ValueError, match=message) as error:
        solve_field(*arguments, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((H, np.ones((4, 5, 4)), VELOCITY), "gradient must have shape"),
        ((H, G, VELOCITY, (1, 1, 1)), "gradient must have shape"),
        ((H, G, VELOCITY, (1, -1)), "voxel_size must be positive"),
        ((H, G, FIELD), "penalty must hold 5 numbers"),
        ((H, G, (0, 0, 0, 0, 1)), "penalty must have a positive weight among its first four"),
        ((H * 0, G, (0, 1, 1, 1, 1)), "the system is singular"),
    ],
)
def test_velocities(arguments, message):
    with pytest.raises(ValueError, match=message):
        solve_velocity(*arguments)
