"""T: golden numbers, diagonal matrices, and an objective that does not fall."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anamorph.latents import (
    WishartPosterior,
    expected_precision,
    orthogonalising_transform,
    wishart_part,
)
from anamorph.latents.orthogonalise import _newton
from tests.conftest import GOLDEN as FOLDER
from tests.conftest import relative_error
from tests.latents.random_matrices import random_spd

GOLDEN = np.load(FOLDER / "orthogonalise.npz")
ENERGY = GOLDEN["basis_energy"]
SCATTER = GOLDEN["latent_scatter"]
COVARIANCE = GOLDEN["covariance_sum"]
N_IMAGES = int(GOLDEN["n_images"])
SEPARATE_ENERGY = GOLDEN["separate_basis_energy"]
BLOCKS = (int(GOLDEN["separate_n_appearance"]), int(GOLDEN["separate_n_shape"]))

seeds = st.integers(0, 2**32 - 1)


def transformed_energy(transform, energy):
    inverse = np.linalg.inv(transform)
    return inverse.T @ energy @ inverse


def correlations(matrix):
    """Return the off-diagonal elements as a share of the diagonal ones."""
    deviations = np.sqrt(np.diag(matrix))
    return (matrix / np.outer(deviations, deviations))[~np.eye(len(matrix), dtype=bool)]


def part_after(transform, energy, scatter, covariance, n_images, prior_dof):
    """Return the Wishart part once the latents are transformed and A follows."""
    scatter = transform @ (scatter + covariance) @ transform.T
    posterior = WishartPosterior.from_scatter(scatter, n_images, prior_dof)
    return wishart_part(posterior, scatter, transformed_energy(transform, energy), n_images)


def assert_golden(transform, prior_dof, golden_transform, golden_precision, errors):
    signs = np.sign(np.sum(transform * golden_transform, axis=1))
    scatter = transform @ (SCATTER + COVARIANCE) @ transform.T
    precision = expected_precision(scatter, N_IMAGES, prior_dof)
    assert relative_error(signs[:, None] * transform, golden_transform) < errors[0]
    assert relative_error(signs[:, None] * precision * signs, golden_precision) < errors[1]


@pytest.mark.parametrize("index", range(len(GOLDEN["nu0"])))
def test_joint_transform_is_golden(index):
    prior_dof = float(GOLDEN["nu0"][index])
    transform = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, prior_dof)
    golden = GOLDEN["transform"][index], GOLDEN["precision"][index]
    assert_golden(transform, prior_dof, *golden, errors=(1.3e-6, 1.3e-6))


def test_separate_transform_is_golden():
    prior_dof = float(GOLDEN["separate_nu0"])
    transform = orthogonalising_transform(
        SEPARATE_ENERGY, SCATTER, COVARIANCE, N_IMAGES, prior_dof, BLOCKS
    )
    golden = GOLDEN["separate_transform"], GOLDEN["separate_precision"]
    assert_golden(transform, prior_dof, *golden, errors=(1.3e-5, 2e-4))


@pytest.mark.parametrize("prior_dof", [0, 5, 16])
def test_golden_transform_raises_the_wishart_part(prior_dof):
    statistics = (ENERGY, SCATTER, COVARIANCE, N_IMAGES, prior_dof)
    transform = orthogonalising_transform(*statistics)
    assert part_after(transform, *statistics) > part_after(np.eye(5), *statistics) + 50


@settings(max_examples=25)
@given(
    seed=seeds,
    n_components=st.integers(1, 8),
    log10_conditions=st.tuples(st.floats(0, 6), st.floats(0, 6)),
    excess_dof=st.sampled_from([0, 10, 1000]),
)
def test_both_matrices_become_diagonal_and_the_scale_is_best(
    seed, n_components, log10_conditions, excess_dof
):
    generator = np.random.default_rng(seed)
    n_images, prior_dof = 50, n_components + excess_dof
    energy = random_spd(generator, n_components, log10_conditions[0])
    scatter = random_spd(generator, n_components, log10_conditions[1], scale=n_images)
    covariance = np.zeros_like(scatter)
    statistics = (energy, scatter, covariance, n_images, prior_dof)
    transform = orthogonalising_transform(*statistics)
    assert np.all(np.abs(correlations(transform @ scatter @ transform.T)) < 1e-7)
    assert np.all(np.abs(correlations(transformed_energy(transform, energy))) < 1e-7)
    # Without covariance S the transform is the best of all: no other is any better.
    best = part_after(transform, *statistics)
    for amount in (-0.1, -0.01, 0.01, 0.1):
        nudge = np.eye(n_components) + amount * random_spd(generator, n_components, 0.5)
        assert part_after(nudge @ transform, *statistics) < best


@settings(max_examples=40)
@given(
    seed=seeds,
    blocks=st.sampled_from([None, (2, 3), (1, 4)]),
    log10_conditions=st.tuples(st.floats(0, 14), st.floats(0, 14), st.floats(0, 3)),
    log10_covariance=st.floats(-3, 3),
    prior_dof=st.sampled_from([0, 5, 500]),
)
@example(  # where the scales that ZZ' alone gives go to infinity
    seed=65733,
    blocks=(2, 3),
    log10_conditions=(0.0, 9.0, 3.0),
    log10_covariance=1.0,
    prior_dof=5,
)
def test_wishart_part_is_never_worse(seed, blocks, log10_conditions, log10_covariance, prior_dof):
    generator = np.random.default_rng(seed)
    n_images = 50
    energy = random_spd(generator, 5, log10_conditions[0])
    scatter = random_spd(generator, 5, log10_conditions[1], scale=n_images)
    covariance = random_spd(generator, 5, log10_conditions[2], n_images * 10**log10_covariance)
    if blocks is not None:
        energy[: blocks[0], blocks[0] :] = energy[blocks[0] :, : blocks[0]] = 0.0
    statistics = (energy, scatter, covariance, n_images, prior_dof)
    transform = orthogonalising_transform(*statistics, blocks=blocks)
    before, after = part_after(np.eye(5), *statistics), part_after(transform, *statistics)
    assert after >= before - 1e-9 * abs(before)
    assert np.linalg.cond(transform) < 1e5


def test_transform_that_would_lower_the_wishart_part_is_refused():
    # At the best place given ZZ' + S, diagonalising ZZ' alone can only lose.
    prior_dof = 5
    best = orthogonalising_transform(
        ENERGY, SCATTER + COVARIANCE, np.zeros((5, 5)), N_IMAGES, prior_dof
    )
    energy = transformed_energy(best, ENERGY)
    scatter, covariance = (best @ matrix @ best.T for matrix in (SCATTER, COVARIANCE))
    transform = orthogonalising_transform(energy, scatter, covariance, N_IMAGES, prior_dof)
    np.testing.assert_array_equal(transform, np.eye(5))


def test_transform_does_not_depend_on_the_axes_it_starts_from():
    generator = np.random.default_rng(4)
    axes = generator.standard_normal((5, 5)) + 3 * np.eye(5)
    direct = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5)
    energy = transformed_energy(axes, ENERGY)
    scatter, covariance = (axes @ matrix @ axes.T for matrix in (SCATTER, COVARIANCE))
    moved = orthogonalising_transform(energy, scatter, covariance, N_IMAGES, 5) @ axes
    signs = np.sign(np.sum(moved * direct, axis=1))
    np.testing.assert_allclose(signs[:, None] * moved, direct, atol=1e-8)


def test_transforming_twice_changes_nothing():
    first = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5)
    energy = transformed_energy(first, ENERGY)
    scatter, covariance = (first @ matrix @ first.T for matrix in (SCATTER, COVARIANCE))
    second = orthogonalising_transform(energy, scatter, covariance, N_IMAGES, 5)
    np.testing.assert_allclose(second, np.eye(5), atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_latents_that_only_need_sorting_are_sorted(seed):
    first = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5)
    order = np.random.default_rng(seed).permutation(5)
    shuffled = first[order]
    energy = transformed_energy(shuffled, ENERGY)
    scatter, covariance = (shuffled @ matrix @ shuffled.T for matrix in (SCATTER, COVARIANCE))
    transform = orthogonalising_transform(energy, scatter, covariance, N_IMAGES, 5)
    np.testing.assert_allclose(transform @ np.eye(5)[order], np.eye(5), atol=1e-8)


@settings(max_examples=100)
@given(
    seed=seeds,
    n_components=st.integers(1, 8),
    log10_condition=st.floats(0, 10),
    log10_energies=st.lists(st.floats(-6, 6), min_size=8, max_size=8),
)
def test_scales_balance_energy_and_scatter_for_any_coupling(
    seed, n_components, log10_condition, log10_energies
):
    generator = np.random.default_rng(seed)
    coupling = random_spd(generator, n_components, log10_condition)
    energy = 10 ** np.array(log10_energies[:n_components])
    scales = _newton(energy, coupling, np.exp(generator.uniform(-4, 4, n_components)))
    assert np.all(scales > 0)
    latent_terms = np.outer(scales, scales) * coupling
    tolerance = 1e-9 * np.abs(latent_terms).sum(axis=1)
    assert np.all(np.abs(latent_terms.sum(axis=1) - energy / scales**2) <= tolerance)


def test_largest_entry_of_each_row_is_positive():
    transform = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5)
    assert np.all(transform.max(axis=1) == np.abs(transform).max(axis=1))


def test_separate_transform_does_not_mix_blocks():
    transform = orthogonalising_transform(SEPARATE_ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5, BLOCKS)
    first = slice(0, BLOCKS[0]), slice(0, BLOCKS[0])
    second = slice(BLOCKS[0], None), slice(BLOCKS[0], None)
    assert np.all(transform[first[0], second[1]] == 0)
    assert np.all(transform[second[0], first[1]] == 0)
    scatter = transform @ SCATTER @ transform.T
    energy = transformed_energy(transform, SEPARATE_ENERGY)
    for block in (first, second):
        assert np.all(np.abs(correlations(scatter[block])) < 1e-12)
        assert np.all(np.abs(correlations(energy[block])) < 1e-12)


@pytest.mark.parametrize("blocks", [(5,), (0, 5), (5, 0)])
def test_one_block_is_the_joint_case(blocks):
    joint = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5)
    one = orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5, blocks)
    np.testing.assert_array_equal(one, joint)


def test_nothing_to_do_without_bases_or_latents():
    nothing = np.zeros((5, 5))
    for energy, scatter in [(nothing, SCATTER), (ENERGY, nothing), (nothing, nothing)]:
        transform = orthogonalising_transform(energy, scatter, COVARIANCE, N_IMAGES, 5)
        np.testing.assert_array_equal(transform, np.eye(5))


def dead_mode_case(dead_latents, dead_bases):
    """Return bases (K, M), latents (N, K) and S, in which the last modes are dead."""
    generator = np.random.default_rng(7)
    n_components, n_images = 6, 60
    bases = generator.standard_normal((n_components, 100)) / 10
    latents = generator.standard_normal((n_images, n_components)) @ (
        np.eye(n_components) + 0.3 * generator.standard_normal((n_components, n_components))
    )
    bases[n_components - dead_bases :] = 0.0
    latents[:, n_components - dead_latents :] = 0.0
    uncertainty = np.full(n_components, 0.05)
    uncertainty[n_components - max(dead_bases, dead_latents) :] = 1.0
    return bases, latents, np.diag(n_images * uncertainty)


@pytest.mark.parametrize("prior_dof", [0, 6, 100])
@pytest.mark.parametrize("dead", [(0, 2), (2, 0), (2, 2), (1, 2), (2, 1)])
def test_dead_modes_leave_the_live_ones_orthogonal(dead, prior_dof):
    bases, latents, covariance = dead_mode_case(*dead)
    energy, scatter = bases @ bases.T, latents.T @ latents
    statistics = (energy, scatter, covariance, len(latents), prior_dof)
    transform = orthogonalising_transform(*statistics)
    assert part_after(transform, *statistics) > part_after(np.eye(6), *statistics)
    assert np.linalg.cond(transform) < 1e5
    live = slice(0, 6 - max(dead)), slice(0, 6 - max(dead))
    assert np.all(np.abs(correlations((transform @ scatter @ transform.T)[live])) < 1e-5)
    assert np.all(np.abs(correlations(transformed_energy(transform, energy)[live])) < 1e-5)


@pytest.mark.parametrize("dead", [(0, 0), (0, 2), (2, 0), (2, 2)])
def test_images_are_kept_in_single_precision(dead):
    bases, latents, covariance = dead_mode_case(*dead)
    transform = orthogonalising_transform(
        bases @ bases.T, latents.T @ latents, covariance, len(latents), 6
    )
    assert np.abs(transform - np.eye(6)).max() > 0.1
    new_bases = (np.linalg.inv(transform).T @ bases).astype(np.float32)
    new_latents = (latents @ transform.T).astype(np.float32)
    assert relative_error(new_latents @ new_bases, latents @ bases) < 1e-5


def test_condition_is_bounded_where_dead_bases_meet_live_latents():
    energy = np.diag([1.0, 1e-14])
    scatter = np.diag([1e-14, 1.0])
    transform = orthogonalising_transform(energy, scatter, np.zeros((2, 2)), 50, 2)
    assert 1e3 < np.linalg.cond(transform) < 2e4


def test_scales_that_go_to_infinity_are_refused():
    # Found by chance: with this S, ZZ' alone asks for ever larger scales, and as the bases cost
    # much, even those would raise the Wishart part.
    generator = np.random.default_rng(65733)
    energy = 100 * random_spd(generator, 5, 0.0)
    scatter = random_spd(generator, 5, 9.0, scale=50)
    covariance = random_spd(generator, 5, 3.0, scale=500)
    statistics = (energy, scatter, covariance, 50, 5)
    transform = orthogonalising_transform(*statistics, blocks=(2, 3))
    assert part_after(transform, *statistics) > part_after(np.eye(5), *statistics)
    assert np.linalg.cond(transform) < 1e5


def test_a_block_without_bases_is_kept_finite():
    energy = SEPARATE_ENERGY.copy()
    energy[: BLOCKS[0]] = 0.0
    statistics = (energy, SCATTER, COVARIANCE, N_IMAGES, 5)
    transform = orthogonalising_transform(*statistics, blocks=BLOCKS)
    assert part_after(transform, *statistics) > part_after(np.eye(5), *statistics)
    assert np.linalg.cond(transform) < 1e5


def test_impossible_input_is_refused():
    bad = np.full((5, 5), np.nan)
    for arguments in [
        (bad, SCATTER, COVARIANCE),
        (ENERGY, bad, COVARIANCE),
        (ENERGY, SCATTER, bad),
    ]:
        with pytest.raises(ValueError, match="must be finite"):
            orthogonalising_transform(*arguments, N_IMAGES, 5)
    with pytest.raises(ValueError, match=r"same size, got \[5, 4, 5\]"):
        orthogonalising_transform(ENERGY, np.eye(4), COVARIANCE, N_IMAGES, 5)
    for blocks in [(2, 2), (-1, 6)]:
        with pytest.raises(ValueError, match="blocks must add up to 5 latents, got"):
            orthogonalising_transform(ENERGY, SCATTER, COVARIANCE, N_IMAGES, 5, blocks)
    with pytest.raises(ValueError, match="prior_dof must be 0"):
        orthogonalising_transform(np.zeros((5, 5)), SCATTER, COVARIANCE, N_IMAGES, 2)
