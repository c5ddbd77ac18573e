"""The metric of a descent: it learns what steps show, and stays positive definite."""

import numpy as np

from anamorph.model.descent import corrected_metric


def random_metrics(rng, n_images, n_latents):
    roots = rng.standard_normal((n_images, n_latents, n_latents))
    return roots @ roots.swapaxes(1, 2) + np.eye(n_latents)


def test_a_metric_explains_the_change_of_the_gradient():
    rng = np.random.default_rng(0)
    metric, truth = random_metrics(rng, 5, 4), random_metrics(rng, 5, 4)
    step = rng.standard_normal((5, 4))
    change = (truth @ step[..., None])[..., 0]
    change += 0.3 * (metric @ step[..., None])[..., 0]  # enough for no damping
    found = corrected_metric(metric, step, change)
    assert np.allclose((found @ step[..., None])[..., 0], change)
    assert np.allclose(found, found.swapaxes(1, 2))


def test_a_metric_stays_positive_definite_whatever_it_is_told():
    rng = np.random.default_rng(1)
    metric = random_metrics(rng, 50, 3)
    for _ in range(20):
        step, change = rng.standard_normal((2, 50, 3))
        metric = corrected_metric(metric, step, 3 * change)
    assert np.linalg.eigvalsh(metric).min() > 0


def test_no_step_teaches_nothing():
    metric = random_metrics(np.random.default_rng(2), 3, 4)
    assert np.array_equal(corrected_metric(metric, np.zeros((3, 4)), np.ones((3, 4))), metric)


def test_enough_steps_teach_the_hessian_of_a_quadratic_function():
    rng = np.random.default_rng(3)
    truth, metric = random_metrics(rng, 1, 5), np.eye(5)[None]
    for _ in range(60):
        step = rng.standard_normal((1, 5))
        metric = corrected_metric(metric, step, (truth @ step[..., None])[..., 0])
    assert np.allclose(metric, truth, rtol=0.05, atol=0.05 * truth.max())
