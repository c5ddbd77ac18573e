"""Blocks hold every number of an answer once."""

import numpy as np

from anamorph.federation.protocol.answers import Answer, AnswerSchema
from anamorph.fitting.sums import Sums


def test_blocks_cover_an_answer_once(monkeypatch):
    monkeypatch.setattr("anamorph.federation.protocol.answers.BLOCK_LENGTH", 7)
    shapes = {"a": (3, 4), "b": (), "nothing": (0, 5), "c": (5,)}
    fields = {name: np.random.default_rng(0).normal(size=shape) for name, shape in shapes.items()}
    answer = Answer(Sums(9, fields), AnswerSchema(shapes))
    blocks = []
    for index in range(answer.schema.n_blocks):
        block = np.full(answer.schema.n_numbers(index), np.nan)
        for piece, values in answer.pieces(index):
            assert np.isnan(block[piece.in_block]).all()
            block[piece.in_block] = values
        np.testing.assert_array_equal(answer.unmasked_block(index), block)
        blocks.append(block)
    expected = np.concatenate([[9.0], *(values.reshape(-1) for values in fields.values())])
    np.testing.assert_array_equal(np.concatenate(blocks), expected)
