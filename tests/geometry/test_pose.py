"""Poses are groups: exponentials, logarithms and compositions belong together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm, logm

from anamorph.geometry.pose import (
    ALIGNMENTS,
    PoseFrame,
    compose_poses,
    pose_basis,
    pose_levels,
    pose_logarithms,
    pose_matrices,
    pose_names,
)

GROUPS = [(align, d) for align in ALIGNMENTS[1:] for d in (2, 3)]


def random_poses(align, n_dims, number=6, seed=0):
    generator = np.random.default_rng(seed)
    return 0.4 * generator.standard_normal((number, len(pose_names(align, n_dims))))


@pytest.mark.parametrize(("align", "n_dims"), GROUPS)
def test_matrices_are_exponentials_and_logarithms_undo_them(align, n_dims):
    poses = random_poses(align, n_dims)
    matrices = pose_matrices(poses, align, n_dims)
    algebra = np.tensordot(poses, pose_basis(align, n_dims), axes=1)
    np.testing.assert_allclose(matrices[0], expm(algebra[0]), atol=1e-12)
    np.testing.assert_allclose(logm(matrices[1]).real, algebra[1], atol=1e-8)
    np.testing.assert_allclose(pose_logarithms(matrices, align), poses, atol=1e-10)


@pytest.mark.parametrize(("align", "n_dims"), GROUPS)
def test_groups_are_closed(align, n_dims):
    one, other = random_poses(align, n_dims), random_poses(align, n_dims, seed=1)
    both = compose_poses(one, other, align, n_dims)
    expected = pose_matrices(one, align, n_dims) @ pose_matrices(other, align, n_dims)
    np.testing.assert_allclose(pose_matrices(both, align, n_dims), expected, atol=1e-9)
    np.testing.assert_allclose(compose_poses(-one, one, align, n_dims), 0, atol=1e-10)


def test_no_alignment_has_no_coordinates():
    assert pose_names("none", 3) == ()
    frame = PoseFrame("none", (4, 5), (1.0, 1.0))
    assert frame.n_coordinates == 0
    assert frame.log_prior(np.zeros((2, 0))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("align", "distances", "angles", "volumes"),
    [("rigid", True, True, True), ("similarity", False, True, False)],
)
def test_what_a_group_keeps(align, distances, angles, volumes):
    linear = pose_matrices(random_poses(align, 3), align, 3)[:, :3, :3]
    gram = linear.swapaxes(1, 2) @ linear
    scale = gram[:, 0, 0][:, None, None]
    np.testing.assert_allclose(gram, scale * np.eye(3), atol=1e-10)  # angles
    assert np.allclose(scale, 1) == distances
    assert np.allclose(np.linalg.det(linear), 1) == volumes
    assert angles


def test_turns_are_in_mm_about_the_centre_of_the_box():
    # 90 degrees within a plane whose voxels are twice as long along one axis.
    frame = PoseFrame("rigid", (11, 21), (2.0, 1.0))
    pose = np.array([[0.0, 0.0, np.pi / 2]])
    places = frame.places(frame.matrices(pose), np.zeros(1))[0]
    np.testing.assert_allclose(places[:, 5, 10], [5, 10], atol=1e-5)
    np.testing.assert_allclose(places[:, 6, 10], [5, 12], atol=1e-5)  # 2 mm on axis 1, 2 voxels
    shifted = PoseFrame("translation", (11, 21), (2.0, 1.0))
    moved = shifted.places(shifted.matrices(np.array([[3.0, 3.0]])), np.zeros(1))[0]
    np.testing.assert_allclose(moved[:, 0, 0], [1.5, 3.0], atol=1e-6)


@pytest.mark.parametrize("box", [(12, 9), (11, 8, 6)])
def test_larger_voxels_see_the_same_pose(box):
    n_dims = len(box)
    fine = PoseFrame("affine", box, (1.0, 2.0, 1.5)[:n_dims])
    coarse = PoseFrame("affine", box, fine.voxel_size, (2, 3, 2)[:n_dims])
    poses = 0.1 * random_poses("affine", n_dims)
    corner = np.zeros(n_dims, int)
    at_coarse = coarse.places(coarse.matrices(poses), np.zeros(1))[(..., *corner)]
    factors = np.array(coarse.factors)
    linear = fine.matrices(poses)
    start = (factors - 1) / 2  # where the first large voxel has its centre
    at_fine = (linear[:, :, :-1] @ (start - fine.centre)) + linear[:, :, -1] + fine.centre
    np.testing.assert_allclose(at_coarse * factors + start, at_fine, atol=1e-4)
    np.testing.assert_allclose(coarse.poses_of(coarse.matrices(poses)), poses, atol=1e-10)


def test_tangents_are_derivatives_of_places():
    frame = PoseFrame("affine", (9, 8, 7), (1.0, 2.0, 1.5))
    pose = 0.1 * random_poses("affine", 3, number=1)
    before = frame.matrices(pose)[0]
    for p, tangent in enumerate(frame.tangents):
        step = np.zeros_like(pose)
        step[0, p] = 1e-6
        after = frame.matrices(frame.composed(step, pose))[0]
        place = np.vstack([before, [0, 0, 0, 1]])
        np.testing.assert_allclose((after - before) / 1e-6, tangent @ place, atol=1e-4)


def test_levels_make_voxels_cubic():
    assert pose_levels((40, 48, 40), (4.0, 4.0, 4.0), 10) == [(1, 1, 1), (2, 2, 2), (4, 4, 4)]
    assert pose_levels((96, 96, 12), (1.0, 1.0, 8.0), 10)[-1] == (8, 8, 1)
    assert pose_levels((6, 6), (1.0, 1.0), 10) == [(1, 1)]


def test_matrices_without_a_logarithm_have_no_pose_and_others_keep_theirs():
    """One image that was turned and sheared beyond all poses ended an encoding of a whole batch."""
    poses = random_poses("affine", 2)
    matrices = pose_matrices(poses, "affine", 2)
    mirrored = np.diag([-0.5, -0.02, 1.0])
    found = pose_logarithms(np.stack([mirrored, *matrices, 0 * mirrored]), "affine")
    assert np.isnan(found[[0, -1]]).all()
    np.testing.assert_allclose(found[1:-1], poses, atol=1e-10)
    assert np.isnan(pose_logarithms(np.full((1, 3, 3), np.inf), "affine")).all()


@pytest.mark.parametrize("short_by", [1e-3, 1e-6, 1e-9])
def test_poses_near_half_turns_have_logarithms(short_by):
    """Twelve iterations of a square root were too few there: turns came out twice as large."""
    poses = np.array([[3.0, 2.0, np.pi - short_by], [3.0, 2.0, 0.1]])
    found = pose_logarithms(pose_matrices(poses, "rigid", 2), "rigid")
    again = pose_matrices(found, "rigid", 2)
    np.testing.assert_allclose(again, pose_matrices(poses, "rigid", 2), atol=1e-5)
