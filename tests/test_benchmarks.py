"""Benchmarks and examples start: what they import is still there."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.stem != "__main__"  # which runs all of them
]


@pytest.mark.parametrize("name", MODULES)
def test_it_imports(name):
    if name in ("benchmarks.kits", "benchmarks.federated_poses"):
        pytest.importorskip("nvflare", reason="federations need anamorph[federation]")
    importlib.import_module(name)
