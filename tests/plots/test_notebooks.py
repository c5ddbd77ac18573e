"""Notebooks: what is drawn shows as the last expression, and progress is a bar that they render."""

import sys
import types

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel, plots
from anamorph.model import progress
from tests.cli.conftest import blobs

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def model():
    return ShapeAppearanceModel(2, n_iter=2, n_threads=1).fit(blobs(6, (10, 8)))


@pytest.mark.parametrize(
    "draw",
    [
        lambda model: plots.plot_modes(model),
        lambda model: plots.plot_fits(model, blobs(6, (10, 8))),
        lambda model: plots.plot_samples(model, 2, 0),
        lambda model: plots.plot_latents(model.latents_),
        lambda model: plots.plot_latent_pairs(model.latents_, dims=(0, 1)),
        lambda model: plots.plot_objective(model),
        lambda model: plots.plot_deformation(model.displacement(model.latents_)[0]),
        lambda model: plots.plot_log_jacobian(model.displacement(model.latents_)[0]),
    ],
)
def test_what_is_drawn_has_a_picture_for_notebooks(model, draw):
    assert draw(model)._repr_png_().startswith(PNG)


class Display:
    """The display of a notebook, as far as a bar needs it."""

    def __init__(self):
        self.shown = []

    def __call__(self, thing, display_id):
        self.shown.append(thing)
        return self

    def update(self, thing):
        self.shown.append(thing)


@pytest.fixture
def notebook(monkeypatch):
    """Make this process look like the kernel of a notebook; return what is displayed."""
    display = Display()
    shell = type("ZMQInteractiveShell", (), {})()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML, ipython.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return display.shown


def test_a_fit_has_a_bar_in_notebooks(notebook, capsys):
    ShapeAppearanceModel(2, n_iter=3, n_threads=1, verbose=True).fit(blobs(6, (10, 8)))
    assert len(notebook) == 3
    assert "Fitting <progress value='3' max='3'>" in notebook[-1]
    assert "objective" in notebook[-1]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda model, images: model.transform(images), "Encoding"),
        (lambda model, images: model.inverse_transform(np.zeros((6, 2))), "Reconstructing"),
        (lambda model, images: model.impute(images), "Imputing"),
    ],
)
def test_predictions_have_a_bar_in_notebooks(model, notebook, use, text):
    images = blobs(6, (10, 8))
    use(model, images)
    assert notebook == []  # not asked for
    model.verbose = True
    try:
        use(model, images)
    finally:
        model.verbose = False
    assert f"{text} images <progress value='6' max='6'>" in notebook[-1]


def test_progress_counts_every_image_once(model):
    told = []
    with progress.progress_told(lambda done, total: told.append((done, total))):
        model.transform(blobs(9, (10, 8)))
    assert [total for _, total in told] == [9] * len(told)
    assert told[-1] == (9, 9)
    assert told == sorted(told)


@pytest.mark.slow
def test_a_notebook_shows_figures_in_a_clean_kernel():
    import nbclient  # takes a second, which only this test needs
    import nbformat

    cells = [
        "import numpy as np\nfrom anamorph import ShapeAppearanceModel, plots\n"
        "X = np.random.default_rng(0).random((6, 10, 8)).astype('float32')\n"
        "model = ShapeAppearanceModel(2, n_iter=2, n_threads=1, verbose=True).fit(X)",
        "plots.plot_modes(model)",
        "plots.plot_objective(model)",
        "Z = model.transform(X)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(notebook, timeout=300).execute()
    fit, modes, objective, encoding = (cell.outputs for cell in notebook.cells)
    assert any("<progress" in output.get("data", {}).get("text/html", "") for output in fit)
    assert any("image/png" in output.get("data", {}) for output in modes)
    assert any("image/png" in output.get("data", {}) for output in objective)
    assert any("<progress" in output.get("data", {}).get("text/html", "") for output in encoding)
