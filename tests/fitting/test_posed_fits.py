"""Fits of images with poses: modes without warps come first, and the mean stays sharp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anamorph.datasets import digits
from anamorph.fitting import em
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.em import Fit
from anamorph.fitting.regularisation import Regularisation
from anamorph.fitting.sites import LocalSites
from anamorph.likelihoods import LIKELIHOODS
from tests.simulated import Stack, random_settings


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
    fit = Fit(sites, settings)
    found = [fit.start(sites.ask("moments"), 0)]
    iterations = fit.iterate(found[0])
    found += [next(iterations) for _ in range(n_iter)]
    return fit, found


def test_modes_without_warps_come_first_and_the_objective_never_falls(problem):
    fit, (start, *found) = states(problem, 6)
    objective = found[-1].objective
    assert np.diff(objective).min() > -1e-3
    assert start.objective == ()
    assert np.abs(start.parameters.appearance_basis).max() > 0
    assert not start.parameters.shape_basis.any()
    energy = Regularisation(fit.settings).basis_energy(found[-1].parameters)
    np.testing.assert_allclose(found[-1].parameters.basis_energy, energy, rtol=1e-3, atol=1e-6)


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
