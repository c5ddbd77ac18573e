"""Files of the project beside its code agree with each other: versions, citations, floors."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from anamorph import __version__
from anamorph.report.write import CITATION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def load_lowest():
    spec = importlib.util.spec_from_file_location("lowest", ROOT / "scripts" / "lowest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_citation_file_has_the_version_of_the_package():
    assert re.search(r"^version: (.*)$", text_of("CITATION.cff"), re.MULTILINE)[1] == __version__


def test_the_changelog_tells_of_the_version_of_the_package():
    release, _, is_in_work = __version__.partition(".dev")
    changelog = text_of("CHANGELOG.md")
    if is_in_work:
        unreleased = re.search(r"^## Unreleased\n(.*?)^## ", changelog, re.MULTILINE | re.DOTALL)
        assert release in unreleased[1]
    else:
        assert re.search(rf"^## {re.escape(release)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)


def test_reports_and_documentation_cite_the_same_entry():
    entry = re.search(r"^@article.*?^}$", text_of("docs/citation.md"), re.MULTILINE | re.DOTALL)[0]
    assert entry in CITATION
    doi = re.search(r"doi     = {(.*)}", entry)[1]
    assert f"doi: {doi}\n" in text_of("CITATION.cff")


def test_the_workflow_runs_every_python_of_the_package():
    name = "Programming Language :: Python :: 3."
    stated = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith(name)]
    line = re.search(r"^ +python: \[(.*)\]$", text_of(".github/workflows/ci.yml"), re.MULTILINE)[1]
    assert re.findall(r'"(.*?)"', line) == stated
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_every_dependency_has_an_oldest_version():
    shown = subprocess.run(
        [sys.executable, ROOT / "scripts" / "lowest.py"], capture_output=True, text=True, check=True
    )
    constraints = shown.stdout.splitlines()
    assert len(constraints) > len(PROJECT["dependencies"])
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in constraints)


def test_floors_are_read_from_requirements():
    lowest = load_lowest()
    assert lowest.floors(["a>=1.2", "b-c~=2.9.0", "d[e]>=3,<4"]) == ["a==1.2", "b-c==2.9.0", "d==3"]
    with pytest.raises(ValueError, match="from which version on 'numpy' works"):
        lowest.floors(["numpy"])


def test_git_ignores_no_module():
    """One that git ignores would be neither checked nor committed nor packaged."""
    modules = [path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    command = ["git", "check-ignore", "--no-index", *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 128:
        pytest.skip("this is no repository of git")
    assert done.stdout == ""
