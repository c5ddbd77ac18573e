"""The walk of one image: the documentation lists the files of it, and they do not become more."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Lower them where files have become fewer. Before they rise, ask why a plain fit enters one more.
MOST_FILES, MOST_WITH_VOXELS = 97, 55


def documented_walk():
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    section = page.partition("## The walk of one image")[2]
    return re.search(r"```text\n(.*?)```", section, re.DOTALL).group(1)


def test_files_of_the_walk_exist_and_are_few():
    *_, last = documented_walk().splitlines()
    n_files, n_with_voxels = map(int, re.findall(r"\d+", last))
    files = re.findall(r"[\w/]+\.py", documented_walk())
    assert len(files) == len(set(files)) == n_files
    assert documented_walk().count("*") <= n_with_voxels
    assert n_files <= MOST_FILES
    assert n_with_voxels <= MOST_WITH_VOXELS
    for file in files:
        assert (ROOT / "src" / "anamorph" / file).is_file()


@pytest.mark.slow
def test_the_walk_is_the_documented_one():
    command = [sys.executable, "-m", "benchmarks.walk"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == documented_walk(), "put this into docs/how-it-works.md"
