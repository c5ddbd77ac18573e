"""Kernels in the cache on disk are used until any file changes that they may be made of."""

from pathlib import Path

import anamorph
from anamorph.kernels import compile as compiling
from anamorph.kernels.cpu.warps import pull_voxels


def test_cached_kernels_belong_to_all_sources_of_kernels():
    _, digest = pull_voxels._cache._cache_file._source_stamp
    assert digest == compiling.source_digest("kernels", "formulas", "cpu")
    formulas = Path(anamorph.__file__).parent / "kernels" / "formulas"
    assert set(formulas.glob("*.py")) <= set(compiling.sources())


def test_the_digest_changes_with_a_formula(tmp_path, monkeypatch):
    path = tmp_path / "formulas" / "differences.py"
    path.parent.mkdir()
    monkeypatch.setattr(compiling, "sources", lambda: [path])
    digests = set()
    for text in ("a + b", "a - b"):
        path.write_text(text, encoding="utf-8")
        digests.add(compiling.source_digest.__wrapped__("formulas"))
    assert len(digests) == 2
    assert compiling.source_digest.__wrapped__("cpu") not in digests
