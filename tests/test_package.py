"""Importing is quick, compiling is never silent, and each floor knows only those above it."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anamorph

PACKAGE = Path(anamorph.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "docs" / "contributing.md"

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


@pytest.mark.parametrize(
    "code",
    [
        "import anamorph.fitting, anamorph.model, anamorph.arrays",
        "from typer.testing import CliRunner; from anamorph.cli.app import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
    ],
    ids=["packages", "help"],
)
def test_neither_packages_nor_help_load_numba(code):
    loaded = set(run(f"import sys; {code}; print(*sys.modules)").stdout.split())
    assert not loaded & {"numba", "sklearn", "cupy"}


@pytest.mark.parametrize("package", ["compare", "federation", "images", "model", "storage"])
def test_packages_export_what_they_list(package):
    """Names that are found when they are asked for are those that type checkers see."""
    code = f"import anamorph.{package} as p; print(*(getattr(p, n).__class__ for n in p.__all__))"
    assert run(code).stdout


@pytest.mark.parametrize("name", ["ShapeAppearanceModel", "EvidenceClassifier"])
def test_estimators_are_found_when_asked_for(name):
    code = f"import anamorph; print('{name}' in dir(anamorph)); print(anamorph.{name}.__name__)"
    assert run(code).stdout.split() == ["True", name]


def test_first_process_says_that_it_compiles_and_the_next_starts_from_the_cache(tmp_path):
    first = run(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    second = run(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.stderr.count("Compiling numerical kernels") == 1
    assert "once per machine for each kind of images and model" in first.stderr
    assert "Compiling" not in second.stderr


def floors():
    """Return the parts of the package, in the order in which contributors read of them."""
    page = CONTRIBUTING.read_text(encoding="utf-8")
    lines = re.search(r"^anamorph/\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1)
    names = [name for line in lines.splitlines() for name in line.split("  ")[1].split(", ")]
    assert len(lines.splitlines()) == 10
    return [name.rstrip("/").removesuffix(".py") for name in names]


def part_of(path):
    """Return the part of the package that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path):
    """Return which parts of the package a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anamorph."):
            yield node.module.split(".")[1]


def test_every_part_of_the_package_is_a_floor():
    parts = {part_of(path) for path in PACKAGE.rglob("*.py")}
    assert sorted(parts - {"__init__", "__main__"}) == sorted(floors())


def test_each_floor_knows_only_those_above_it():
    order = {part: number for number, part in enumerate(floors())}
    above = {
        (path.relative_to(PACKAGE).as_posix(), other)
        for path in PACKAGE.rglob("*.py")
        for other in imported_parts(path)
        if part_of(path) in order and order[other] > order[part_of(path)]
    }
    assert above == set()
