"""Poses and gains of single images stay at a site: what leaves is sums, as of everything else."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import affine_transform

from anamorph import ShapeAppearanceModel
from anamorph.federation import (
    Policy,
    PolicyError,
    SiteAgent,
    SitesLostError,
    Terms,
    VerificationError,
    federated_statistics,
    simulated_sites,
    split_images,
)
from anamorph.federation.masking.fixed_point import from_fixed_point
from anamorph.federation.protocol.answers import AnswerSchema
from anamorph.federation.protocol.bounds import Bounds
from anamorph.federation.protocol.questions import answer_shapes
from anamorph.federation.site.fit import SiteFit
from anamorph.federation.site.setting_ranges import DEFAULT_RANGES, check_ranges
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.sums import FIELDS, POSING
from anamorph.images.collection import open_images
from anamorph.storage.modelfile import settings_from
from anamorph.storage.tensors import read_tensors
from tests import simulated
from tests.cli.conftest import blobs
from tests.conftest import relative_error
from tests.federation.attacks.cheating import Gullible, Meddling, log_of
from tests.federation.conftest import LENIENT, OPEN, Unreliable, Wire, fit, model, objective_error
from tests.federation.coordinator.test_faults import GO_ON, Once, leaving

SPACE = (12, 10)
SHIFTED = {"align": "translation", "n_iter": 2}
TURNED = {"align": "rigid", "intensity": "per image", "n_iter": 2}
AFFINE = {"align": "affine", "latents": "separate", "n_components": (1, 1), "n_iter": 2}
CLASSES = {"align": "similarity", "likelihood": "categorical", "n_iter": 2}


def moved(n_images=13, seed=4):
    """Return blobs that are turned by up to 25 degrees, moved by up to 2 voxels, and scaled."""
    generator, centre = np.random.default_rng(seed), (np.array(SPACE) - 1) / 2
    images = []
    for image in blobs(n_images, SPACE):
        angle, shift = generator.uniform(-0.45, 0.45), generator.uniform(-2, 2, 2)
        size = np.exp(generator.uniform(-0.4, 0.4))
        turn = size * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        image = affine_transform(image, turn, centre + shift - turn @ centre, order=1)
        images.append(generator.uniform(0.7, 1.4) * image)
    return np.array(images, np.float32)


def posed_sites(folder, policy=LENIENT, n_images=13, n_sites=3, watch=None, **options):
    images, parts = open_images(moved(n_images), "gaussian"), split_images(n_images, n_sites)
    return simulated_sites(images, parts, folder, policy, n_threads=1, watch=watch, **options)


def poses_at(transport, n_images=13):
    """Return the poses that sites have, in the order of all images."""
    found = [None] * n_images
    for agent in transport._agents.values():
        for number, pose in zip(agent._holdings.identities, agent._fit.cohort.poses, strict=True):
            found[int(number)] = pose
    return np.array(found)


@pytest.fixture(scope="module")
def pooled_shifted():
    return model(**SHIFTED).fit(moved())


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """Return a transport to sites, the model that was fitted there, and the checkpoint."""
    folder = tmp_path_factory.mktemp("posed")
    transport, checkpoint = posed_sites(folder), folder / "checkpoint"
    result, told = fit(transport, checkpoint=checkpoint, **SHIFTED)
    assert told.n_questions < 100 + 24 * 2  # `Policy.most_questions`
    return transport, result, checkpoint


# ---- the same numbers as on one machine


def test_sites_find_the_poses_of_one_machine(shifted, pooled_shifted):
    transport, result, _ = shifted
    assert objective_error(result, pooled_shifted) < 1e-6
    assert relative_error(result.mean_, pooled_shifted.mean_) < 1e-4
    assert np.abs(pooled_shifted.poses_).max() > 1  # voxels: not what it starts from
    np.testing.assert_allclose(poses_at(transport), pooled_shifted.poses_, atol=1e-3)
    assert not hasattr(result, "poses_")


@pytest.mark.slow
@pytest.mark.parametrize("options", [TURNED, AFFINE, CLASSES])
def test_other_groups_likelihoods_and_gains_of_single_images(tmp_path, options):
    images, likelihood = moved(), options.get("likelihood", "gaussian")
    if likelihood == "categorical":
        images = np.digitize(images, [0.2, 0.5])
    pooled, collection = model(**options).fit(images), open_images(images, likelihood)
    transport = simulated_sites(collection, split_images(13, 3), tmp_path, LENIENT, n_threads=1)
    result, _ = fit(transport, **options)
    assert objective_error(result, pooled) < 1e-4
    np.testing.assert_allclose(poses_at(transport), pooled.poses_, atol=1e-2)


@pytest.mark.parametrize("intensity", ["per image", "smooth"])
def test_gains_of_single_images(tmp_path, intensity):
    pooled = model(intensity=intensity).fit(moved())
    result, _ = fit(posed_sites(tmp_path), intensity=intensity)
    assert objective_error(result, pooled) < 1e-5
    other = moved(3, seed=5)
    np.testing.assert_allclose(result.transform(2 * other), pooled.transform(2 * other), atol=1e-3)


def test_a_stored_model_poses_new_images(shifted, pooled_shifted, tmp_path):
    shifted[1].save(tmp_path / "model.safetensors")
    loaded = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    some = moved()[:4]
    np.testing.assert_allclose(loaded.poses(some), pooled_shifted.poses(some), atol=1e-2)


def test_analyses_of_a_model_with_poses(shifted):
    transport, result, _ = shifted
    (group,) = federated_statistics(result, transport, transport.names)
    np.testing.assert_allclose(group.mean, result.transform(moved()).mean(axis=0), atol=1e-4)


# ---- what leaves a site


def test_only_sums_of_poses_leave_a_site(tmp_path):
    """In the clear, where all numbers can be looked at."""
    wire, n_images = Wire(), 39  # 13 at every site: no size of anything else
    transport = posed_sites(tmp_path, OPEN, n_images, watch=wire)
    fit(transport, terms=Terms(is_secure=False), **SHIFTED | {"n_iter": 1})
    settings, asked, numbers = None, set(), {name: [] for name in transport.names}
    for name, sent, answered in wire.messages():
        if sent["do"] == "join":
            settings = settings_from(sent["settings"])
        if sent["do"] == "ask":
            question, exponents = sent["question"], sent["exponents"]
            asked.add(question)
            assert sent["arguments"] == {}  # sites know template, grid and background themselves
        if sent["do"] == "block":
            factors = {"factors": (1, 1)}  # small images are searched on their own grid
            shapes = answer_shapes(question, settings, factors)
            schema = AnswerSchema(shapes)
            assert answered["block"].size == schema.length
            for piece in schema.pieces(0):
                values = from_fixed_point(answered["block"][piece.in_block], exponents[piece.name])
                numbers[name].append(np.atleast_1d(values))
            if question in POSING:
                assert set(shapes) == set(POSING[question])
                assert not any(13 in shape for shape in shapes.values())
    assert set(POSING) <= asked
    for name, agent in transport._agents.items():
        left, poses = np.concatenate(numbers[name]), agent._fit.cohort.poses
        assert np.abs(left[:, None] - poses.ravel()[None]).min() > 1e-9


def test_poses_are_kept_with_the_latents_of_the_site_and_nowhere_else(shifted):
    transport, _, checkpoint = shifted
    for agent in transport._agents.values():
        kept = agent._fit.store.load(2, len(agent.images))
        np.testing.assert_array_equal(kept.poses, agent._fit.cohort.poses)
    arrays, facts = read_tensors(checkpoint, "federation checkpoint", 2)
    assert "background" in arrays
    assert not {"poses", "latents"} & (arrays.keys() | facts.keys())


POSE_QUESTIONS = {
    "border_moments": {},
    "start_poses": {"background": np.array([[0.1, 0.1], [9.0, 9.0]])},
    "posed_moments": {"factors": (2, 2)},
    "match_poses": {
        "template": simulated.smooth(np.random.default_rng(0), (2, 6, 5), 2).astype(np.float32),
        "background": np.zeros(2),
        "factors": (2, 2),
        "search": False,
    },
    "update_poses": {"n_steps": 2},
}


def test_answers_about_poses_are_additive_over_any_split():
    assert POSE_QUESTIONS.keys() == POSING.keys()
    settings, parameters, latents, images = simulated.random_problem("gaussian", align="rigid")
    background = np.array([[0.0, 0.0], [1.0, 1.0]])
    parameters = replace(parameters, background=background)

    def answers(part):
        cohort = simulated.cohort_with(settings, parameters, latents[part], images[part])
        return {name: cohort.answer(name, **given) for name, given in POSE_QUESTIONS.items()}

    whole, first, rest = (answers(part) for part in (slice(None), slice(4), slice(4, None)))
    for name, sums in whole.items():
        total = first[name] + rest[name]
        assert total.n_images == sums.n_images
        shapes = answer_shapes(name, settings, POSE_QUESTIONS[name])
        for field in sums.fields:
            assert sums[field].shape == shapes[field]
            scale = max(1e-9, np.abs(sums[field]).max())
            np.testing.assert_allclose(total[field], sums[field], rtol=0, atol=2e-5 * scale)


# ---- faults


def test_a_lost_question_about_poses_changes_nothing(tmp_path, pooled_shifted):
    plan = Once("update_poses", "unheard", occurrence=2)  # before the first iteration
    transport = Unreliable(posed_sites(tmp_path), plan)
    result, told = fit(transport, **SHIFTED)
    assert transport.plan.has_happened
    assert told.notes == ()
    assert objective_error(result, pooled_shifted) < 1e-5


def test_a_fit_that_stops_resumes_with_poses_by_the_same_call(tmp_path, pooled_shifted):
    plan = Once("update_poses", "lost", occurrence=4)  # in the second iteration
    transport, checkpoint = Unreliable(posed_sites(tmp_path), plan), tmp_path / "checkpoint"
    terms = Terms(patience=0.0, retries=0)
    with pytest.raises(SitesLostError, match="site2: the answer is lost"):
        fit(transport, terms=terms, checkpoint=checkpoint, **SHIFTED)
    result, _ = fit(transport, terms=terms, checkpoint=checkpoint, **SHIFTED)
    assert objective_error(result, pooled_shifted) < 1e-5
    np.testing.assert_allclose(poses_at(transport.inner), pooled_shifted.poses_, atol=1e-3)


def test_a_site_that_is_started_again_has_its_poses(tmp_path, pooled_shifted):
    transport = posed_sites(tmp_path)

    class Restart(Once):
        def __call__(self, name, message):
            fault = super().__call__(name, message)
            if fault is not None:
                old = transport._agents[name]
                again = (name, old.images, LENIENT, old.folder, old.identity)
                numbers = {"identities": old._holdings.identities, "n_threads": 1, "secret": b""}
                transport._agents[name] = SiteAgent(*again, **numbers)
            return fault

    plan = Restart("update_latents", "lost")
    result, _ = fit(Unreliable(transport, plan), **SHIFTED)
    assert plan.has_happened
    assert objective_error(result, pooled_shifted) < 1e-5
    np.testing.assert_allclose(poses_at(transport), pooled_shifted.poses_, atol=1e-3)


@pytest.mark.slow
def test_a_site_that_returns_finds_poses_again(tmp_path):
    stay = [1] * 4
    inner = posed_sites(tmp_path, n_images=17, n_sites=4)
    transport = leaving(inner, occurrence=3, stay=stay)  # in the second iteration
    result, told = fit(transport, terms=GO_ON, align="translation", n_iter=6)
    assert [note.split(": ")[1] for note in told.notes] == [
        "on without site4",
        "on with site4 again",
    ]
    assert result.origin_.n_images == 17
    back = int(told.notes[1].split(":")[0].split()[-1])
    assert np.diff(result.objective_[back:]).min() > 0  # of all 17 images
    pooled = model(align="translation", n_iter=6).fit(moved(17))
    np.testing.assert_allclose(poses_at(transport.inner, 17), pooled.poses_, atol=0.5)


# ---- what sites refuse


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"align": "perspective"}, "align must be one of none, translation, .* got 'perspective'"),
        ({"align": ["rigid"]}, "align must be one of"),
        ({"residual": "smooth"}, "sites learn no residual warps: residual must be 'none'"),
        ({"intensity": "loud"}, "intensity must be one of global, per image, smooth, got 'loud'"),
    ],
)
def test_settings_of_no_known_kind_are_refused(changes, message):
    settings = simulated.random_settings("gaussian")
    check_ranges(replace(settings, align="affine", intensity="smooth"), DEFAULT_RANGES)
    with pytest.raises(PolicyError, match=message):
        check_ranges(replace(settings, **changes), DEFAULT_RANGES)


def test_images_without_noise_have_no_gains():
    settings = simulated.random_settings("bernoulli", intensity="per image")
    with pytest.raises(PolicyError, match="intensity must be one of global, got 'per image'"):
        check_ranges(settings, DEFAULT_RANGES)


def test_a_policy_may_leave_poses_out(tmp_path):
    """As those do that were written before sites answered questions about poses."""
    policy = Policy(minimum_images=1, questions=tuple(FIELDS))
    transport = posed_sites(tmp_path, policy)
    with pytest.raises(PolicyError, match="answers no questions about poses, so align must be"):
        fit(transport, **SHIFTED)
    assert not log_of(transport, "site1", "answered")
    fit(transport, n_iter=1)


@pytest.mark.parametrize("question", sorted(POSING.keys() - {"border_moments"}))
def test_questions_about_poses_out_of_turn_stop_the_fit(tmp_path, question):

    def tell(name, message):
        if message.get("question") == "border_moments":
            return message | {"question": question}
        return None

    transport = posed_sites(tmp_path)
    with pytest.raises(VerificationError, match="is asked, but border_moments comes next in this"):
        fit(Meddling(transport, tell), **SHIFTED)


# ---- a site that lies about poses


def lying(transport, monkeypatch, question, change, name="site2"):
    """Let a site change the sum of its poses before it is masked."""
    agent, honest = transport._agents[name], SiteFit.answer

    def answer(self, asked, limits):
        given = honest(self, asked, limits)
        if self.cohort.images is agent._fit.cohort.images and asked.name in question:
            bound = given.n_images * np.array(limits.pose)
            given._numbers["pose_sum"] = change(given._numbers["pose_sum"], bound)
        return given

    monkeypatch.setattr(SiteFit, "answer", answer)


@pytest.mark.parametrize("question", ["start_poses", "match_poses"])
def test_a_sum_of_poses_beyond_all_images_is_refused(tmp_path, monkeypatch, question):
    transport = posed_sites(tmp_path)
    lying(transport, monkeypatch, (question,), lambda sums, bound: sums + 10 * bound)
    monkeypatch.setattr("anamorph.federation.coordinator.sites.Bounds", Gullible)
    monkeypatch.setattr("anamorph.federation.coordinator.checkpoint.Bounds", Gullible)
    with pytest.raises(VerificationError, match=r"pose_sum in the total of .* 13 images can add"):
        fit(transport, **SHIFTED)


@pytest.mark.parametrize(("question", "share"), [("match_poses", 0.7), ("update_poses", 0.5)])
def test_a_site_does_not_move_the_images_of_others_out_of_the_template(
    tmp_path, monkeypatch, question, share
):
    """It claims what bounds allow; where few images are left at a voxel, totals are about those."""
    transport = posed_sites(tmp_path)
    lying(transport, monkeypatch, (question,), lambda sums, bound: sums + share * bound)
    with pytest.raises(VerificationError, match="the mean pose takes half of the images of this"):
        fit(transport, **SHIFTED)
    stopped = [name for name in transport.names if log_of(transport, name, "stopped")]
    assert stopped
    for name in stopped:  # nothing has left since the images were moved
        assert log_of(transport, name, "answered")[-1]["question"] == question


def test_one_image_contributes_no_more_than_its_bound():
    settings, parameters, latents, images = simulated.random_problem("gaussian", align="affine")
    limits = Bounds(settings, 8.0).limits("start_poses", None)
    assert len(limits.pose) == 6
    extent = np.array(limits.pose[:2]) / SPACE
    np.testing.assert_allclose(extent, 2)
    np.testing.assert_allclose(limits.pose[2:], [4, 2, 2, 2])
    cohort = simulated.cohort_with(settings, parameters, latents, images)
    cohort.poses = np.zeros_like(cohort.poses)
    cohort.poses[0], cohort.poses[1] = 1e6, np.nan
    assert Cohort._pose_sum(cohort)[0] != cohort.poses[0, 0]  # NaN without limits
    cohort.limits = limits
    np.testing.assert_allclose(Cohort._pose_sum(cohort), limits.pose)
