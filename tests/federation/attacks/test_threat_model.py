"""The threat model names the tests that show what it says: they exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_test_that_the_threat_model_names_exists():
    named = set(re.findall(r"tests/[\w/]+\.py", (ROOT / "docs/threat-model.md").read_text()))
    assert len(named) >= 9
    assert [name for name in named if not (ROOT / name).exists()] == []
