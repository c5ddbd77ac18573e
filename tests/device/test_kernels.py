"""What kernels of a GPU compute, beside what those of the processor do."""

from pathlib import Path

import numpy as np
import pytest

import anamorph
from anamorph.arrays.devices import to_host
from anamorph.geometry import momentum, pull, push, shoot, velocity
from anamorph.geometry.adjoint import RecordedPath
from anamorph.geometry.operators import field_momentum
from anamorph.kernels.compile import sources
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.generator import Generator
from anamorph.solvers import solve_field, solve_velocity, systems
from tests import simulated
from tests.conftest import relative_error

PENALTY = (0.01, 0.1, 1.0, 0.2, 0.3)
every_space = pytest.mark.parametrize("space", [(6, 7), (5, 4, 6), (1, 5), (3, 2, 4)])
N_IMAGES = 9  # of which plans of Fourier transforms make ten


def random_fields(space, n_components, seed=0, n_images=N_IMAGES):
    shape = (n_images, n_components, *space)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_kernels_are_compiled_anew_when_any_of_their_files_changes():
    package = Path(anamorph.__file__).parent
    marks = "\n@device_", "\n@kernel", "\n@formula", "\n@formula", "\n@per_segment"
    texts = {path: path.read_text() for path in package.rglob("*.py")}
    compiled = {path for path, text in texts.items() if any(mark in text for mark in marks)}
    assert {path.parent.name for path in compiled} >= {"cpu", "cuda", "formulas", "likelihoods"}
    assert compiled <= set(sources())


def test_another_process_may_replace_a_compiled_kernel_while_it_is_read(real_gpu, monkeypatch):
    from anamorph.kernels.cuda import stencils

    monkeypatch.setattr(systems, "_SMALLEST_ON_DEVICE", 0)
    hessian = real_gpu.ones((N_IMAGES, 2, 6, 7), np.float32)
    gradient = real_gpu.asarray(random_fields((6, 7), 2))
    expected = to_host(solve_velocity(hessian, gradient, PENALTY, (1.0, 1.0)).x)
    read, replaced = Path.read_text, []

    def read_then_replace(path, *arguments, **options):
        code = read(path, *arguments, **options)
        if path.suffix == ".ptx" and not replaced:
            replaced.append((path, code))
            path.write_text(code.replace(".entry ", ".entry other_"))
        return code

    monkeypatch.setattr(stencils._apply_operator, "_compiled", {})
    monkeypatch.setattr(Path, "read_text", read_then_replace)
    try:
        again = to_host(solve_velocity(hessian, gradient, PENALTY, (1.0, 1.0)).x)
    finally:
        for path, code in replaced:
            path.write_text(code)
    assert replaced
    assert np.array_equal(again, expected)


@every_space
def test_warps(gpu, space):
    images, displacement = random_fields(space, 3), 3 * random_fields(space, len(space), 1)
    for warp in (pull, push):
        result = warp(gpu.asarray(images), gpu.asarray(displacement))
        assert relative_error(result.get(), warp(images, displacement)) < 1e-6


def test_warps_of_what_is_not_finite_are_not_finite(real_gpu):
    displacement = np.zeros((1, 2, 5, 4), np.float32)
    displacement[0, 0, 2, 1], displacement[0, 1, 3, 3] = np.nan, np.inf
    ones = real_gpu.ones((1, 1, 5, 4), np.float32)
    pulled = pull(ones, real_gpu.asarray(displacement)).get()
    assert np.isnan(pulled).sum() == 2


@every_space
def test_operators(gpu, space):
    field = random_fields(space, len(space))
    for operator in (momentum, velocity):
        result = operator(gpu.asarray(field), PENALTY, (1.5, 0.7, 2.0)[: len(space)])
        assert (
            relative_error(result.get(), operator(field, PENALTY, (1.5, 0.7, 2.0)[: len(space)]))
            < 1e-6
        )
    result = field_momentum(gpu.asarray(field), PENALTY[:3], (1.0,) * len(space))
    assert (
        relative_error(result.get(), field_momentum(field, PENALTY[:3], (1.0,) * len(space))) < 1e-6
    )


