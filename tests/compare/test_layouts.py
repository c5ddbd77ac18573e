"""Held-out voxels: boxes of the right size, that nobody saw, scored by plain formulas."""

import matplotlib
import numpy as np
import pytest
from PIL import Image

from anamorph import ShapeAppearanceModel
from anamorph.compare.layouts import (
    Comparison,
    compare_layouts,
    hide_boxes,
    hide_rectangles,
    score_hidden,
)
from anamorph.images.collection import open_images
from anamorph.images.errors import ImageError
from anamorph.images.hidden import Boxes, HiddenImages
from anamorph.plots import plot_comparison

ARGUMENTS = {"n_iter": 2, "n_threads": 1}
LAYOUTS = ("joint", "separate", "shape", "appearance")


def blobs(n=10, space=(12, 10), seed=0):
    """Return bright discs at random places, with noise, (n, *space) from 0 to 1."""
    generator = np.random.default_rng(seed)
    rows, columns = np.indices(space)
    centres = np.array(space) / 2 + generator.standard_normal((n, 2))
    distance = np.hypot(
        rows - centres[:, 0, None, None], columns - centres[:, 1, None, None]
    )  # fmt: skip
    noise = 0.05 * generator.standard_normal((n, *space))
    return np.clip(1 / (1 + np.exp(2 * (distance - 3))) + noise, 0, 1)


def three_kinds():
    """Return, by likelihood, images and the other arguments of the model."""
    grey = blobs()
    colour = np.stack([grey, 1 - grey], axis=-1)
    colour[0, 3:9, 2:4, 1] = np.nan
    return {
        "gaussian": (colour, {"channel_axis": -1}),
        "bernoulli": (grey, {}),
        "categorical": ((grey > 0.3).astype(int) + (grey > 0.7), {}),
    }


# ---- boxes


@pytest.mark.parametrize("space", [(28, 28), (12, 10), (7, 9), (8, 6, 10), (16, 16, 16)])
@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.6])
def test_boxes_are_of_the_fraction_as_near_as_the_grid_allows(space, fraction):
    mask = hide_rectangles(np.zeros((50, 2, *space)), fraction, random_state=1)
    assert mask.shape == (50, *space)
    shares = mask.reshape(50, -1).mean(axis=1)
    assert np.ptp(shares) == 0
    side = fraction ** (1 / len(space)) * min(space)
    assert abs(shares[0] - fraction) <= fraction / side / 2 + 1e-12  # half a layer of voxels


def test_a_quarter_of_an_even_image_is_a_quarter():
    assert hide_rectangles(np.zeros((9, 1, 28, 28))).mean() == 0.25


def test_boxes_wrap_around_at_the_edges():
    mask = hide_rectangles(np.zeros((200, 1, 12, 10)))
    for image in mask:
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        assert (len(rows), len(columns)) == (6, 5)
        assert np.array_equal(image, np.outer(image.any(axis=1), image.any(axis=0)))
        assert np.sum(np.diff(np.append(rows, rows[0] + 12)) > 1) == 1  # one run, around the edge
    assert (mask[:, 0] & mask[:, -1]).any(axis=1).sum() > 50
    assert np.ptp(mask.mean(axis=0)) < 0.2  # every voxel is hidden about as often


def test_boxes_are_drawn_by_the_seed():
    images = np.zeros((20, 1, 12, 10))
    assert np.array_equal(hide_rectangles(images), hide_rectangles(images))
    assert not np.array_equal(hide_rectangles(images), hide_rectangles(images, random_state=1))


@pytest.mark.parametrize("fraction", [0, 1, -0.5, np.nan])
def test_fractions_that_are_none(fraction):
    with pytest.raises(ValueError, match="fraction must be between 0 and 1"):
        hide_rectangles(np.zeros((2, 1, 8, 8)), fraction)


def test_hidden_and_seen_are_all_there_is():
    images = blobs()
    images[0, 2:4] = np.nan
    boxes = Boxes.draw(10, (12, 10), 0.25, 0)
    hidden = HiddenImages(open_images(images, "gaussian"), boxes)
    part = slice(0, 7)
    seen, unseen = hidden.read(part)[:, 0], hidden.read_hidden(part)[:, 0]
    assert np.isnan(seen[boxes.mask(part)]).all()
    assert np.isnan(unseen[~boxes.mask(part)]).all()
    whole = np.where(np.isnan(seen), unseen, seen)
    assert np.array_equal(whole, images[part].astype(np.float32), equal_nan=True)


