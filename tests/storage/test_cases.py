"""Random damages, forgeries, settings and names, seeded: refused in one line, or right."""

import warnings

import numpy as np
import pytest

from anamorph.images.errors import ImageError, TableError
from anamorph.model.checks import ArgumentError
from anamorph.storage.errors import ModelFileError
from benchmarks.storage_cases import STORAGE_CASES

N_CASES = {"extreme_settings": 40, "damaged_checkpoints": 60}
ACCEPTED = (ImageError, TableError, ArgumentError, ModelFileError)


@pytest.mark.parametrize("case", STORAGE_CASES, ids=lambda case: case.__name__)
def test_cases_end_well(case, tmp_path):
    outcomes = set()
    for seed in range(N_CASES.get(case.__name__, 100)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcomes.add(case(np.random.default_rng(seed), folder))
            except ACCEPTED as error:
                outcomes.add("refused" if "\n" not in str(error) else "several lines")
    assert outcomes
    assert "several lines" not in outcomes
