"""Velocities whose warps fold are smoothed where they do, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from anamorph import ShapeAppearanceModel
from anamorph.geometry import corner_determinants, invert, jacobian_determinant, shoot_both
from anamorph.model.folding import find_folds, tell_of_folds
from anamorph.model.unfolding import _folds, unfolded
from tests.model.test_residuals import blobs

SPACES = [(16, 20), (10, 12, 11)]


@pytest.fixture(scope="module", params=SPACES, ids=["2D", "3D"])
def generator(request):
    images = blobs(request.param, 4)
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0).fit(images)
    return replace(model.generator_, residual=None)


def rough_velocity(space, sizes):
    """Return smooth random velocities (N, d, *space) with largest components of these sizes."""
    rough = np.random.default_rng(0).standard_normal((len(sizes), len(space), *space))
    velocity = gaussian_filter(rough, (0, 0, *(2,) * len(space)), mode="wrap").astype(np.float32)
    wide = (-1, *(1,) * (velocity.ndim - 1))
    largest = np.abs(velocity).max(axis=tuple(range(1, velocity.ndim)))
    return velocity * (np.asarray(sizes) / largest).reshape(wide).astype(np.float32)


def warps_of(generator, latents, velocity):
    s = generator.settings
    total = generator.velocity(latents) + velocity
    return shoot_both(total, s.shape_penalty, s.voxel_size, s.n_steps)


def least(warp):
    """Return the smallest determinants of warps, at voxels and at corners of cells, (2, N)."""
    found = (jacobian_determinant(warp), corner_determinants(warp))
    return np.array([some.reshape(len(warp), -1).min(axis=1) for some in found])


def test_warps_that_fold_do_not_any_more(generator):
    space = generator.settings.space
    latents, velocity = np.zeros((4, 1)), rough_velocity(space, [0, 0.5, 11, 9])
    before = [least(warp) for warp in warps_of(generator, latents, velocity)]
    assert (np.min(before, axis=0)[0, 2:] < 0.1).all()
    smooth = unfolded(generator, latents, velocity)
    np.testing.assert_array_equal(smooth[:2], velocity[:2])
    warps = warps_of(generator, latents, smooth)
    for warp in warps:
        at_voxels, at_corners = least(warp)
        assert (at_voxels >= 0.1).all()
        assert (at_corners > 0).all()
    if len(space) == 2:
        inverse = invert(warps[0])
        assert np.abs(inverse - warps[1]).max() < 0.3  # a geodesic back, and the inverse of cells


def test_velocities_stay_as_they_are_elsewhere(generator):
    """One place folds: what is far away keeps its velocity to the last digit."""
    space = generator.settings.space
    latents = np.zeros((1, 1))
    velocity = rough_velocity(space, [0.3])
    velocity[(0, 0, *(slice(2, 4),) * len(space))] += np.float32(6)
    assert min(least(warp).min() for warp in warps_of(generator, latents, velocity)) < 0.1
    smooth = unfolded(generator, latents, velocity)
    assert least(warps_of(generator, latents, smooth)[0]).min() > 0
    changed = np.abs(smooth - velocity).max(axis=(0, 1)) > 0
    assert changed.any()
    if len(space) == 2:
        assert not changed.all()


def test_what_modes_press_stays(generator):
    """Residual warps undid modes that pressed places: images were explained worse than without."""
    space = generator.settings.space
    latents = np.full((1, 1), 3000.0)
    modes = generator.velocity(latents)
    latents *= 12 / np.abs(modes).max()  # voxels
    velocity = rough_velocity(space, [0.2])
    assert min(least(warp)[0] for warp in warps_of(generator, latents, 0 * velocity)) < 0.1
    smooth = unfolded(generator, latents, velocity)
    assert np.abs(smooth).max() <= np.abs(velocity).max()
    assert (smooth**2).sum() > 0.1 * (velocity**2).sum()


def test_what_is_no_number_counts_as_folded(generator):
    """A warp that goes too far has NaN, which is not less than anything."""
    warps = np.zeros((2, len(generator.settings.space), *generator.settings.space), np.float32)
    warps[(1, 0, *(3,) * len(generator.settings.space))] = np.nan
    assert list(_folds(warps).any(axis=tuple(range(1, warps.ndim - 1)))) == [False, True]


def test_cells_that_stay_turned_over_are_told(generator, caplog):
    model = ShapeAppearanceModel(1, n_iter=2, residual="after", random_state=0)
    model.fit(blobs(generator.settings.space, 4))
    rough = rough_velocity(generator.settings.space, [0.3, 11])
    rough[(0, 0, *(slice(2, 4),) * len(generator.settings.space))] += np.float32(2.5)
    latents = np.zeros((2, 1))
    drawn = least(model.displacement(latents, residuals=rough)).min(axis=0)  # in the steps it takes
    folds = find_folds(model.predictor_, latents, rough)
    assert folds.n_images == (drawn <= 0).sum() >= 1
    assert folds.smallest == pytest.approx(drawn.min(), rel=1e-3)
    assert find_folds(model.predictor_, latents, 0 * rough).n_images == 0
    with caplog.at_level("WARNING"):
        tell_of_folds(folds)
    assert f"{folds.n_images} of 2 images fold, at {folds.n_voxels} voxels" in caplog.text


def test_company_does_not_matter(generator):
    space = generator.settings.space
    latents, velocity = np.zeros((3, 1)), rough_velocity(space, [11, 0.5, 9])
    together = unfolded(generator, latents, velocity)
    for n in range(3):
        alone = unfolded(generator, latents[n : n + 1], velocity[n : n + 1])
        np.testing.assert_allclose(alone[0], together[n], atol=1e-5)
