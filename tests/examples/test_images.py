"""Images of the experiments: probabilities add up, small versions need no data."""

import numpy as np
import pytest

from examples.paper.experiment import Experiment
from examples.paper.images import (
    brain_slices,
    coarser,
    drawn_faces,
    faces,
    hippocampi,
    one_hot,
    tissue_maps,
    whole_brains,
)


@pytest.fixture
def small(tmp_path):
    return Experiment("trial", tmp_path / "results", tmp_path / "work", is_small=True)


def test_tissue_maps_are_probabilities_where_they_add_up_to_too_much():
    grey = np.array([[0, 255, 128, 200]], np.uint8)
    white = np.array([[0, 0, 128, 100]], np.uint8)
    maps = tissue_maps([grey, white])
    assert maps.shape == (1, 4, 3)
    assert np.allclose(maps.sum(axis=-1), 1)
    assert np.allclose(maps[0, :3], [[0, 0, 1], [1, 0, 0], [0.5, 0.5, 0]])
    assert np.allclose(maps[0, 3], [2 / 3, 1 / 3, 0])


def test_coarser_images_are_averages_of_blocks():
    images = np.random.default_rng(0).random((2, 4, 6, 3))
    found = coarser(images, 2)
    assert found.shape == (2, 2, 3, 3)
    assert np.allclose(found[1, 1, 2], images[1, 2:4, 4:6].mean(axis=(0, 1)))
    volumes = np.random.default_rng(0).random((2, 4, 4, 6, 3))
    assert np.allclose(
        coarser(volumes, 2, n_axes=3)[0, 1, 0, 2], volumes[0, 2:, :2, 4:].mean(axis=(0, 1, 2))
    )


def test_labels_become_probabilities():
    assert np.array_equal(one_hot(np.array([[2, 0]], np.uint8), 3), [[[0, 0, 1], [1, 0, 0]]])


@pytest.mark.parametrize("load", [brain_slices, whole_brains, hippocampi])
def test_small_versions_are_drawn(small, load):
    images = load(small)
    assert np.allclose(images.sum(axis=-1), 1)
    assert np.array_equal(images, load(small))


def test_drawn_people_are_neutral_and_smile(small):
    found = faces(small)
    assert np.array_equal(found.images, drawn_faces(12, 0).images)
    people, counts = np.unique(found.person, return_counts=True)
    assert len(people) == 12
    assert set(counts) == {2}
    smiling = found.take(found.is_smiling)
    assert len(set(smiling.person)) == len(smiling.images) == 12
