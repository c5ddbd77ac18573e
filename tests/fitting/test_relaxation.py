"""The penalty of shape begins firm and relaxes, where images have poses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anamorph.datasets import digits
from anamorph.fitting import em, relaxation
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.em import Fit
from anamorph.fitting.regularisation import Regularisation
from anamorph.fitting.relaxation import Relaxation
from anamorph.fitting.sites import LocalSites
from anamorph.likelihoods import LIKELIHOODS
from tests.simulated import Stack, random_settings


@pytest.mark.parametrize("n_iter", [1, 2, 3, 8, 20, 60])
def test_the_last_iteration_has_the_penalty_that_was_asked_for(n_iter):
    firmness = [Relaxation(n_iter).firmness(n) for n in range(n_iter)]
    assert firmness[-1] == 1
    assert firmness == sorted(firmness, reverse=True)
    if n_iter > 1:
        assert firmness[0] == relaxation._FIRMEST


def test_fits_without_poses_are_those_of_the_paper():
    plain, posed = (random_settings("categorical", align=align) for align in ("none", "rigid"))
    assert not Relaxation.of(plain, 20).is_on
    assert Relaxation.of(plain, 20).firmness(0) == 1
    assert Relaxation.of(posed, 20).is_on
    assert not Relaxation.of(posed, 0).is_on
    with_noise = replace(posed, likelihood_name="gaussian")
    assert not Relaxation.of(with_noise, 20).is_on


@pytest.fixture(scope="module")
def problem():
    """Return settings and images (N, 1, *space) of handwritten digits."""
    images, labels = digits()
    penalties = LIKELIHOODS["bernoulli"].default_penalties
    settings = random_settings("bernoulli", n_components=3, space=(14, 14), n_channels=1)
    settings = replace(
        settings, align="translation", **{f"{name}_penalty": penalties[name] for name in penalties}
    )
    small = images[labels == 4][:12].reshape(12, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    return settings, small[:, None].astype(np.float32)


def states(problem, n_iter):
    """Return a fit and its states, before and after each iteration."""
    settings, images = problem
    sites = LocalSites([Cohort(Stack(images), settings, range(len(images)))])
    fit = Fit(sites, settings, relaxation=Relaxation(n_iter))
    found = [fit.start(sites.ask("moments"), 0)]
    iterations = fit.iterate(found[0])
    found += [next(iterations) for _ in range(n_iter)]
    return fit, found


def test_the_objective_never_falls_while_the_penalty_relaxes(problem):
    fit, (start, *found) = states(problem, 6)
    objective = found[-1].objective
    assert np.diff(objective).min() > -1e-3
    assert start.objective == ()
    assert np.abs(start.parameters.appearance_basis).max() > 0
    assert not start.parameters.shape_basis.any()
    assert found[0].firmness == relaxation._FIRMEST
    assert found[-1].firmness == 1
    energy = Regularisation(fit.settings).basis_energy(found[-1].parameters)
    np.testing.assert_allclose(found[-1].parameters.basis_energy, energy, rtol=1e-3, atol=1e-6)


def test_a_fit_that_does_more_iterations_than_planned_gets_no_firmer(problem):
    _, (*_, last) = states(problem, 2)
    fit = Fit(LocalSites([]), problem[0], relaxation=Relaxation(20))
    assert Relaxation(20).firmness(2) > 1
    assert fit._relax(last).firmness == last.firmness == 1
    assert fit.regularisation.firmness == 1


def test_the_mean_is_learnt_where_the_mean_pose_cannot_be_removed(problem, monkeypatch):
    """Moving the mean blurs it; a step that fails because of it must not cost the mean's own."""
    monkeypatch.setattr(em, "_FARTHEST_MEAN_POSE", 0.0)
    monkeypatch.setattr(em, "moved_mean", lambda settings, old, pose: np.zeros_like(old.mean))
    fit, (start, end) = states(problem, 1)
    assert np.abs(end.parameters.mean - start.parameters.mean).max() > 1e-3
    latents = fit.sites.latents
    np.testing.assert_allclose(latents.mean(axis=0), 0, atol=1e-5)


def test_small_mean_poses_leave_the_mean_where_it_is(problem, monkeypatch):
    def refuse(*_):
        pytest.fail("the mean was interpolated")

    monkeypatch.setattr(em, "moved_mean", refuse)
    fit, _ = states(problem, 2)
    poses = fit.sites.poses.mean(axis=0)
    assert fit.settings.frame.motion(poses[None])[0] < em._FARTHEST_MEAN_POSE
