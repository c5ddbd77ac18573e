"""The demonstration: every file that it names is there, and volumes tell the age they show."""

import numpy as np
import pytest
from PIL import Image

from anamorph import ShapeAppearanceModel, demo
from anamorph.datasets import digits
from anamorph.datasets.simulated import VENTRICLES, brains
from anamorph.io.participants import read_participants


def few_digits():
    images, labels = digits()
    model = ShapeAppearanceModel(2, likelihood="bernoulli", n_iter=2)
    return demo._Subject("digits", "Digits", images[:12], labels[:12], "digit", model)


def test_every_file_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_digits", few_digits)
    said = []
    paths = demo.run_demo(tmp_path / "new" / "folder", say=said.append)
    names = ["report.html", "digits.safetensors", "latents.tsv"]
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


@pytest.mark.slow
def test_volumes_tell_their_age(tmp_path):
    *_, objective = demo.run_demo(tmp_path, volumes=True)
    assert objective.name == "objective.png"
    table = read_participants(tmp_path / "latents.tsv")
    latents = np.stack([table.covariate(f"z{k}") for k in range(1, 6)], axis=1)
    design = np.column_stack([latents, np.ones(len(latents))])
    ages = table.covariate("age")
    left = ages - design @ np.linalg.lstsq(design, ages, rcond=None)[0]
    assert left.var() < 0.3 * ages.var()


def test_simulated_brains_are_the_same_every_time_and_age():
    labels, ages = brains(12, (16, 18, 16), seed=3)
    again, _ = brains(12, (16, 18, 16), seed=3)
    other, _ = brains(12, (16, 18, 16), seed=4)
    np.testing.assert_array_equal(labels, again)
    assert (labels != other).any()
    assert labels.dtype == np.uint8
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    volumes = (labels == VENTRICLES).sum(axis=(1, 2, 3))
    assert np.corrcoef(volumes, ages)[0, 1] > 0.8
    border = labels.copy()
    border[:, 1:-1, 1:-1, 1:-1] = 0
    assert not border.any()
