"""Bad scans stand out on the page of quality, with the reason in words."""

import re

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, rotate

from anamorph import ShapeAppearanceModel
from anamorph.images.grid import Grid
from anamorph.report import write_quality
from anamorph.report.judging import REMARKABLE, _Deviations, _find_reasons, judge_images
from anamorph.report.oddities import Oddities, name_of_axis, sides_of_axis
from examples.raw.quality import rank_spoilt, spoil


def heads(number, seed=0, space=(40, 34)):
    """Return slices of a head with front and back, and the same in another contrast."""
    draws = np.random.default_rng(seed)
    rows, columns = np.indices(space)
    images, others = np.zeros((2, number, *space), np.float32)
    for n in range(number):
        y = (rows - space[0] / 2 - draws.normal(0, 0.5)) / (15 + draws.normal(0, 0.4))
        x = (columns - space[1] / 2 - draws.normal(0, 0.5)) / (11 + draws.normal(0, 0.4) + 3 * y)
        inside, core = x**2 + y**2 < 1, (x / 0.6) ** 2 + ((y + 0.15) / 0.5) ** 2 < 1
        dark = (np.abs(x) < 0.25) & (np.abs(y - 0.4) < 0.2)
        images[n] = gaussian_filter(0.5 * inside + 0.4 * core - 0.4 * dark, 0.8)
        others[n] = gaussian_filter(0.9 * core, 0.8)
    images += 0.01 * draws.standard_normal(images.shape).astype(np.float32)
    return images, others


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    images, others = heads(60)
    spoilt, kinds = spoil(images, others, 2, seed=1)
    path = tmp_path_factory.mktemp("quality") / "quality.html"
    return path, *rank_spoilt(spoilt, kinds, path, n_components=4, n_iter=4), kinds


def test_spoilt_images_come_first_for_the_right_reason(page):
    _, judged, ranks, n_told, kinds = page
    assert len(kinds) == 8
    assert ranks[-1] <= 10
    assert n_told >= 7
    assert sum(bool(one.reasons) for one in judged) <= 12  # others are not accused


def test_the_page_shows_and_lists_them(page):
    path, judged, *_ = page
    text = path.read_text()
    assert text.count("<img src=") == 2  # two rows of images
    assert "flipped: with top and bottom exchanged" in text
    assert re.search(r"tilted by about \d\d degrees", text)
    assert re.search(r"cropped: \d+ % of what others have is empty, at the (top|bottom)", text)
    assert "<dt>Stand out</dt>" in text
    assert judged[0].name in text


def test_empty_and_shifted_images_are_told():
    images, _ = heads(30)
    model = ShapeAppearanceModel(3, n_iter=2, n_threads=1).fit(images)
    odd = images.copy()
    odd[4] = 0
    odd[7] = np.roll(images[7], 6, axis=1)
    collection = model.checked_images(odd)
    judged = judge_images(model, collection, model.transform(collection), range(30))
    found = {one.name: one.reasons for one in judged[:2]}
    assert found["4"][0].startswith("empty")
    assert re.match(r"shifted: its content is [56] voxels towards the right side", found["7"][0])


def test_good_images_are_not_accused(tmp_path):
    images, _ = heads(40, seed=3)
    model = ShapeAppearanceModel(3, n_iter=3, n_threads=1).fit(images)
    judged = write_quality(
        model, tmp_path / "q.html", images, latents=model.latents_, table=tmp_path / "q.tsv"
    )
    assert sum(bool(one.reasons) for one in judged) <= 3
    header, *rows = (tmp_path / "q.tsv").read_text().splitlines()
    assert header.startswith("participant_id\toddness\treasons")
    assert len(rows) == 40


def test_sides_are_those_of_the_body_where_they_are_known():
    left_first = Grid((4, 4, 4), np.diag([1.0, -1, 1, 1]))
    assert sides_of_axis(0, left_first) == ("left", "right")
    assert name_of_axis(1, left_first) == "front and back"
    assert sides_of_axis(1, Grid((4, 4))) == ("left side", "right side")
    assert sides_of_axis(2, Grid((4, 4, 4))) == ("start of axis 2", "end of axis 2")


def test_an_image_that_no_pose_was_found_for_is_not_called_empty():
    images, _ = heads(12)
    model = ShapeAppearanceModel(1, n_iter=1, n_threads=1, align="translation").fit(images)
    collection, poses = model.checked_images(images), model.poses_.copy()
    poses[5] += 2 * max(images.shape)
    judged = judge_images(model, collection, model.latents_, range(12), poses)
    assert judged[0].name == "5"
    assert judged[0].reasons[0].startswith("elsewhere: nothing of it")
    assert judged[0].reasons[1].startswith("lies otherwise than others")


@pytest.mark.slow
def test_models_with_poses_compare_images_where_they_lie():
    """Heads that are all tilted are not accused of it, and one that is far from them is told."""
    images, _ = heads(14, seed=5)
    draws = np.random.default_rng(0)
    moved = np.stack(
        [
            rotate(np.roll(image, draws.integers(-2, 3), 1), draws.normal(0, 6), reshape=False)
            for image in images
        ]
    ).astype(np.float32)
    moved[3] = rotate(images[3], 30, reshape=False)
    moved[8] = images[8, ::-1]
    model = ShapeAppearanceModel(2, n_iter=2, n_threads=1, align="rigid").fit(moved)
    collection = model.checked_images(moved)
    judged = judge_images(model, collection, model.latents_, range(14), model.poses_)
    found = {one.name: " ".join(one.reasons) for one in judged}
    assert {one.name for one in judged[:2]} == {"3", "8"}
    assert "lies otherwise than others" in found["3"]
    assert "flipped: with top and bottom exchanged" in found["8"]


def test_an_image_that_is_ordinary_once_it_is_mirrored_is_flipped():
    """Of much the same images mirrored, gains by mirroring vary, and one more is not remarkable."""
    draws = np.random.default_rng(0)
    correlation, mirrored = draws.normal(0.95, 0.01, 20), draws.normal(-0.08, 0.06, (20, 2))
    correlation[3], mirrored[3] = 0.80, (0.14, -0.1)
    correlation[4], mirrored[4] = 0.80, (0.03, -0.1)  # of another kind
    nothing = np.zeros(20)
    rest = nothing, nothing, nothing, nothing, np.zeros((20, 2)), []
    odd = Oddities(correlation, mirrored, nothing[:, None], *rest)
    fit = np.where(np.arange(20) == 4, -9.0, -1.0)
    found = _Deviations.of(odd, fit, nothing, (1.0, 1.0))
    assert found.mirrored.max() < REMARKABLE
    reasons = [_find_reasons(n, odd, found, Grid((8, 8), None)) for n in range(20)]
    assert reasons[3][0].startswith("flipped: with top and bottom exchanged")
    assert reasons[4][0].startswith("of another contrast or kind")
    assert not any(told for n, told in enumerate(reasons) if n not in (3, 4))
