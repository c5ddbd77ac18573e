"""Golden numbers on a real GPU: the tests of the processor, run on arrays that are there."""

from dataclasses import replace

import numpy as np
import pytest

from anamorph.arrays.devices import to_host
from anamorph.arrays.gpu_images import ImagesOnDevice
from anamorph.fitting.sums import Sums
from anamorph.solvers import systems
from tests import simulated
from tests.fitting import test_cohort
from tests.fitting import test_em as test_fitting
from tests.geometry import test_operators, test_shooting, test_warps
from tests.solvers import test_solve


def on_gpu(cupy, function):
    """Return a function of NumPy arrays that computes on the GPU."""

    def call(*arguments, **options):
        sent = [cupy.asarray(a) if is_field(a) else a for a in arguments]
        result = function(*sent, **options)
        return tuple(map(to_host, result)) if isinstance(result, tuple) else to_host(result)

    return call


def is_field(argument):
    return isinstance(argument, np.ndarray) and argument.ndim > 1


@pytest.mark.parametrize("name", list(test_shooting.TOLERANCE))
def test_shooting_on_the_gpu(real_gpu, monkeypatch, golden, name):
    monkeypatch.setattr(test_shooting, "shoot", on_gpu(real_gpu, test_shooting.shoot))
    test_shooting.test_displacement_is_that_of_the_reference(golden, name)
    test_shooting.test_float32_follows_the_formulas_on_golden_fields(golden, name)


@pytest.mark.parametrize("grid", ["grid2d", "grid3d"])
def test_warps_and_operators_on_the_gpu(real_gpu, monkeypatch, golden, grid):
    for name in ("pull", "push"):
        monkeypatch.setattr(test_warps, name, on_gpu(real_gpu, getattr(test_warps, name)))
    for name in ("momentum", "velocity"):
        monkeypatch.setattr(test_operators, name, on_gpu(real_gpu, getattr(test_operators, name)))
    test_warps.test_warps_are_those_of_the_reference(golden, grid)
    test_operators.test_momentum_is_that_of_the_reference(golden, grid)
    test_operators.test_velocity_is_that_of_the_reference(golden, grid)


@pytest.mark.parametrize("case", ["iso2d", "aniso2d", "aniso3d"])
def test_solves_on_the_gpu(real_gpu, monkeypatch, golden, case):
    monkeypatch.setattr(systems, "_SMALLEST_ON_DEVICE", 0)

    def solve_there(hessian, gradient, *rest, **options):
        sent = real_gpu.asarray(hessian), real_gpu.asarray(gradient)
        solution = solve_here(*sent, *rest, **options)
        return replace(solution, x=to_host(solution.x))

    solve_here = test_solve.solve
    monkeypatch.setattr(test_solve, "solve", solve_there)
    for kind, tolerance in (("velocity", 2.5e-4), ("scalar", 1.9e-4)):
        test_solve.test_golden(golden, case, kind, tolerance)


class AnswersInMemory(test_cohort.Cohort):
    """A cohort on the GPU that publishes to it and is asked from memory."""

    def __init__(self, images, *arguments, **options):
        self._host = images
        super().__init__(ImagesOnDevice(images, are_resident=True), *arguments, **options)

    def publish(self, parameters):
        super().publish(parameters.beside(self.latents))

    def _answer(self, question, *values):
        answer = super()._answer(question, *values)
        return Sums(answer.n_images, {name: to_host(f) for name, f in answer.fields.items()})


@pytest.mark.parametrize("name", list(test_cohort.GOLDEN_ERRORS))
def test_derivatives_on_the_gpu(real_gpu, monkeypatch, name):
    monkeypatch.setattr(simulated, "Cohort", AnswersInMemory)
    test_cohort.test_derivatives_are_those_of_the_reference(monkeypatch, name, has_gain=False)
    test_cohort.test_moments_are_those_of_the_reference(name)


@pytest.mark.parametrize("name", list(test_fitting.N_ITERATIONS))
def test_iterations_on_the_gpu(real_gpu, name):
    """The same twenty iterations from the golden start, on the processor and on the GPU."""
    file = simulated.load(f"em_{name}")
    settings, images = simulated.golden_settings(file), simulated.golden_images(name)
    start = np.float64(file["initial_latents"])
    objectives = []
    for place in (lambda stack: stack, lambda stack: ImagesOnDevice(stack, are_resident=True)):
        cohort = test_cohort.Cohort(
            place(simulated.Stack(images)), settings, range(len(images)), start=start
        )
        fit = test_fitting.Fit(test_fitting.LocalSites([cohort]), settings)
        states = fit.iterate(fit.start(cohort.moments(), seed=0))
        for _ in range(20):
            state = next(states)
        objectives.append(np.array(state.objective))
    rise = objectives[0].max() - objectives[0].min()
    assert np.abs(objectives[1] - objectives[0]).max() < 1e-3 * rise
