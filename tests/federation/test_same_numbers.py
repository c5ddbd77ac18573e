"""Across sites the fit gives the numbers of one machine, and only sums leave a site."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from anamorph.federation import Terms
from anamorph.federation.masking.field import PRIME
from anamorph.federation.masking.fixed_point import from_fixed_point
from anamorph.federation.protocol.questions import NORMS, answer_shapes
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.sums import FIELDS, Move, Sums
from tests import simulated
from tests.conftest import relative_error
from tests.federation.conftest import LENIENT, OPEN, Wire, fit, model, objective_error, sites, stack

# A prime number of images at every site: no array of one number per image has their shape.
N_PRIME = 33
SIZES = {"site1": 11, "site2": 11, "site3": 11}

ENVELOPE = {
    "describe": {"format", "voxel_size", "affine", "pad", "suffix", "holdings"},
    "join": {"step", "iterations"},
    "restore": {"offer"},
    "ask": {"digest", "signature", "verdict"},
    "block": {"block"},
    "total": {"number", "signature"},
    "reveal": {"values", "signature", "offer"},
    "settle": {"verdict"},
    "keep": {"iterations"},
}


def test_sums_are_those_of_one_machine(tmp_path, pooled):
    result, _ = fit(sites(tmp_path, OPEN), terms=Terms(is_secure=False))
    assert objective_error(result, pooled) < 1e-5
    assert relative_error(result.mean_, pooled.mean_) < 1e-4
    assert not hasattr(result, "latents_")


def test_masked_sums_are_those_of_one_machine(tmp_path, pooled):
    result, _ = fit(sites(tmp_path))
    assert objective_error(result, pooled) < 1e-4
    assert relative_error(result.mean_, pooled.mean_) < 1e-4


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_every_likelihood_and_layout(tmp_path, likelihood):
    from anamorph.federation.simulate import simulated_sites, split_images
    from anamorph.images.collection import open_images

    *_, images = simulated.random_problem(likelihood, n_images=11, missing=0.1)
    axis = None if likelihood == "bernoulli" else 1
    images = images[:, 0] if axis is None else images
    options = {"likelihood": likelihood, "latents": "separate", "n_components": (1, 1), "n_iter": 2}
    expected = model(**options, channel_axis=axis).fit(images)
    collection = open_images(images, likelihood, axis)
    transport = simulated_sites(collection, split_images(11, 3), tmp_path, LENIENT, n_threads=1)
    result, _ = fit(transport, **options, channel_axis=axis)
    assert objective_error(result, expected) < 1e-4
    assert result.image_format_ == expected.image_format_


def test_a_federation_has_one_grid(tmp_path):
    with pytest.raises(ValueError, match=r"levels must be 1 in a federation, .* got 2"):
        fit(sites(tmp_path), levels=2)


def test_an_iteration_asks_at_most_six_questions(tmp_path):
    wire = Wire()
    _, result = fit(sites(tmp_path, watch=wire), n_iter=4)
    asked = {sent["step"] for _, sent, _ in wire.messages() if sent["do"] == "ask"}
    assert len(asked) == result.n_questions
    before = 3 + 1  # to start with, and the first derivatives
    assert result.n_questions - before <= 6 * 4


def test_only_the_fields_of_sums_leave_a_site(tmp_path):
    wire = Wire()
    fit(sites(tmp_path, OPEN, N_PRIME, watch=wire), terms=Terms(is_secure=False))
    settings, shapes, exponents = None, {}, {}
    for name, sent, answered in wire.messages():
        assert answered.keys() == ENVELOPE[sent["do"]]
        if sent["do"] == "join":
            settings = _settings(sent)
        if sent["do"] == "ask":
            shapes = answer_shapes(sent["question"], settings, {})
            fields = tuple(field for field in shapes if field not in NORMS)
            assert fields == FIELDS[sent["question"]]
            assert not any(SIZES[name] in shape for shape in shapes.values())
            exponents = sent["exponents"]
            assert len(answered["digest"]) == 32
            # None of what is asked comes from the coordinator: sites know it.
            assert sent["arguments"] == {}
        if sent["do"] == "block":
            # Not one number more than the fields and the number of images.
            assert answered["block"].size == 1 + sum(math.prod(s) for s in shapes.values())
            first = from_fixed_point(answered["block"][:1], exponents["n_images"])
            assert first == SIZES[name]
        if sent["do"] == "reveal":
            assert len(answered["values"]) == 2
            assert answered["offer"].keys() == {"key", "commitment", "signature"}


def test_bytes_on_the_wire_are_those_of_the_fields(tmp_path):
    # The bytes themselves: what is not a number of a field is a header of a few hundred bytes.
    wire = Wire()
    fit(sites(tmp_path, OPEN, N_PRIME, watch=wire), terms=Terms(is_secure=False))
    for (_, _, raw), (_, sent, answered) in zip(wire.lines, wire.messages(), strict=True):
        block = answered.get("block")
        assert len(raw) - (0 if block is None else block.nbytes) < 1500, sent["do"]


def test_masked_bytes_look_uniform(tmp_path):
    wire = Wire()
    fit(sites(tmp_path, LENIENT, N_PRIME, watch=wire))
    sent_by = {name: [] for name in SIZES}
    for name, sent, answered in wire.messages():
        if sent["do"] == "block":
            assert answered["block"].dtype == np.uint64
            assert answered["block"].max() < PRIME
            # All bytes but the highest, of which 61 - 56 bits are used.
            sent_by[name].append(answered["block"].view(np.uint8).reshape(-1, 8)[:, :7].ravel())
    for blocks in sent_by.values():
        counts = np.bincount(np.concatenate(blocks), minlength=256)
        expected = counts.sum() / 256
        assert expected > 150
        assert chi2.cdf(np.sum((counts - expected) ** 2) / expected, 255) < 1 - 1e-6


def test_no_latents_or_images_are_among_the_numbers(tmp_path):
    wire = Wire()
    transport = sites(tmp_path, OPEN, N_PRIME, watch=wire)
    fit(transport, terms=Terms(is_secure=False))
    numbers = {
        name: np.concatenate(
            [a["block"].ravel() for n, _, a in wire.messages() if n == name and "block" in a]
        )
        for name in SIZES
    }
    for name, agent in transport._agents.items():
        private = [agent._fit.cohort.latents, agent.images.read(slice(None)).astype(np.float64)]
        for values in private:
            some = values[np.isfinite(values) & (values != 0)]
            assert not np.isin(some, numbers[name]).any()


# ---- additive over any split, in any order


def _settings(sent):
    from anamorph.storage.modelfile import settings_from

    return settings_from(sent["settings"])


QUESTIONS = {
    "start_latents": {"seed": 3},
    "moments": {},
    "shape_derivatives": {},
    "appearance_derivatives": {},
    "propose_latents": {},
    "update_latents": {},
    "mean_derivatives": {"move": Move.by(np.array([0.1, -0.2]))},
    "transform_latents": {"move": Move(np.eye(2) * 0.5, np.zeros(2))},
    "keep_displacements": {},
    "leave_one_out": {"inverse_scatter": np.eye(2) / 13, "n_images": 13},
}


def _answers(order):
    """Ask a cohort of some images everything; return all answers."""
    settings, parameters, _, images = simulated.random_problem("gaussian", n_images=13)
    identities = [f"image{n}" for n in order]
    cohort = Cohort(simulated.Stack(images[list(order)]), settings, identities)
    cohort.publish(parameters)
    return {name: cohort.answer(name, **given) for name, given in QUESTIONS.items()}


def _assert_close(one: Sums, other: Sums):
    assert one.n_images == other.n_images
    assert one.fields.keys() == other.fields.keys()
    for name in one.fields:
        scale = max(1e-12, np.abs(other[name]).max())
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize("parts", [(1, 12), (6, 7), (2, 4, 7), (3, 3, 3, 4)])
def test_every_answer_is_additive_over_any_split(parts):
    assert QUESTIONS.keys() == FIELDS.keys()
    order = np.random.default_rng(len(parts)).permutation(13)
    whole = _answers(range(13))
    split = [_answers(part) for part in np.split(order, np.cumsum(parts)[:-1])]
    for name in QUESTIONS:
        total = split[0][name]
        for answers in split[1:]:
            total = total + answers[name]
        _assert_close(total, whole[name])


def test_every_answer_is_the_same_in_any_order():
    whole, turned = _answers(range(13)), _answers(range(12, -1, -1))
    for name in QUESTIONS:
        _assert_close(turned[name], whole[name])


def test_the_model_file_of_a_federated_fit(tmp_path):
    from anamorph import ShapeAppearanceModel

    result, _ = fit(sites(tmp_path / "sites"))
    result.save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    assert loaded.origin_.n_images == 13
    assert loaded.transform(stack()[:2]).shape == (2, 2)
