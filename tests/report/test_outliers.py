"""Outliers, held-out images, missing voxels and the order of modes in a report."""

import re

import numpy as np
import pytest

from anamorph import plots
from anamorph.latents import mode_standard_deviations
from anamorph.report import sections, write_report
from anamorph.report.held_out import measure_held_out
from anamorph.report.measures import ModeShares, mode_shares
from anamorph.report.outliers import find_outliers
from tests.report.reports import K, N, latents, random_model, section_anchors


def text_of(path):
    page = re.sub(r"<(style|script).*?</\1>", "", path.read_text(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.fixture(scope="module")
def model_and_images():
    return random_model()


def test_far_latents_and_bad_fits_are_found(model_and_images):
    model, _ = model_and_images
    deviations = mode_standard_deviations(model.latent_precision_)
    codes = 0.5 * latents() * deviations
    codes[4, 1] = 9 * deviations[1]
    fit = np.linspace(-1.1, -0.9, N)
    fit[7] = -3.0
    names = [f"sub-{n}" for n in range(N)]
    far, bad = find_outliers(model, codes, names, fit)
    assert (far.name, far.latent, far.reasons) == ("sub-4", 1, ("far from the others",))
    assert far.deviations == pytest.approx(9.0)
    assert far.share < 1e-6
    assert (bad.name, bad.reasons) == ("sub-7", ("badly fitted",))
    assert find_outliers(model, 0.5 * latents() * deviations, names, np.full(N, -1.0)) == []


def test_the_report_lists_outliers(model_and_images, tmp_path):
    model, _ = model_and_images
    codes = 0.1 * latents() * mode_standard_deviations(model.latent_precision_)
    names = [f"sub-{n}" for n in range(N)]
    text = text_of(write_report(model, tmp_path / "a.html", latents=codes, names=names))
    assert f"None of {N} images stands out" in text
    codes[3] *= 200
    text = text_of(write_report(model, tmp_path / "b.html", latents=codes, names=names))
    assert f"Of {N} images, 1 stands out" in text
    assert "sub-3 n/a latent" in text


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
def test_held_out_images_are_measured(tmp_path, likelihood):
    model, images = random_model(likelihood, n_channels=1 if likelihood == "gaussian" else 3)
    measured = measure_held_out(model, images[:3])
    assert measured.of_model.shape == measured.of_mean.shape == (3,)
    if likelihood == "gaussian":
        expected = model.expected_images(model.transform(images[:3]))[:, 0]
        rmse = np.sqrt(np.nanmean((images[:3] - expected) ** 2, axis=(1, 2)))
        assert measured.of_model == pytest.approx(rmse, rel=1e-4)
    else:
        assert ((measured.of_model >= 0) & (measured.of_model <= 1)).all()
    path = write_report(model, tmp_path / "report.html", held_out=images[:3])
    assert "held_out" in section_anchors(path.read_text())
    text = text_of(path)
    words = "Root mean squared error" if likelihood == "gaussian" else "Dice of the classes"
    assert f"{words} of 3 images that the model was not fitted to" in text
    assert f"{measured.of_model.mean():.3g}" in text
    given = write_report(model, tmp_path / "given.html", held_out=measured)
    assert section_anchors(given.read_text()) == section_anchors(path.read_text())


def test_pink_is_explained_where_there_is_some(model_and_images, tmp_path):
    model, images = model_and_images
    assert "Pink" not in text_of(write_report(model, tmp_path / "a.html", images=images))
    holed = images.astype(float)
    holed[0, :4] = np.nan
    assert "Pink voxels are missing" in text_of(
        write_report(model, tmp_path / "b.html", images=holed)
    )
    (legend,) = plots.plot_fits(model, holed, indices=[0]).legends
    assert [text.get_text() for text in legend.get_texts()] == ["missing"]
    assert plots.plot_fits(model, images, indices=[0]).legends == []


def test_modes_have_one_order_everywhere(model_and_images, monkeypatch):
    model, _ = model_and_images
    shares = ModeShares(*np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]))
    shown = {}
    for name in ("plot_modes", "plot_latents", "plot_latent_pairs"):
        original = getattr(plots, name)

        def noted(*arguments, original=original, name=name, **options):
            shown[name] = arguments
            return original(*arguments, **options)

        monkeypatch.setattr(sections.plots, name, noted)
    sections.modes_section(model, shares, None)
    sections.latents_section(model, latents(), shares, None, None)
    assert list(shown["plot_modes"][1]) == [1, 2, 0]
    assert list(shown["plot_latents"][2]) == [1, 2]
    assert list(shown["plot_latent_pairs"][2]) == [1, 2, 0]
    bars = sections.shares_figure(shares, False).axes[0]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["2", "3", "1"]
    assert [bar.get_height() for bar in bars.patches] == [0.5, 0.3, 0.2]
    first, *_ = sections.warps_section(model, None, None, None, shares, None).body.split("alt=")
    assert first


def test_latents_are_in_standard_deviations(model_and_images, monkeypatch):
    model, _ = model_and_images
    drawn = []
    original = plots.plot_latents

    def noted(points, *arguments, **options):
        drawn.append(original(points, *arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(sections.plots, "plot_latents", noted)
    shares = mode_shares(model)
    sections.latents_section(model, latents(), shares, None, None)
    assert drawn[0].get_xlabel() == f"latent {shares.order[0] + 1} (s.d.)"
    points = drawn[0].collections[0].get_offsets()
    scaled = latents() / mode_standard_deviations(model.latent_precision_)
    assert np.allclose(points, scaled[:, shares.order[:2]])


@pytest.mark.parametrize("space", [(12, 10), (8, 9, 7)])
def test_images_of_modes_are_large_enough(space):
    """On a page of 900 pixels, a slice is at least an inch wide."""
    model, _ = random_model("gaussian", space)
    body = sections.modes_section(model, mode_shares(model), None).body
    width, height = map(int, re.search(r'width="(\d+)" height="(\d+)"', body).groups())
    n_columns = 6 if len(space) == 2 else 4
    shown = min(width, 900) / width
    assert shown * width / n_columns > 96 * (1 if len(space) == 2 else 2)
    assert height / K > 96


def test_the_objective_of_a_model(model_and_images):
    model, _ = model_and_images
    axes = plots.plot_objective(model)
    assert np.array_equal(axes.lines[0].get_ydata(), model.objective_)
