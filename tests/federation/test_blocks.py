"""Large answers and parameters: in blocks, on disk, with the same numbers."""

import numpy as np
import pytest

from anamorph.arrays.column_sums import SumOnDisk
from anamorph.arrays.mapped import empty_mapped, is_mapped, let_go
from anamorph.federation.coordinator.fit import Terms
from anamorph.federation.protocol.answers import Answer, Row
from anamorph.federation.protocol.errors import MessageError
from anamorph.federation.protocol.wire import pack, unpack
from anamorph.fitting.sums import Sums
from tests.federation.conftest import LENIENT, OPEN, Wire, fit, objective_error, sites


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_fit_in_many_blocks_and_on_disk(tmp_path, pooled, monkeypatch, is_secure):
    monkeypatch.setattr("anamorph.federation.protocol.answers.BLOCK_LENGTH", 101)
    monkeypatch.setattr("anamorph.federation.coordinator.sites.BLOCK_BYTES", 500)
    monkeypatch.setattr("anamorph.arrays.column_sums.MOST_BYTES_IN_MEMORY", 4000)
    wire = Wire()
    transport = sites(tmp_path, LENIENT if is_secure else OPEN, watch=wire)
    result, _ = fit(transport, terms=Terms(is_secure=is_secure))
    assert objective_error(result, pooled) < 1e-5
    sent = [message for _, message, _ in wire.messages()]
    assert {"publish", "block"} <= {message["do"] for message in sent}
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


def test_blocks_cover_an_answer_once(monkeypatch):
    monkeypatch.setattr("anamorph.federation.protocol.answers.BLOCK_LENGTH", 7)
    shapes = {"a": (3, 4), "b": (), "nothing": (0, 5), "c": (5,)}
    fields = {name: np.random.default_rng(0).normal(size=shape) for name, shape in shapes.items()}
    answer = Answer(Sums(9, fields), Row(shapes))
    numbers = np.full(answer.row.length, np.nan)
    for index in range(answer.row.n_blocks):
        block = numbers[answer.row.block(index)]
        for piece, values in answer.pieces(index):
            assert np.isnan(block[piece.here]).all()
            block[piece.here] = values
    expected = np.concatenate([[9.0], *(values.reshape(-1) for values in fields.values())])
    np.testing.assert_array_equal(numbers, expected)


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


def test_messages_are_the_same_after_the_wire():
    message = {
        "text": "a\u00e9",
        "number": 3,
        "share": 0.1,
        "yes": True,
        "nothing": None,
        "bytes": b"\0\1\2",
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.array(2.5),
        "list": [1, {"inner": np.zeros((0, 4))}],
    }
    again = unpack(pack(message))
    assert again.keys() == message.keys()
    for name in ("text", "number", "share", "yes", "nothing", "bytes"):
        assert again[name] == message[name]
    np.testing.assert_array_equal(again["array"], message["array"])
    assert again["array"].dtype == np.float32
    assert again["scalar"].shape == ()
    assert again["list"][1]["inner"].shape == (0, 4)


@pytest.mark.parametrize("value", [object(), np.array(["text"]), np.array([object()]), {1: 2}])
def test_what_cannot_be_sent(value):
    with pytest.raises(MessageError):
        pack({"value": value})


def test_bytes_that_are_no_message():
    data = pack({"array": np.arange(10.0)})
    for broken in (b"", b"GIF89a", data[:-1], data[:20], data.replace(b"<f8", b"|O8")):
        with pytest.raises(MessageError):
            unpack(broken)
