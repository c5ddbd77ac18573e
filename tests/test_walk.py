"""The walk of one image, as the documentation lists it: all files are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_files_of_the_walk_exist():
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    section = page.partition("## The walk of one image")[2]
    files = re.findall(r"[\w/]+\.py", re.search(r"```text\n(.*?)```", section, re.DOTALL).group(1))
    assert len(files) > 40
    for file in files:
        assert (ROOT / "src" / "anamorph" / file).is_file(), (
            f"run python -m benchmarks.walk: {file}"
        )
