"""Reports on models whose images have poses and gains of their own, and on fits through grids."""

import re
from dataclasses import replace

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel, plots
from anamorph.geometry.pose import PoseFrame
from anamorph.report import write_report
from anamorph.report.held_out import measure_held_out
from anamorph.report.judging import judge_images
from anamorph.report.measures import examine
from tests.fitting.test_alignment import SPACE, ls
from tests.report.reports import latents, random_model, section_anchors


@pytest.fixture(scope="module")
def posed():
    """Return a model of letters that are shifted, turned and lit differently, and the letters."""
    draws, frame = np.random.default_rng(0), PoseFrame("rigid", SPACE, (1.0, 1.0))
    poses = draws.uniform(-1, 1, (8, 3)) * [3.5, 3.5, np.deg2rad(30)]
    images = ls(draws, poses, frame)
    images = images * draws.uniform(0.7, 1.4, (8, 1, 1)) + draws.normal(0, 0.01, images.shape)
    model = ShapeAppearanceModel(2, align="rigid", intensity="per image", n_iter=3, n_threads=1)
    return model.fit(images), images.astype(np.float32)


def drawn_rows(figure, n_columns):
    """Return the values of pictures, (rows, columns, y, x)."""
    pictures = [axes.images[0].get_array()[..., 0] for axes in figure.axes if axes.images]
    return np.reshape(np.array(pictures, np.float64), (-1, n_columns, *SPACE))


def test_fits_compare_images_with_reconstructions_that_lie_and_are_lit_as_they_are(posed):
    model, images = posed
    encoded = model.encode(images)
    for options in ({}, {"latents": encoded.latents}):
        rows = drawn_rows(plots.plot_fits(model, images, indices=[0, 3, 5], **options), 3)
        alike = [np.corrcoef(rows[0, n].ravel(), rows[1, n].ravel())[0, 1] for n in range(3)]
        assert min(alike) > 0.9
        assert np.abs(rows[0] - rows[1]).mean() < 0.05
    known = plots.plot_fits(model, images, encoded.latents, [3], poses=encoded.poses)
    assert np.allclose(drawn_rows(known, 1)[1, 0], rows[1, 1], atol=0.02)


def test_held_out_images_are_measured_in_their_poses(posed):
    model, images = posed
    measured = measure_held_out(model, images)
    assert measured.of_model.mean() < 0.6 * images.std(axis=(1, 2)).mean()
    # The mean too is brought to where the images are: it is a fair comparison.
    assert measured.of_mean.mean() < 2 * measured.of_model.mean()


@pytest.mark.slow
def test_a_report_tells_of_poses(posed, tmp_path):
    model, images = posed
    page = write_report(model, tmp_path / "report.html", images=images).read_text()
    assert "poses" in section_anchors(page)
    assert re.search(r"Turn, degrees</th>\s*<td>[\d.]+</td>\s*<td>[\d.]+</td>", page)
    assert "have the poses of the images and images are shown without the gain" in page
    assert "as their poses bring them onto the template" in page


def test_quality_and_report_agree_on_the_fit_per_voxel():
    model, images = random_model("categorical", n_channels=3)
    examined = examine(model, images, latents(), None)
    opened = model.checked_images(images)
    judged = judge_images(model, opened, latents(), [str(n) for n in range(len(opened))])
    found = {one.number: one.fit for one in judged}
    assert [found[n] for n in range(len(opened))] == pytest.approx(examined.fit)


def test_objectives_of_different_grids_are_not_compared(tmp_path):
    model, _ = random_model()
    model.objective_ = [-900.0, -800.0, 100.0, 200.0, 210.0]
    model.origin_ = replace(model.origin_, level_begins=(0, 2))
    first, second, border = plots.plot_objective(model).lines
    assert list(first.get_ydata()) == [-900, -800]
    assert list(second.get_xdata()) == [3, 4, 5]
    assert border.get_xdata()[0] == 2.5
    page = write_report(model, tmp_path / "report.html").read_text()
    assert "raised it by 10, 9.1 % of the whole rise on the last grid" in page


def test_the_legend_names_labels_as_the_images_do():
    images = np.array([0, 17, 53])[np.random.default_rng(0).integers(0, 3, (5, 8, 7))]
    model = ShapeAppearanceModel(1, likelihood="categorical", n_iter=1, n_threads=1).fit(images)
    (legend,) = plots.plot_modes(model).legends
    texts = [text.get_text().removesuffix(" (background)") for text in legend.get_texts()]
    assert texts == ["label 0", "label 17", "label 53"]
