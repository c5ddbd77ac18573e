"""Large answers and parameters: in blocks, on disk, with the same numbers."""

import numpy as np
import pytest

from anamorph.arrays.column_sums import SumOnDisk
from anamorph.arrays.mapped import empty_mapped, is_mapped, let_go
from anamorph.federation import Terms
from tests.federation.conftest import LENIENT, OPEN, Wire, fit, objective_error, sites


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_fit_in_many_blocks_and_on_disk(tmp_path, pooled, monkeypatch, is_secure):
    monkeypatch.setattr("anamorph.federation.protocol.answers.BLOCK_LENGTH", 101)
    monkeypatch.setattr("anamorph.arrays.column_sums.MOST_BYTES_IN_MEMORY", 4000)
    wire = Wire()
    transport = sites(tmp_path, LENIENT if is_secure else OPEN, watch=wire)
    result, _ = fit(transport, terms=Terms(is_secure=is_secure))
    assert objective_error(result, pooled) < 1e-5
    sent = [message for _, message, _ in wire.messages()]
    assert max(message["index"] for message in sent if message["do"] == "total") > 5
    assert max(a["block"].size for _, _, a in wire.messages() if "block" in a) == 101
    assert list(tmp_path.glob("*/fits/*/hessian.float32"))


def test_a_large_fit_goes_on_from_its_checkpoint(tmp_path, pooled, monkeypatch):
    monkeypatch.setattr("anamorph.arrays.column_sums.MOST_BYTES_IN_MEMORY", 500)
    monkeypatch.setattr("anamorph.arrays.mapped._BLOCK_BYTES", 1000)  # a column at a time
    transport, checkpoint = sites(tmp_path), tmp_path / "checkpoint"
    parts = []
    monkeypatch.setattr(
        "anamorph.fitting.regularisation.let_go",
        lambda *arrays: parts.append([is_mapped(array) for array in arrays]),
    )
    fit(transport, checkpoint=checkpoint, n_iter=1)
    assert len(parts) > 2
    assert parts[-1] == [True]  # the energy of a basis that is in a file
    parts.clear()
    result, _ = fit(transport, checkpoint=checkpoint)
    assert parts[0] == [True] * 4  # the basis of the checkpoint, sums, and what came of them
    assert objective_error(result, pooled) < 1e-5


def test_what_is_let_go_of_is_there_again():
    array = empty_mapped((3, 5))
    array[...] = np.arange(15.0).reshape(3, 5)
    let_go(array, np.zeros(3))
    np.testing.assert_array_equal(array, np.arange(15.0).reshape(3, 5))
    assert is_mapped(array[1:])
    assert not is_mapped(array.copy())


def test_a_sum_on_disk_is_the_sum(tmp_path, monkeypatch):
    monkeypatch.setattr("anamorph.arrays.column_sums._BLOCK_BYTES", 400)
    generator = np.random.default_rng(0)
    total = SumOnDisk(tmp_path / "sum", (5, 2, 6, 7))
    expected = np.zeros((5, 2, 6, 7))
    for _ in range(3):
        weights, fields = generator.normal(size=(4, 5)), generator.normal(size=(4, 2, 6, 7))
        total.add_products(weights, fields.astype(np.float32))
        expected += np.tensordot(weights.T, fields, axes=1)
    np.testing.assert_allclose(total.array(), expected, atol=1e-5)
