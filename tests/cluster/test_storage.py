"""Latents in the shared folder: by step, and not longer than they are needed."""

import numpy as np
import pytest

from anamorph.cluster.storage import LatentFolder, PartitionLatents, remove_abandoned
from anamorph.storage.errors import ModelFileError, WriteError


def latents(seed):
    now, before = np.random.default_rng(seed).standard_normal((2, 3, 2))
    return PartitionLatents(now, before, now[:, :0])


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


def test_a_folder_goes_with_its_parent_unless_somebody_else_uses_it(tmp_path):
    parent = tmp_path / "scratch"
    ours, others = LatentFolder.made_in(parent), LatentFolder.made_in(parent)
    ours.write(0, 1, latents(1))
    others.write(0, 1, latents(1))
    ours.remove()
    assert not ours.exists()
    assert np.array_equal(others.read(0, 1).latents, latents(1).latents)
    others.remove()
    assert not parent.exists()
    assert tmp_path.exists()


def test_only_what_fits_have_left_is_removed(tmp_path):
    LatentFolder.made_in(tmp_path)
    kept = {"anamorph-fit-mine", "fit-0123456789abcdef", "results"}
    for name in kept:
        (tmp_path / name).mkdir()
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_no_place_for_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="cannot hold latents") as it:
        LatentFolder.made_in(tmp_path / "file")
    assert "\n" not in str(it.value)
