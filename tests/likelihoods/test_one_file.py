"""Adding a likelihood is adding one file: nothing outside `likelihoods/` knows their names."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import anamorph
from anamorph import ShapeAppearanceModel, likelihoods
from anamorph.likelihoods import DEFAULT, LIKELIHOODS
from anamorph.model.hyperparameters import HYPERPARAMETERS
from anamorph.report import write_report

PACKAGE = Path(anamorph.__file__).parent
TOY = '''
"""Intensities with noise of variance 1/2: J = (a' - f)^2, values from -9 to 9."""

import numpy as np

from anamorph.kernels.compile import formula
from anamorph.likelihoods.base import IndependentChannels

_TWO = np.float32(2)


class Toy(IndependentChannels):
    name = "toy"
    brief = "toys"
    description = "toys that nobody has seen"
    default_penalties = {"shape": (0.01, 0, 1, 0.1, 0.1), "appearance": (0.1, 1, 0),
                         "mean": (1e-4, 1e-3, 0)}
    value_range = (-9.0, 9.0)
    range_words = "values from -9 to 9"
    range_advice = "play less"

    @staticmethod
    @formula
    def voxel(a, f, weight):
        residual = a - f
        return -residual * residual, _TWO * residual, _TWO

    def expectation(self, appearance):
        return appearance

    def variance(self, expected, spread, noise_variance):
        return 0.5 + spread

    def draw(self, expected, noise_variance, generator):
        return generator.normal(expected, 0.5**0.5).astype(np.float32)

    def mean_derivatives(self, mean, count, total, precision):
        return 2 * (count * mean - total), 2 * count
'''

# Where a name of a likelihood may stand outside `likelihoods/`: what was chosen for somebody.
ALLOWED = {
    # what the JavaScript of pages knows
    *(("explorer/packing.py", name) for name in LIKELIHOODS),
    ("model/presets.py", "gaussian"),  # settings of the paper
    ("model/presets.py", "bernoulli"),
    ("model/presets.py", "categorical"),
    ("estimator/model.py", "gaussian"),  # defaults of arguments
    ("model/hyperparameters.py", "gaussian"),
    ("images/files.py", "gaussian"),
    ("images/rules.py", "gaussian"),  # an error: what to use instead
    ("plots/deformations.py", "gaussian"),
    ("cli/commands/demo.py", "categorical"),  # what the demonstration fits
    ("cli/terminal/options.py", "categorical"),  # help: what --labels stands for
}


def texts_in(path):
    """Yield the texts in a file of Python, but for those that document it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documents:
            yield node.value


def test_no_name_of_a_likelihood_stands_outside_their_folder():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "likelihoods"
        for text in texts_in(path)
        for name in LIKELIHOODS
        # not as part of a word, of a flag or of the name of a module
        if re.search(rf"(?<![\w.]){name}(?!\w|\.\w)", text)
    }
    assert found == ALLOWED


def test_the_default_comes_first_and_help_names_all():
    assert next(iter(LIKELIHOODS)) == DEFAULT
    assert list(LIKELIHOODS)[1:] == sorted(set(LIKELIHOODS) - {DEFAULT})
    text = HYPERPARAMETERS["likelihood"].help
    for name, likelihood in LIKELIHOODS.items():
        assert f"{name} ({likelihood.brief}" in text


@pytest.mark.parametrize("name", list(LIKELIHOODS))
def test_the_documentation_knows_it(name):
    page = PACKAGE.parents[1] / "docs" / "model.md"
    assert f"| {name} |" in page.read_text().lower()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(TOY)
    with monkeypatch.context() as patch:
        patch.setattr(likelihoods, "__path__", [*likelihoods.__path__, str(tmp_path)])
        likelihoods.find_likelihoods()
        yield LIKELIHOODS["toy"]
    del sys.modules["anamorph.likelihoods.toy"]
    likelihoods.find_likelihoods()
    assert "toy" not in LIKELIHOODS


def test_a_file_that_is_dropped_in_fits_encodes_samples_imputes_and_reports(toy, tmp_path):
    generator = np.random.default_rng(0)
    x, y = np.indices((12, 10)) - 5
    centres, heights = generator.normal(0, 1, (2, 14, 1, 1)), generator.normal(4, 1, (14, 1, 1))
    blobs = heights * np.exp(-((x - centres[0]) ** 2 + (y - centres[1]) ** 2) / 8)
    images = toy.draw(blobs, None, generator).clip(-9, 9)
    model = ShapeAppearanceModel(3, likelihood="toy", n_iter=4).fit(images)
    assert (np.diff(model.objective_) > 0).all()
    expected = model.inverse_transform(model.transform(images))
    assert np.mean((expected - blobs) ** 2) < 0.5 * np.mean((images - blobs) ** 2)
    drawn, _ = model.sample(3, random_state=0, noise=True)
    assert drawn.shape == (3, 12, 10)
    images[0, :4] = np.nan
    assert np.isfinite(model.impute(images)).all()
    model.save(tmp_path / "toy.safetensors")
    again = ShapeAppearanceModel.load(tmp_path / "toy.safetensors")
    assert np.array_equal(again.transform(images), model.transform(images))
    report = write_report(again, tmp_path / "report.html", images=images)
    assert "toys that nobody has seen" in report.read_text()
    with pytest.raises(ValueError, match=r"toy images must have values from -9 to 9.*; play less"):
        model.transform(images + 20)
