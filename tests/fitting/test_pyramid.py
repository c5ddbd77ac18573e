"""Coarse to fine: the same objective on every grid, and a fit that walks through them."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.arrays.devices import Machine
from anamorph.arrays.mapped import is_mapped
from anamorph.fitting.objective import LatentSums
from anamorph.fitting.placement import place_cohort
from anamorph.fitting.pyramid import coarse_settings, plan_levels, prolonged_state
from anamorph.fitting.state import State
from anamorph.images.coarse import CoarseImages
from anamorph.model.checks import ArgumentError
from anamorph.storage.errors import ModelFileError
from anamorph.storage.tensors import read_tensors, write_tensors
from tests import simulated
from tests.conftest import one_line, relative_error

LIKELIHOODS = ["gaussian", "bernoulli", "categorical", "poisson"]
OPTIONS = {"shape_penalty": (0.01, 0.1, 1.0, 0.1, 0.1), "n_threads": 1, "random_state": 0}


def settings_of(space, voxel_size=None):
    settings = simulated.random_settings("gaussian", space=space)
    return settings if voxel_size is None else replace(settings, voxel_size=voxel_size)


def discs(space, n_images=12, missing=0.0, seed=0):
    """Return smooth blobs that differ in place, size and brightness, (N, *space)."""
    generator = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in space), indexing="ij")
    images = []
    for _ in range(n_images):
        centre = generator.uniform(-0.3, 0.3, len(space))
        distance = sum((axis - c) ** 2 for axis, c in zip(axes, centre, strict=True))
        images.append(np.exp(-distance / generator.uniform(0.1, 0.3)))
    stack = np.asarray(images) + 0.02 * generator.standard_normal((n_images, *space))
    stack[generator.random(stack.shape) < missing] = np.nan
    return stack.astype(np.float32)


# ---- the grids


def test_iterations_are_spread_over_the_grids():
    levels = plan_levels(settings_of((48, 40)), 3, 20)
    assert [level.settings.space for level in levels] == [(12, 10), (24, 20), (48, 40)]
    assert [level.n_iter for level in levels] == [9, 18, 20]
    volumes = settings_of((48, 40, 48))
    assert [level.n_iter for level in plan_levels(volumes, 3, 20)] == [9, 18, 20]
    # Exact gradients cost more than those of one grid, unless images have poses.
    posed = plan_levels(replace(volumes, align="rigid"), 3, 20)
    assert [level.n_iter for level in posed] == [6, 13, 20]
    assert [level.n_iter for level in plan_levels(settings_of((48, 40)), 2, 5)] == [3, 5]
    assert [level.n_iter for level in plan_levels(settings_of((48, 40)), 2, 1)] == [0, 1]
    assert [level.n_iter for level in plan_levels(settings_of((48, 40)), 3, 0)] == [0, 0, 0]
    (only,) = plan_levels(settings_of((48, 40)), 1, 20)
    assert only.settings == settings_of((48, 40))


def test_gradients_are_exact_on_every_one_of_several_grids():
    settings = settings_of((48, 40))
    levels = plan_levels(settings, 3, 20)
    assert all(level.settings.differentiates_exactly for level in levels)
    # Nothing of that is stored: files and checkpoints have the settings of any fit.
    assert asdict(levels[-1].settings) == asdict(settings)
    (only,) = plan_levels(settings, 1, 20)
    assert not only.settings.differentiates_exactly


@pytest.mark.parametrize(
    ("space", "voxel_size", "n_levels"),
    [
        ((128, 96), (1.0, 1.0), 3),
        ((28, 28), (1.0, 1.0), 2),
        ((20, 20), (1.0, 1.0), 1),
        ((48, 64, 48), (1.0, 1.0, 1.0), 3),
        ((48, 48, 9), (1.0, 1.0, 6.0), 3),
    ],
)
def test_images_decide_on_the_number_of_grids(space, voxel_size, n_levels):
    assert len(plan_levels(settings_of(space, voxel_size), "auto", 20)) == n_levels


def test_more_grids_than_the_images_have_voxels_for():
    with pytest.raises(ArgumentError, match="levels must be at most 3 for images of 12 x 10") as it:
        plan_levels(settings_of((12, 10)), 5, 20)
    one_line(it)
    for wrong in (0, 1.5, "some"):
        with pytest.raises(ArgumentError, match="levels must be an integer >= 1 or 'auto'"):
            ShapeAppearanceModel(2, levels=wrong).fit(discs((12, 10)))


# ---- the same objective on every grid


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("space", [(8, 12), (4, 8, 4)])
def test_a_coarse_voxel_stands_for_those_in_its_cell(likelihood, space):
    """Where appearances are constant within cells, both grids have the same log-likelihood."""
    fine, parameters, _, images = simulated.random_problem(
        likelihood, "appearance", n_images=5, space=space, missing=0.0
    )
    coarse = coarse_settings(fine, 2)

    def blocky(fields):
        for axis in range(-len(space), 0):
            fields = np.repeat(fields[(..., slice(None, None, 2), *(slice(None),) * (-axis - 1))],
                               2, axis)  # fmt: skip
        return fields

    each_second = (..., *(slice(None, None, 2),) * len(space))
    names = ("mean", "appearance_basis")
    on_fine = replace(parameters, **{name: blocky(getattr(parameters, name)) for name in names})
    on_coarse = replace(
        parameters, **{name: getattr(parameters, name)[each_second] for name in names}
    )
    if likelihood == "poisson":
        images = blocky(images)  # the mean of ln f! is not that of the mean
    latents = np.random.default_rng(0).standard_normal((5, fine.layout.n_latents))
    values, squares = [], []
    for settings, published in ((fine, on_fine), (coarse, on_coarse)):
        cohort = place_cohort(Machine(), simulated.Stack(images), settings, range(5))
        published = replace(
            published, shape_basis=np.zeros((0, len(space), *settings.space), np.float32)
        )
        cohort.publish(published)
        cohort.restore(latents)
        values.append(cohort.mean_derivatives().scalar("log_likelihood"))
        squares.append(settings.decimation * cohort.moments()["squares"])
    assert values[1] == pytest.approx(values[0], rel=1e-5)
    if likelihood == "gaussian":  # so that the noise is that of the images, not of their means
        np.testing.assert_allclose(squares[1], squares[0], rtol=1e-5)


def test_a_state_keeps_all_but_its_fields():
    fine = simulated.random_settings("gaussian", space=(24, 20))
    coarse = coarse_settings(fine, 2)
    parameters = simulated.random_parameters(coarse)
    sums = LatentSums(5, 5 * np.eye(3), np.eye(3), 1.0)
    state = State(parameters, sums, step=0.1, objective=(1.0, 2.0), seconds=(1.0, 1.0))
    finer = prolonged_state(state, fine)
    assert finer.parameters.mean.shape == (2, 24, 20)
    assert finer.parameters.shape_basis.shape == (3, 2, 24, 20)
    assert finer.parameters.mean.dtype == finer.parameters.shape_basis.dtype == np.float32
    assert finer.level_begins == (0, 2)
    assert finer.turn is None
    assert finer.latents is sums
    assert np.array_equal(finer.parameters.latent_precision, parameters.latent_precision)
    # Penalties are in physical units, and smooth fields cost the same on both grids.
    assert relative_error(finer.parameters.basis_energy, parameters.basis_energy) < 0.2
    farthest = [np.abs(p.shape_basis).max() for p in (parameters, finer.parameters)]
    assert farthest[1] == pytest.approx(2 * farthest[0], rel=0.1)


# ---- fits


@pytest.mark.parametrize(
    ("likelihood", "space", "missing"),
    [
        ("gaussian", (24, 20), 0.0),
        ("gaussian", (23, 17), 0.3),
        ("bernoulli", (24, 20), 0.2),
        pytest.param("poisson", (24, 20), 0.0, marks=pytest.mark.slow),
        pytest.param("bernoulli", (13, 12, 9), 0.1, marks=pytest.mark.slow),
    ],
)
def test_a_fit_through_grids_ends_no_lower(caplog, likelihood, space, missing):
    images = np.clip(discs(space, missing=missing), 0, None if likelihood == "poisson" else 1)
    images = 10 * images if likelihood == "poisson" else images
    options = OPTIONS | {"likelihood": likelihood, "n_components": 3, "n_iter": 10}
    alone = ShapeAppearanceModel(**options).fit(images)
    model = ShapeAppearanceModel(**options, levels=2).fit(images)
    begin = model.origin_.level_begins[-1]
    assert begin == 8
    assert model.n_iter_ == 10
    assert model.mean_.shape == (1, *space)
    risen = alone.objective_[-1] - alone.objective_[0]
    # Objectives add up gains from where a grid begins: those of two fits do not compare.
    assert model.score(images) > alone.score(images) - 0.05 * risen / len(images)
    for steps in (model.objective_[:begin], model.objective_[begin:]):
        assert (np.diff(steps) > -1e-3 * risen).all()
    assert "do not trust" not in caplog.text  # where little is left to gain on the finest grid


def test_noise_of_images_with_gains_is_that_of_one_grid():
    """What averaging has lost of an image is as much brighter as the image is made."""
    images = discs((24, 20)) * 2 ** np.linspace(-1, 1, 12).reshape(-1, 1, 1)
    noise = []
    for levels in (1, 2):
        model = ShapeAppearanceModel(
            2, n_iter=6, levels=levels, intensity="per image", decimation=1, **OPTIONS
        ).fit(images)
        noise.append(model.noise_variance_[0])
    assert noise[1] == pytest.approx(noise[0], rel=0.2)  # gains that all share differ a little


@pytest.mark.slow
def test_label_maps_through_grids():
    labels = (discs((24, 20)) > 0.4).astype(np.uint8) + (discs((24, 20)) > 0.7)
    options = OPTIONS | {"likelihood": "categorical", "n_components": 2, "n_iter": 20}
    alone = ShapeAppearanceModel(**options).fit(labels)
    model = ShapeAppearanceModel(**options, levels=2).fit(labels)
    risen = alone.objective_[-1] - alone.objective_[0]
    # Objectives add up gains from where a grid begins: those of two fits do not compare.
    assert model.score(labels) > alone.score(labels) - 0.05 * risen / len(labels)
    np.testing.assert_allclose(model.mean_.sum(axis=0), 0, atol=1e-4)


@pytest.mark.slow
def test_poses_are_kept_from_grid_to_grid():
    generator = np.random.default_rng(3)
    y, x = np.mgrid[:32, :32] - 15.5
    shifts = generator.uniform(-5, 5, (10, 2))
    images = [np.exp(-(((y - a) / 4) ** 2 + ((x - b) / 6) ** 2)) for a, b in shifts]
    images = np.asarray(images) + 0.02 * generator.standard_normal((10, 32, 32))
    options = OPTIONS | {"n_components": 2, "n_iter": 10, "align": "translation"}
    alone = ShapeAppearanceModel(**options).fit(images)
    model = ShapeAppearanceModel(**options, levels=2).fit(images)
    for found in (alone.poses_, model.poses_):
        signs = np.sign((found * shifts).sum(axis=0))
        apart = found * signs - shifts
        assert np.abs(apart - apart.mean(axis=0)).max() < 0.5  # voxels
    risen = alone.objective_[-1] - alone.objective_[0]
    assert model.objective_[-1] > alone.objective_[-1] - 0.1 * risen


def test_progress_tells_the_grid_and_the_time_that_is_left():
    told = []
    model = ShapeAppearanceModel(2, **OPTIONS, n_iter=5, levels=2)
    model.fit(discs((16, 12)), callback=told.append)
    assert [some.level for some in told] == [1, 1, 1, 2, 2]
    assert [some.n_iter for some in told] == [5] * 5
    # Two more on the coarse grid, and two on a grid of four times as many voxels.
    assert told[0].rest == pytest.approx(2 + 2 * 4)
    assert told[-1].seconds_left == 0
    assert str(told[0]).startswith("Iteration 1 of 5, grid 1 of 2: objective ")


def test_averages_beyond_the_memory_budget_are_in_a_file():
    images = simulated.Stack(discs((24, 20), missing=0.1)[:, None])
    in_memory, in_file = (CoarseImages(images, (12, 10), budget) for budget in (2**30, 2**12))
    assert not is_mapped(in_memory.read(slice(0, 1)))
    assert is_mapped(in_file.read(slice(0, 1)))
    np.testing.assert_array_equal(in_memory.read(slice(0, 12)), in_file.read(slice(0, 12)))
    np.testing.assert_array_equal(in_memory.spread, in_file.spread)


# ---- checkpoints


class StoppedError(Exception):
    """A fit was killed."""


@pytest.mark.parametrize("n_done", [1, 3, 4])
def test_a_killed_fit_resumes_on_its_grid_with_the_same_bytes(tmp_path, n_done):
    images, path = discs((16, 12), missing=0.1), tmp_path / "checkpoint"
    model = ShapeAppearanceModel(2, **OPTIONS, n_iter=6, levels=2)

    def kill(progress):
        if progress.n_done == n_done:
            raise StoppedError

    with pytest.raises(StoppedError):
        model.fit(images, checkpoint=path, callback=kill)
    result = ShapeAppearanceModel(2, **OPTIONS, n_iter=6, levels=2).fit(images, checkpoint=path)
    expected = ShapeAppearanceModel(2, **OPTIONS, n_iter=6, levels=2).fit(images)
    assert result.origin_.level_begins == expected.origin_.level_begins == (0, 4)
    assert result.objective_ == expected.objective_
    for name in ("mean_", "appearance_basis_", "shape_basis_", "latents_", "latent_precision_"):
        assert np.array_equal(getattr(result, name), getattr(expected, name)), name


def test_a_checkpoint_is_of_one_number_of_grids(tmp_path):
    images, path = discs((16, 12)), tmp_path / "checkpoint"
    ShapeAppearanceModel(2, **OPTIONS, n_iter=2, levels=2).fit(images, checkpoint=path)
    for levels in (1, 3):
        with pytest.raises(ModelFileError, match="other images or settings"):
            ShapeAppearanceModel(2, **OPTIONS, n_iter=2, levels=levels).fit(images, checkpoint=path)


def test_more_iterations_continue_on_the_finest_grid(tmp_path):
    images, path = discs((16, 12)), tmp_path / "checkpoint"
    ShapeAppearanceModel(2, **OPTIONS, n_iter=4, levels=2).fit(images, checkpoint=path)
    model = ShapeAppearanceModel(2, **OPTIONS, n_iter=6, levels=2).fit(images, checkpoint=path)
    assert model.n_iter_ == 6
    assert model.origin_.level_begins == (0, 2)


@pytest.mark.parametrize(("n_iter", "n_done"), [(5, 5), (4, 4), (2, 4)])
def test_fewer_iterations_than_were_planned_are_told_of_the_whole_fit(
    tmp_path, caplog, n_iter, n_done
):
    """A coarse grid that is left sooner than planned is nothing to warn of."""
    images, path = discs((16, 12)), tmp_path / "fit.checkpoint"

    def stop(progress):
        if progress.n_done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ShapeAppearanceModel(2, **OPTIONS, n_iter=20, levels=2).fit(
            images, checkpoint=path, callback=stop
        )
    model = ShapeAppearanceModel(2, **OPTIONS, n_iter=n_iter, levels=2)
    model.fit(images, checkpoint=path)
    assert len(model.objective_) == n_done
    words = "was written after iteration 4, and the fit was to end after 2: the model is the one"
    assert ("was to end after" in caplog.text) == (n_done > n_iter)
    assert (words in caplog.text) == (n_done > n_iter)


@pytest.mark.parametrize("begins", ["x", [1], [0, 3, 2], [0, 1.5], []])
def test_damaged_beginnings_of_grids(tmp_path, begins):
    images, path = discs((16, 12)), tmp_path / "checkpoint"
    model = ShapeAppearanceModel(2, **OPTIONS, n_iter=1, levels=1)
    model.fit(images, checkpoint=path)
    arrays, facts = read_tensors(path, "checkpoint", 1)
    write_tensors(path, "checkpoint", 1, arrays, facts | {"level_begins": begins})
    with pytest.raises(ModelFileError, match="level_begins must be integers") as it:
        model.fit(images, checkpoint=path)
    one_line(it)


def test_a_model_file_tells_where_grids_began(tmp_path):
    model = ShapeAppearanceModel(2, **OPTIONS, n_iter=4, levels=2).fit(discs((16, 12)))
    model.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert loaded.origin_.level_begins == (0, 2)
    assert loaded.levels == 2
