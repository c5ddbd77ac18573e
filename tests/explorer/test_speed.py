"""Pictures are quick enough to follow a hand: as ratios to `shoot` on one thread."""

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from anamorph.arrays.devices import Machine
from anamorph.geometry import shoot
from tests.explorer.test_arithmetic import NODE
from tests.simulated import smooth

SCRIPT = Path(__file__).parent / "node" / "speed.mjs"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None, reason="no node: install Node.js 20 or later to time it"),
]


def milliseconds_in_node(space, n_channels, likelihood):
    """Return the processor time of a whole picture of 16 modes: preview and full."""
    facts = {
        "SPACE": ",".join(map(str, space)),
        "CHANNELS": str(n_channels),
        "LIKELIHOOD": likelihood,
    }
    done = subprocess.run(
        [NODE, str(SCRIPT)], env=os.environ | facts, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def milliseconds_of_shoot(space):
    """Return the processor time of `shoot` on one thread."""
    d = len(space)
    v = np.float32(smooth(np.random.default_rng(0), (d, *space), d, 3.0))
    best = np.inf
    with Machine("cpu", 1, None).threads():
        for _ in range(6):
            before = time.process_time()
            shoot(v, (0.001, 0.01, 1, 0.1, 0.1))
            best = min(best, time.process_time() - before)
    return 1000 * best


def test_pictures_of_faces_follow_a_slider():
    found = milliseconds_in_node((128, 96), 3, "gaussian")["full"]
    floor = milliseconds_of_shoot((128, 96))
    assert found <= 15 * floor, (found, floor)


def test_previews_of_volumes_follow_a_slider():
    found = milliseconds_in_node((48, 48, 48), 3, "categorical")
    floor = milliseconds_of_shoot((48, 48, 48))
    # 200 ms and 1 s on a desktop-class core, on which `shoot` takes about 60 ms.
    assert found["preview"] <= 200 / 60 * floor, (found, floor)
    assert found["full"] <= 1000 / 60 * floor, (found, floor)
