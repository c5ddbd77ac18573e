"""Compiled loops: one per likelihood, from the cache of a process before, and never a stale one."""

import os
import subprocess
import sys

from anamorph.kernels.cpu.likelihood_loops import _channels, copy_for
from anamorph.likelihoods import LIKELIHOODS

EVALUATE = """
import numpy as np
from anamorph.likelihoods import LIKELIHOODS
for likelihood in LIKELIHOODS.values():
    images = np.ones((1, 2, 3, 3), np.float32)
    print(likelihood.derivatives(images, images, np.ones(2)).log_likelihood.tolist())
"""


def run(folder):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", EVALUATE]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def test_the_next_process_starts_from_the_cache(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert "Compiling" in first.stderr
    assert "Compiling" not in second.stderr
    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) == len(LIKELIHOODS)


def test_loops_of_likelihoods_have_names_of_their_own():
    kinds = [kind for kind in LIKELIHOODS.values() if not kind.holds_classes]
    names = {copy_for(_channels, voxel=kind.voxel).__qualname__ for kind in kinds}
    assert len(names) == len(kinds)


def test_a_loop_has_another_name_when_a_formula_changes(tmp_path):
    names = []
    for factor in (1, 2):
        path = tmp_path / "formulas.py"
        path.write_text(f"def voxel(a, f, weight):\n    return {factor} * a, f, weight\n")
        scope = {"__name__": "formulas"}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        names.append(copy_for(_channels, voxel=scope["voxel"]).__qualname__)
    assert names[0].startswith("_channels_formulas_")
    assert names[0] != names[1]