def test_an_image_that_is_hidden_whole():
    images = np.full((3, 8, 8), np.nan)
    boxes = Boxes.draw(3, (8, 8), 0.25, 0)
    images[boxes.mask()] = np.random.default_rng(0).random(3 * 16)
    with pytest.raises(ImageError, match="image 0 has nothing to see outside its hidden box"):
        HiddenImages(open_images(images, "gaussian"), boxes).check(for_fit=True)


# ---- scores


def test_what_is_hidden_does_not_influence_the_fit():
    images = blobs()
    other = images.copy()
    other[hide_rectangles(images[:, None])] = 0.123
    one, two = (
        ShapeAppearanceModel(2, **ARGUMENTS).fit(
            HiddenImages(open_images(some, "gaussian"), Boxes.draw(10, (12, 10), 0.25, 0))
        )
        for some in (images, other)
    )
    assert np.array_equal(one.mean_, two.mean_)
    assert np.array_equal(one.shape_basis_, two.shape_basis_)
    assert np.array_equal(one.latents_, two.latents_)


def plain_log_likelihood(likelihood, expected, truth, variance):
    """Return ln p of images (N, C, *space) given their expectation, without what is NaN."""
    if likelihood == "gaussian":
        values = -((truth - expected) ** 2) / (2 * variance) - np.log(2 * np.pi * variance) / 2
    elif likelihood == "bernoulli":
        values = truth * np.log(expected) + (1 - truth) * np.log(1 - expected)
    else:
        values = truth * np.log(expected)
    return np.nansum(values, axis=(1, 2, 3))


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
def test_scores_are_those_of_plain_formulas(likelihood):
    images, arguments = three_kinds()[likelihood]
    arguments = {"likelihood": likelihood, **arguments, **ARGUMENTS}
    found = compare_layouts(images, 2, layouts=["joint"], random_state=3, **arguments)

    opened = open_images(images, likelihood, arguments.get("channel_axis"))
    hidden = HiddenImages(opened, Boxes.draw(10, (12, 10), 0.25, 3))
    model = ShapeAppearanceModel(2, random_state=3, **arguments).fit(hidden)
    expected, deviation = (
        values[:, None] if values.ndim == 3 else np.moveaxis(values, -1, 1)
        for values in map(np.float64, model.impute(hidden, return_std=True))
    )
    truth = np.float64(hidden.read_hidden(slice(None)))
    expected = np.where(np.isnan(truth), 0.5, expected)
    variance = np.where(np.isnan(truth), 1.0, deviation**2)  # what was seen has no truth
    log_likelihood = plain_log_likelihood(likelihood, expected, truth, variance)
    assert np.allclose(found.log_likelihood["joint"], log_likelihood, rtol=1e-4, atol=1e-3)
    squares = np.nansum((expected - truth) ** 2, axis=(1, 2, 3))
    assert np.allclose(found.squared_error["joint"], squares, rtol=1e-5)
    assert np.array_equal(found.n_hidden, np.full(10, 30))


def test_a_stored_model_scores_as_in_the_comparison(tmp_path):
    arguments = {"likelihood": "bernoulli", "latents": "joint", **ARGUMENTS}
    model = ShapeAppearanceModel(2, random_state=3, **arguments)
    hidden = hide_boxes(blobs(), model, random_state=3)
    model.fit(hidden).save(tmp_path / "model.safetensors")
    stored = ShapeAppearanceModel.load(tmp_path / "model.safetensors")
    log_likelihood, squared_error, n_hidden = score_hidden(stored, hidden)
    del arguments["latents"]
    found = compare_layouts(blobs(), 2, layouts=["joint"], random_state=3, **arguments)
    assert np.allclose(log_likelihood, found.log_likelihood["joint"], rtol=1e-5)
    assert np.allclose(squared_error, found.squared_error["joint"], rtol=1e-5)
    assert np.array_equal(n_hidden, found.n_hidden)


def test_voxels_without_truth_are_not_counted():
    images = blobs()
    images[:, :4] = np.nan
    found = compare_layouts(images, 2, layouts=["appearance"], **ARGUMENTS)
    expected = hide_rectangles(images[:, None])[:, 4:].sum(axis=(1, 2))
    assert np.array_equal(found.n_hidden, expected)
    assert np.isfinite(found.log_likelihood["appearance"]).all()


