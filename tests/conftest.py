"""What all tests share: golden files, a measure of error, and how hypothesis looks for examples."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# Kernels compile during the first example, so examples have no deadline; they are the same in
# every run, so that a failure can be repeated.
settings.register_profile("anamorph", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("anamorph")

# Where tests run in the background, they would ignore Ctrl-C, as would all processes they start;
# stopped by it, they tell what has failed so far.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Windows has none of the signals, limits and forks by which these tests kill and starve processes.
if sys.platform == "win32":
    collect_ignore = [
        "cli/test_process.py",
        "cli/test_stopping.py",
        "cluster",
        "federation/nvflare",
        "federation/test_killed.py",
        "images/test_fuzz.py",
    ]

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden():
    """Return a function that loads a golden file by name."""
    return lambda name: np.load(GOLDEN / f"{name}.npz", allow_pickle=False)


def one_line(error):
    """Return what a raised error says, which must be one line of text."""
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


def relative_error(result, expected):
    """Largest difference, relative to the largest expected value."""
    return float(np.abs(result - expected).max() / np.abs(expected).max())
