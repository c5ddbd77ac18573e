"""Importing is quick, and compiling is never silent."""

import os
import subprocess
import sys

import pytest

COMPILE = """
import numpy as np
from anamorph.geometry import momentum
momentum(np.ones((2, 4, 4), np.float32), (1, 0, 0, 0, 0))
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_import_loads_nothing_heavy():
    code = "import anamorph, sys; print(*sys.modules)"
    loaded = set(run(code).stdout.split())
    assert not loaded & {"numba", "scipy", "sklearn", "matplotlib", "safetensors"}


@pytest.mark.parametrize("name", ["ShapeAppearanceModel", "EvidenceClassifier"])
def test_estimators_are_found_when_asked_for(name):
    code = f"import anamorph; print('{name}' in dir(anamorph)); print(anamorph.{name}.__name__)"
    assert run(code).stdout.split() == ["True", name]


def test_first_process_says_that_it_compiles_and_the_next_starts_from_the_cache(tmp_path):
    first = run(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    second = run(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.stderr.count("Compiling numerical kernels") == 1
    assert "Compiling" not in second.stderr