def test_layouts_share_their_number_of_latents():
    steps = []
    found = compare_layouts(
        blobs(), 3, progress=lambda layout, step: steps.append((layout, step.n_done)), **ARGUMENTS
    )
    assert found.layouts == LAYOUTS
    assert steps == [(layout, n) for layout in LAYOUTS for n in (1, 2)]
    for scores in (found.log_likelihood, found.squared_error):
        assert list(scores) == list(LAYOUTS)
        assert all(values.shape == (10,) for values in scores.values())


def test_files_are_compared_as_arrays_are(tmp_path):
    images = np.uint8(np.round(255 * blobs()))
    paths = [tmp_path / f"{n}.png" for n in range(10)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    # Starting latents depend on the names of images, and so do fits; the mean alone does not.
    only_mean = {"layouts": ["appearance"], "n_iter": 0, "decimation": 1.0}
    one, two = compare_layouts(images, 2, **only_mean), compare_layouts(paths, 2, **only_mean)
    assert np.array_equal(one.n_hidden, two.n_hidden)
    assert np.allclose(one.squared_error["appearance"], two.squared_error["appearance"])
    assert np.allclose(one.log_likelihood["appearance"], two.log_likelihood["appearance"])
    fitted = compare_layouts(paths, 2, layouts=["joint"], **ARGUMENTS)
    assert fitted.squared_error["joint"].sum() < two.squared_error["appearance"].sum()


@pytest.mark.parametrize(
    ("n_components", "arguments", "message"),
    [
        (2, {"layouts": ["both"]}, "a layout must be one of"),
        (2, {"layouts": []}, "layouts must be some of"),
        (1, {}, "n_components must be at least 2 for layout 'separate'"),
        (2, {"likelihood": "student"}, "likelihood must be one of"),
        (2, {"fraction": 2}, "fraction must be between 0 and 1"),
    ],
)
def test_what_cannot_be_compared(n_components, arguments, message):
    with pytest.raises(ValueError, match=message):
        compare_layouts(blobs(), n_components, **arguments)


def test_hidden_images_are_not_hidden_again():
    hidden = HiddenImages(open_images(blobs(), "gaussian"), Boxes.draw(10, (12, 10), 0.25, 0))
    with pytest.raises(TypeError, match="must not have hidden boxes already"):
        compare_layouts(hidden, 2)


# ---- the picture


def random_comparison(n=30):
    generator = np.random.default_rng(0)
    return Comparison(
        LAYOUTS,
        {layout: generator.normal(-50 - 5 * k, 10, n) for k, layout in enumerate(LAYOUTS)},
        {layout: generator.gamma(4 + k, size=n) for k, layout in enumerate(LAYOUTS)},
        np.full(n, 30),
    )


def test_the_picture_shows_every_image_and_the_means():
    comparison = random_comparison()
    figure = plot_comparison(comparison)
    scores = (comparison.log_likelihood, comparison.squared_error)
    for axes, values in zip(figure.axes, scores, strict=True):
        dots = [c for c in axes.collections if isinstance(c, matplotlib.collections.PathCollection)]
        bars = [c for c in axes.collections if isinstance(c, matplotlib.collections.LineCollection)]
        for layout, column, bar in zip(LAYOUTS, dots, bars, strict=True):
            assert np.allclose(column.get_offsets()[:, 1], values[layout] / 30)
            assert np.allclose(bar.get_segments()[0][:, 1], values[layout].mean() / 30)
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert [label.split("\n")[0] for label in labels] == list(LAYOUTS)
        gaps = (values["shape"] - values["joint"]) / 30
        assert labels[2] == f"shape\n{gaps.mean():+.2g}\n± {gaps.std(ddof=1) / 30**0.5:.1g}"
    figure.canvas.draw()


def test_the_picture_goes_into_a_figure_and_needs_something_to_show():
    figure = matplotlib.figure.Figure()
    assert plot_comparison(random_comparison(1), figure=figure) is figure
    empty = random_comparison(3)
    empty.n_hidden[:] = 0
    with pytest.raises(ValueError, match="no hidden voxel whose truth is known"):
        plot_comparison(empty)
