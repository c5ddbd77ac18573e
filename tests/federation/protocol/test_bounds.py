"""Bounds follow from what everybody knows, and leave honest images alone."""

from dataclasses import replace

import numpy as np
import pytest

from anamorph.federation.protocol.answers import AnswerSchema
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.questions import NORMS, answer_shapes
from anamorph.fitting.sums import Sums
from tests import simulated


def test_bounds_of_derivatives_grow_with_the_precision_of_the_noise():
    """One iteration may raise it tenfold, and derivatives of all images with it."""
    settings, parameters, *_ = simulated.random_problem("gaussian")
    bounds = Bounds(settings, 64.0)
    squares = dict(zip(NORMS, (np.array(10 * 4.0), np.array(10 * 9.0)), strict=True))
    total = Sums(10, {"log_likelihood": np.array(-100.0)} | squares)
    learnt = bounds.learn("shape_derivatives", total, parameters)
    assert set(learnt.fields) == {"log_likelihood"}
    before = bounds.limits("shape_derivatives", parameters)
    assert before.gradient == pytest.approx(10 * 2.0)
    assert before.hessian == pytest.approx(10 * 3.0)
    sharper = replace(parameters, noise_precision=16 * parameters.noise_precision)
    after = bounds.limits("shape_derivatives", sharper)
    assert after.gradient == pytest.approx(16 * before.gradient)
    assert after.hessian == pytest.approx(16 * before.hessian)


def test_the_background_is_part_of_the_log_likelihood_of_posed_images():
    settings, parameters, *_ = simulated.random_problem("gaussian", align="rigid")
    around = [replace(parameters, background=np.full((2, 2), level)) for level in (1.0, 1e4)]
    limits = [Bounds(settings, 8.0).limits("update_poses", one) for one in around]
    assert limits[1].log_likelihood > 100 * limits[0].log_likelihood
    assert limits[1].most_log_likelihood > limits[0].most_log_likelihood


def test_gains_raise_what_a_perfect_model_may_have():
    settings, parameters, *_ = simulated.random_problem("gaussian")
    of_gains = replace(settings, intensity="per image")
    plain, more = (Bounds(one, 8.0).limits("moments", parameters) for one in (settings, of_gains))
    n_numbers = 2 * 12 * 10
    gained = more.most_log_likelihood - plain.most_log_likelihood
    assert gained == pytest.approx(n_numbers * np.log(10 * 8.0))  # ten times the range
    assert (more.gradient, more.hessian) == (plain.gradient, plain.hessian)


@pytest.mark.parametrize("question", ["border_moments", "posed_moments"])
def test_moments_of_posed_images_have_bounds_that_images_reach(question):
    """Every image is as bright as can be, and its voxels are at the border or in one place."""
    settings = simulated.random_settings("gaussian", align="similarity")
    bounds, arguments = Bounds(settings, 8.0), {"factors": (2, 2)}
    schema = AnswerSchema(answer_shapes(question, settings, arguments))
    limits = bounds.limits(question, None)
    parameters = simulated.random_parameters(settings)
    poses = np.array([[0.0, 0.0, 0.0, -1.0]])  # smaller by e
    cohort = simulated.cohort_with(
        settings, parameters, np.zeros((1, 3)), np.full((1, 2, 12, 10), 8.0, np.float32)
    )
    cohort.poses = poses
    given = {} if question == "border_moments" else arguments
    sums = cohort.answer(question, **given)
    bounds.check_total(question, limits, sums, 1)
    of_fields = bounds.of_fields(question, limits, schema)
    for name in ("count", "total", "squares"):
        assert sums[name].max() <= of_fields[name]
    if question == "border_moments":
        assert sums["count"][0] == of_fields["count"] == 40
        assert sums["total"][0] == of_fields["total"]
    else:
        assert sums["count"].max() > 2  # several voxels are together
