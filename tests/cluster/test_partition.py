"""What workers keep only saves time: without it answers are the same, to the last bit."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.arrays.devices import Machine
from anamorph.cluster.partition import Asked, Partition, answer, forget, inspect
from anamorph.cluster.storage import LatentFolder, PartitionLatents
from anamorph.fitting.sums import Move
from anamorph.storage.errors import ModelFileError
from tests.cluster.conftest import OPTIONS


class PartitionSites:
    """Partitions in this process, asked as a cluster asks them; workers may lose all they keep."""

    residuals = None  # which clusters do not learn

    def __init__(self, images, settings, folder, n_partitions, loses, device="cpu"):
        bounds = np.linspace(0, len(images), n_partitions + 1).astype(int)
        self.folder = LatentFolder(str(folder))
        self.parts = [
            Partition(
                number,
                images.arguments(range(*bounds[number : number + 2])),
                tuple(images.identities[slice(*bounds[number : number + 2])]),
                settings,
                self.folder,
                Machine(device, n_threads=1),
                has_start=False,
            )
            for number in range(n_partitions)
        ]
        self.loses, self.step, self.questions = loses, 0, []
        self.parameters = self.shot_with = None
        for part in self.parts:
            zeros = np.zeros((len(part.identities), settings.layout.n_latents))
            poses = np.zeros((len(zeros), settings.frame.n_coordinates))
            self.folder.write(part.number, 0, PartitionLatents(zeros, zeros, poses))

    def publish(self, parameters):
        self.parameters = parameters

    def ask(self, question, **arguments):
        self.questions.append(question)
        self.step += 1
        if self.loses(question):
            forget(self.folder)
        before = self.shot_with if question == "shape_derivatives" else None
        asked = Asked(self.step, question, arguments)
        published = [None if one is None else vars(one) for one in (self.parameters, before)]
        answers = [answer(part, asked, *published) for part in self.parts]
        if question in ("mean_derivatives", "keep_displacements"):
            self.shot_with = self.parameters
        elif question != "shape_derivatives":
            self.shot_with = None
        return reduce(add, answers)

    @property
    def latents(self):
        return np.concatenate([left.latents for left in self.stored()])

    @property
    def poses(self):
        return np.concatenate([left.poses for left in self.stored()])

    def stored(self):
        return [self.folder.read(part.number, self.step) for part in self.parts]

    def close(self):
        forget(self.folder)


def fitted(files, folder, loses, n_iter=4, n_partitions=3, **options):
    """Return a model, and the sites that it was fitted with."""
    folder.mkdir()
    opened = []

    def open_sites(images, settings, start):
        device = options.get("device", "cpu")
        opened.append(PartitionSites(images, settings, folder, n_partitions, loses, device))
        return opened[0]

    model = ShapeAppearanceModel(**OPTIONS | {"n_iter": n_iter} | options)
    model.fit_at(open_sites, files)
    opened[0].close()
    return model, opened[0]


@pytest.mark.parametrize(
    "lost_at",
    ["every question", "shape_derivatives", "propose_latents", "update_latents"],
)
def test_losing_all_that_workers_keep_changes_nothing(files, tmp_path, lost_at):
    whole, _ = fitted(files, tmp_path / "whole", lambda question: False)
    model, _ = fitted(
        files, tmp_path / "lost", lambda question: lost_at in ("every question", question)
    )
    assert model.objective_ == whole.objective_
    assert np.array_equal(model.latents_, whole.latents_)
    assert np.array_equal(model.shape_basis_, whole.shape_basis_)


def test_losses_change_nothing_where_the_mean_needs_shorter_steps(files, tmp_path, monkeypatch):
    """Then shape derivatives are asked for twice, the second time with latents turned already."""
    from anamorph.fitting.em import Fit

    def always_refused(self, log_likelihood, parameters, latents):
        value = original(self, log_likelihood, parameters, latents)
        refused[0] += 1
        return value if refused[0] % 5 else -np.inf

    original = Fit._joint
    ends = []
    for name, loses in (("whole", False), ("lost", True)):
        refused = [0]
        with monkeypatch.context() as patched:
            patched.setattr(Fit, "_joint", always_refused)
            model, sites = fitted(
                files, tmp_path / name, lambda question, loses=loses: loses, n_iter=3
            )
        assert ("shape_derivatives", "shape_derivatives") in zip(
            sites.questions, sites.questions[1:], strict=False
        )
        ends.append(model)
    assert ends[0].objective_ == ends[1].objective_
    assert np.array_equal(ends[0].latents_, ends[1].latents_)


def test_partitions_give_what_one_cohort_gives(files, tmp_path):
    pooled = ShapeAppearanceModel(**OPTIONS | {"n_iter": 4}).fit(files)
    model, sites = fitted(files, tmp_path / "shared", lambda question: False)
    assert np.allclose(model.objective_, pooled.objective_, rtol=1e-6, atol=0)
    assert np.allclose(model.latents_, pooled.latents_, atol=1e-3)
    first = sites.questions.index("appearance_derivatives")
    assert len(sites.questions[first:]) <= 6 * model.n_iter_


def test_a_question_that_is_repeated_is_answered_as_before(files, tmp_path):
    _, sites = fitted(files, tmp_path / "shared", lambda question: False, n_iter=1)
    part = sites.parts[0]
    move = Move(2 * np.eye(2), np.ones(2))
    asked = Asked(sites.step + 1, "transform_latents", {"move": move})
    expected = 2 * sites.folder.read(0, sites.step).latents + 1
    for _ in range(3):
        answer(part, asked, None, None)
        assert np.array_equal(sites.folder.read(0, asked.step).latents, expected)


def test_a_task_of_long_ago_does_no_harm(files, tmp_path):
    """A worker that was cut off comes back, and does what was done elsewhere meanwhile."""
    _, sites = fitted(files, tmp_path / "shared", lambda question: False, n_iter=1)
    before = sites.latents
    asked = Asked(2, "transform_latents", {"move": Move.by(np.full(2, 5.0))})
    with pytest.raises(ModelFileError, match="does not exist"):
        answer(sites.parts[0], asked, None, None)
    assert np.array_equal(sites.latents, before)


def test_inspecting_gives_a_digest_of_every_image(files, tmp_path):
    _, sites = fitted(files, tmp_path / "shared", lambda question: False, n_iter=1)
    digests = [digest for part in sites.parts for digest in inspect(part).digests]
    assert len(set(digests)) == len(files)
    np.save(files[0], np.load(files[0])[::-1])
    again = [digest for part in sites.parts for digest in inspect(part).digests]
    assert [old == new for old, new in zip(digests, again, strict=True)] == [
        n > 0 for n in range(len(files))
    ]
