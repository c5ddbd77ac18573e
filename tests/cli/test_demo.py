"""The demonstration: every file that it names is there, and volumes tell the age they show."""

import dataclasses
import errno

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from anamorph import ShapeAppearanceModel
from anamorph.cli.commands import demo
from anamorph.datasets import digits
from anamorph.images.participants import read_participants
from anamorph.model.presets import preset
from anamorph.storage.errors import WriteError


def few_digits():
    images, labels = digits()
    model = ShapeAppearanceModel(2, likelihood="bernoulli", n_iter=2)
    return demo.Subject("digits", "Digits", images[:12], labels[:12], "digit", model)


def test_every_file_is_there(tmp_path, monkeypatch):
    subject = few_digits()
    monkeypatch.setattr(demo, "digits_subject", lambda: subject)
    said = []
    paths = demo.run_demo(tmp_path / "new" / "folder", n_threads=1, say=said.append)
    assert subject.model.n_threads == 1
    names = ["report.html", "digits.safetensors", "digits.latents.tsv"]
    assert [path.name for path in paths[:3]] == names
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    assert all(str(path) in said[-1] for path in paths)
    for path in paths[3:]:
        with Image.open(path) as picture:
            picture.verify()
    model = ShapeAppearanceModel.load(paths[1])
    table = read_participants(paths[2])
    np.testing.assert_array_equal(table.covariate("digit"), digits()[1][:12])
    latents = np.stack([table.covariate(f"z{k}") for k in (1, 2)], axis=1)
    assert model.inverse_transform(latents).shape == (12, 28, 28)


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    model = few_digits().model.fit(few_digits().images)
    subject = dataclasses.replace(few_digits(), model=model)
    (tmp_path / "fits.png").write_text("old")

    def no_space(figure, path, **_):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", no_space)
    with pytest.raises(WriteError, match=r"fits\.png cannot be written: .*No space left"):
        demo._write_pictures(subject, tmp_path)
    assert (tmp_path / "fits.png").read_text() == "old"


def test_settings_of_digits_are_those_of_the_paper():
    expected = preset("digits") | {"n_iter": 12}
    assert expected.items() <= demo.digits_subject().model.get_params().items()


@pytest.mark.slow
@pytest.mark.long
def test_volumes_tell_their_age(tmp_path):
    *_, objective = demo.run_demo(tmp_path, volumes=True)
    assert objective.name == "objective.png"
    table = read_participants(tmp_path / "volumes.latents.tsv")
    latents = np.stack([table.covariate(f"z{k}") for k in range(1, 6)], axis=1)
    design = np.column_stack([latents, np.ones(len(latents))])
    ages = table.covariate("age")
    left = ages - design @ np.linalg.lstsq(design, ages, rcond=None)[0]
    assert left.var() < 0.3 * ages.var()