@every_space
def test_shooting_with_short_and_long_steps(gpu, space):
    v = velocity(random_fields(space, len(space)), PENALTY)
    largest = np.abs(v).max(axis=tuple(range(1, v.ndim)), keepdims=True)
    wanted = np.linspace(1, 12, N_IMAGES).reshape(largest.shape)  # up to four voxels per step
    v = (v * wanted / largest).astype(np.float32)
    expected = shoot(v, PENALTY, n_steps=3, return_velocity=True)
    found = shoot(gpu.asarray(v), PENALTY, n_steps=3, return_velocity=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert relative_error(ours.get(), theirs) < 1e-5


@every_space
def test_adjoint_shooting_with_short_and_long_steps(gpu, space):
    v = velocity(random_fields(space, len(space), n_images=3), PENALTY)
    largest = np.abs(v).max(axis=tuple(range(1, v.ndim)), keepdims=True)
    v = (v * np.array([1, 2.5, 7]).reshape(largest.shape) / largest).astype(np.float32)
    covector, which = random_fields(space, len(space), 1, n_images=3), np.array([2, 0])
    found = []
    for place in (np.asarray, gpu.asarray):
        path = RecordedPath(place(v), PENALTY, (1.5, 0.7, 2.0)[: len(space)], 3)
        found.append(
            [
                path.displacement,
                path.differentiate(place(covector)),
                path.differentiate(place(covector[which]), place(which)),
            ]
        )
    for theirs, ours in zip(*found, strict=True):
        assert relative_error(ours.get(), theirs) < 2e-5


@pytest.mark.parametrize(
    ("space", "is_packed", "most_numbers"),
    [((7, 5), False, 1000), ((3, 3, 4), True, 1000), ((4, 5), True, 60)],  # the last one by one
)
def test_solves(gpu, monkeypatch, space, is_packed, most_numbers):
    monkeypatch.setattr(systems, "_SMALLEST_ON_DEVICE", 0)
    monkeypatch.setattr(systems, "_MOST_NUMBERS", most_numbers)
    d = len(space)
    root = random_fields(space, d * d, n_images=2).reshape(2, d, d, *space)
    full = np.einsum("nij...,nkj...->nik...", root, root)
    pairs = [(i, i) for i in range(d)]
    pairs += [(i, j) for i in range(d) for j in range(i + 1, d)] if is_packed else []
    hessian = np.stack([full[:, i, j] for i, j in pairs], axis=1)
    gradient = random_fields(space, d, 1, n_images=2)
    for solver, penalty in ((solve_velocity, PENALTY), (solve_field, PENALTY[:3])):
        expected = solver(hessian, gradient, penalty, (1.0,) * d, weight=(1.0, 3.0))
        found = solver(
            gpu.asarray(hessian), gpu.asarray(gradient), penalty, (1.0,) * d, weight=(1.0, 3.0)
        )
        assert found.converged
        assert np.array_equal(found.n_cycles, expected.n_cycles)
        assert relative_error(found.x.get(), expected.x) < 1e-5


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *((name, "joint") for name in sorted(LIKELIHOODS)),
        *(("bernoulli", layout) for layout in ("separate", "shape", "appearance")),
    ],
)
def test_derivatives(gpu, name, layout):
    settings, parameters, latents, images = simulated.random_problem(
        name, layout, n_images=3, space=(4, 5), decimation=0.7, n_steps=2
    )
    results = []
    for place in (np.asarray, gpu.asarray):
        generator = Generator(settings, parameters.beside(place([0.0])))
        z, f = place(latents), place(images)
        appearance, displacement = generator.appearance(z), generator.displacement(z)
        derivatives = generator.derivatives(appearance, displacement, f)
        found = [
            generator.log_likelihood(appearance, displacement, f),
            *(derivatives.log_likelihood, derivatives.gradient, derivatives.hessian),
            *generator.latent_derivatives(appearance, derivatives),
            generator.expected_images(z),
        ]
        if settings.layout.n_shape:
            found += generator.shape_derivatives(appearance, derivatives)
        results.append([to_host(item) for item in found])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert relative_error(ours, theirs) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(LIKELIHOODS))
def test_exact_derivatives(gpu, monkeypatch, name):
    monkeypatch.setattr("anamorph.model.generator._MOST_GUESSES", 3)  # each takes a simulation long
    settings, parameters, latents, images = simulated.random_problem(
        name, n_images=3, space=(4, 5), decimation=0.7, n_steps=2
    )
    results = []
    for place in (np.asarray, gpu.asarray):
        generator = Generator(settings, parameters.beside(place([0.0])))
        z, f = place(latents), place(images)
        appearance, path = generator.appearance(z), generator.record(z)
        warped = generator.warped_derivatives(appearance, path.displacement, f)
        which = place(np.array([2, 0]))
        hessian = generator.latent_derivatives(
            appearance, generator.pushed(warped, path.displacement)
        )[1] + generator.prior_of(z)
        found = [
            generator.exact_gradient(path, appearance, warped.gradient, which),
            *generator.tangent_derivatives(z, hessian, f),
            generator.guesses.regressed(f),
        ]
        results.append([to_host(item) for item in found])
    for ours, theirs in zip(results[1], results[0], strict=True):
        tolerance = 3e-4 * np.abs(theirs).max()  # a regression may find nothing, on either
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
