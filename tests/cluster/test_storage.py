"""Latents in the shared folder: by step, and not longer than they are needed."""

import numpy as np
import pytest

from anamorph.cluster.storage import LatentFolder, PartitionLatents
from anamorph.io.errors import ModelFileError


def latents(seed):
    now, before = np.random.default_rng(seed).standard_normal((2, 3, 2))
    return PartitionLatents(now, before)


def test_a_step_can_be_done_again_from_the_same_latents(tmp_path):
    folder = LatentFolder(str(tmp_path))
    folder.write(0, 4, latents(4))
    for _ in range(2):
        read = folder.read(0, 4)
        assert np.array_equal(read.latents, latents(4).latents)
        assert np.array_equal(read.before_turn, latents(4).before_turn)
        folder.write(0, 5, latents(5))
    assert np.array_equal(folder.read(0, 5).latents, latents(5).latents)


def test_the_last_two_steps_of_every_partition_are_kept(tmp_path):
    folder = LatentFolder(str(tmp_path))
    for step in range(5):
        for partition in range(2):
            folder.write(partition, step, latents(step))
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(ModelFileError, match="does not exist"):
        folder.read(1, 2)
