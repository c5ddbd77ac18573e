"""The driver: it starts or resumes, writes every state, shows progress, regroups, and ends."""

import numpy as np
import pytest

from anamorph.fitting.cohort import Cohort
from anamorph.fitting.em import Fit
from anamorph.fitting.run import Ending, run_fit
from anamorph.fitting.sites import LocalSites
from tests import simulated


class Memory:
    """Checkpoints that are kept in memory, with the latents that go with them."""

    def __init__(self, cohort):
        self.cohort, self.states, self.latents = cohort, [], None

    def __str__(self):
        return "memory"

    def read(self):
        if not self.states:
            return None
        self.cohort.restore(self.latents)
        return self.states[-1]

    def write(self, state):
        self.states.append(state)
        self.latents = self.cohort.latents_before_turn


@pytest.fixture
def fit():
    settings, _, _, images = simulated.random_problem("gaussian", n_images=9)
    cohort = Cohort(simulated.Stack(images), settings, range(9))
    return Fit(LocalSites([cohort]), settings)


def test_a_fit_is_written_and_told_after_every_iteration(fit):
    told, memory = [], Memory(fit.sites.cohorts[0])
    state = run_fit(fit, 0, Ending(3, None), tell=told.append, checkpoints=memory)
    assert [len(kept.objective) for kept in memory.states] == [0, 1, 2, 3]
    assert [(some.n_done, some.n_iter, some.n_images) for some in told] == [
        (1, 3, 9), (2, 3, 9), (3, 3, 9),
    ]  # fmt: skip
    assert memory.states[-1] is state


def test_a_fit_that_fails_resumes_with_the_same_numbers(fit):
    expected = run_fit(fit, 0, Ending(4, None), tell=str)
    latents = fit.sites.latents
    memory = Memory(fit.sites.cohorts[0])

    def fail_once(state):
        if len(state.objective) == 2 and len(memory.states) == 3:
            memory.states.append(state)
            raise ConnectionError
        return state

    with pytest.raises(ConnectionError):
        run_fit(fit, 0, Ending(4, None), tell=str, checkpoints=memory, regroup=fail_once)
    fit.sites.restore(np.zeros_like(latents))
    state = run_fit(fit, 0, Ending(4, None), tell=str, checkpoints=memory, regroup=fail_once)
    assert state.objective == expected.objective
    assert np.array_equal(fit.sites.latents, latents)


def test_a_finished_fit_asks_for_nothing_but_its_turn(fit, caplog):
    memory = Memory(fit.sites.cohorts[0])
    state = run_fit(fit, 0, Ending(2, None), tell=str, checkpoints=memory)
    latents = fit.sites.latents
    again = run_fit(fit, 0, Ending(1, None), tell=pytest.fail, checkpoints=memory)
    assert again is state
    assert np.array_equal(fit.sites.latents, latents)
    assert "memory was written after iteration 2, and the fit was to end after 1" in caplog.text


def test_a_fit_continues_from_the_state_that_regrouping_returns(fit):
    seen = []

    def regroup(state):
        seen.append(len(state.objective))
        return fit.regroup(state) if len(state.objective) == 1 else state

    state = run_fit(fit, 0, Ending(3, None), tell=str, regroup=regroup)
    assert seen == [0, 1, 2]
    assert np.diff(state.objective).min() > 0


def test_more_latents_than_images_less_one(fit):
    cohort = fit.sites.cohorts[0]
    few = Cohort(simulated.Stack(cohort.images.array[:2]), cohort.settings, range(2))
    with pytest.raises(ValueError, match="less one, got 2 for 2 images"):
        run_fit(Fit(LocalSites([few]), cohort.settings), 0, Ending(1, None), tell=str)


@pytest.mark.parametrize(
    ("objective", "tol", "is_reached"),
    [
        ([], None, False),
        ([1.0, 2.0], None, False),
        ([1.0, 2.0, 2.0], None, True),
        ([1.0, 2.0], 0.1, False),
        ([1.0, 1.0], 0.0, True),
    ],
)
def test_endings(objective, tol, is_reached):
    assert Ending(3, tol).is_reached(objective) == is_reached
