"""Sub-packages import only from lower ones, without cycles; public names load nothing early."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import anamorph.federation as federation

PACKAGE = Path(federation.__file__).parent
# What each sub-package may import from, besides itself.
BELOW = {
    "protocol": set(),
    "masking": {"protocol"},
    "site": {"protocol", "masking"},
    "coordinator": {"protocol", "masking"},
    "nvflare": {"protocol", "masking", "site", "coordinator"},
    "simulate": {"protocol", "masking", "site", "coordinator"},
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def name_of(path):
    """Return the name of a module within the package, e.g. ``site.agent``."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imported(path):
    """Return the names of the modules of the package that a module imports, anywhere in it."""
    prefix = "anamorph.federation."
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.removeprefix(prefix) for name in names if name.startswith(prefix))


def test_every_module_has_a_floor():
    assert {name_of(path).split(".")[0] for path in MODULES} == BELOW.keys()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_floor_imports_only_from_lower_ones(path):
    floor = name_of(path).split(".")[0]
    assert {name.split(".")[0] for name in imported(path)} <= BELOW[floor] | {floor}


def test_modules_do_not_import_each_other_in_a_circle():
    order = TopologicalSorter({name_of(path): set(imported(path)) for path in MODULES})
    assert set(order.static_order()) == {name_of(path) for path in MODULES}


def test_only_the_engine_imports_nvflare():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert path.parent.name == "nvflare" or "import nvflare" not in text, path
        assert path.parent.name == "nvflare" or "from nvflare" not in text, path


def test_every_public_name_is_found():
    for name in federation.__all__:
        assert getattr(federation, name).__name__ == name
    assert set(federation.__all__) <= set(dir(federation))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        federation.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("names", "unloaded"),
    [
        ("FederationError", {"numpy", "cryptography", "nvflare"}),
        ("Policy, Transport", {"cryptography", "nvflare"}),
        ("Terms, federated_fit", {"nvflare"}),
        ("SiteAgent, simulated_sites", {"nvflare"}),
    ],
)
def test_a_name_loads_only_what_it_needs(names, unloaded):
    code = f"import sys; from anamorph.federation import {names}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert not unloaded & set(output.split())
