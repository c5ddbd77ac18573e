"""Public names: documentation uses only these, and the paths of version 0.1 still import."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anamorph
from anamorph.moved import MOVED

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"^::: (\S+)$", re.MULTILINE)

#: Packages that users import from.
PUBLIC = [
    "anamorph",
    *(
        f"anamorph.{name}"
        for name in (
            "classify",
            "cluster",
            "compare",
            "datasets",
            "explorer",
            "federation",
            "geometry",
            "images",
            "plots",
            "report",
            "solvers",
            "storage",
        )
    ),
]
#: What version 0.1 documented, by module: the modules that have moved, and those that stayed.
DOCUMENTED = {
    "anamorph.compare": ["Comparison", "compare_layouts", "hide_boxes", "score_hidden"],
    "anamorph.datasets.mnist": ["mnist"],
    "anamorph.encoding": ["Encoded"],
    "anamorph.federation.agent": ["SiteAgent"],
    "anamorph.federation.analysis": ["GroupStatistics", "federated_statistics", "write_statistics"],
    "anamorph.federation.errors": ["FederationError", "PolicyError", "SitesLostError"],
    "anamorph.federation.fit": ["FederatedResult", "Terms", "federated_fit"],
    "anamorph.federation.identity": ["Identity", "new_identities"],
    "anamorph.federation.policy": ["Policy"],
    "anamorph.federation.simulate": ["simulated_sites", "split_images"],
    "anamorph.federation.transport": ["Replies", "Transport"],
    "anamorph.generator": ["Generator"],  # in pickles of fitted models
    "anamorph.parameters": ["Parameters"],
    "anamorph.settings": ["LatentLayout", "Settings"],
    "anamorph.io": ["FileImages"],
    "anamorph.io.arrays": ["ArrayImages", "ImageFormat"],
    "anamorph.io.collection": ["open_images"],
    "anamorph.io.errors": ["ImageError", "ModelFileError", "TableError", "WriteError"],
    "anamorph.io.files": ["FileImages"],
    "anamorph.io.grid": ["Grid"],
    "anamorph.io.hidden": ["HiddenImages"],
    "anamorph.io.modelfile": ["Origin"],
    "anamorph.io.names": ["match_tissues"],
    "anamorph.io.nifti": ["write_nifti"],
    "anamorph.io.participants": ["Participants", "read_participants"],
    "anamorph.model": ["PARTS", "ShapeAppearanceModel"],
    "anamorph.presets": ["PRESETS", "preset"],
    "anamorph.progress": ["Progress", "duration"],
    "anamorph.report.write": ["write_report"],
    "anamorph.classify.evidence": ["EvidenceClassifier"],
    "anamorph.classify.gaussian_process": ["GaussianProcessClassifier"],
    "anamorph.classify.nuisance": ["NuisanceRemover"],
}


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_imports(package):
    pytest.importorskip("distributed" if package == "anamorph.cluster" else "numpy")
    module = importlib.import_module(package)
    assert module.__doc__
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"'anamorph\.images' has no attribute 'nothing'"):
        importlib.import_module("anamorph.images").nothing  # noqa: B018
    assert not hasattr(anamorph, "nothing")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_only_what_is_public(page):
    for path in REFERENCE.findall(page.read_text(encoding="utf-8")):
        package, _, name = path.rpartition(".")
        assert package in PUBLIC, f"{page.name} documents {path}, which is not in a public package"
        assert name in importlib.import_module(package).__all__, f"{path} is not public"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_only_from_public_packages(page):
    for code in PYTHON.findall(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                modules = [(alias.name, []) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [(node.module, [alias.name for alias in node.names])]
            else:
                continue
            for module, names in modules:
                if module.partition(".")[0] != "anamorph":
                    continue
                assert module in PUBLIC, f"{page.name} imports from {module}"
                assert set(names) <= set(importlib.import_module(module).__all__)


def test_every_module_that_has_moved_is_tested():
    assert MOVED.keys() <= DOCUMENTED.keys()


@pytest.mark.parametrize("module", DOCUMENTED)
def test_documented_names_of_the_first_version_import(module):
    names = DOCUMENTED[module]
    if module not in MOVED and module != "anamorph.model":
        for name in names:
            assert getattr(importlib.import_module(module), name) is not None
        return
    for name in names:
        old = importlib.import_module(module)
        with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} has moved: import {name}"):
            found = getattr(old, name)
        assert "anamorph.io" not in getattr(found, "__module__", "anamorph")


def test_the_warning_points_to_the_line_that_imports(tmp_path):
    script = tmp_path / "old.py"
    script.write_text("from anamorph.io.errors import ImageError\n")
    done = subprocess.run(
        [sys.executable, "-W", "default", script], capture_output=True, text=True, check=True
    )
    assert f"{script}:1: DeprecationWarning: anamorph.io.errors.ImageError has moved" in done.stderr


def test_old_modules_have_nothing_else():
    with pytest.raises(ImportError):
        from anamorph.io.files import nothing  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("anamorph.io.nothing")


def test_importing_public_packages_of_images_and_files_loads_nothing_heavy():
    code = "import anamorph.images, anamorph.storage, anamorph.datasets, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numba", "scipy", "sklearn", "matplotlib", "safetensors", "nibabel", "PIL"}
    assert not set(done.stdout.split()) & heavy


def test_the_reference_shows_methods_that_classes_inherit():
    """The methods of a fitted model are those of a parent, which pages leave out unless told."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for found in REFERENCE.finditer(text):
            package, _, name = found[1].rpartition(".")
            parents = getattr(getattr(importlib.import_module(package), name), "__mro__", ())[1:]
            inherits = any(
                parent.__module__.startswith("anamorph.")
                and any(not member.startswith("_") for member in vars(parent))
                for parent in parents
                if isinstance(parent, type)
            )
            options = text[found.end() :].partition("\n\n")[0]
            assert not inherits or "inherited_members: true" in options, found[1]
