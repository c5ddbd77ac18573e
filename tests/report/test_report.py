"""The page: what is in it, what is not read, what is escaped, and that it is whole or not there."""

import copy
import errno
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

from anamorph import ShapeAppearanceModel
from anamorph.fitting.run import duration
from anamorph.images.files import FileImages
from anamorph.plots import plot_log_jacobian
from anamorph.report import write_report
from anamorph.report.figures import warps_figure
from anamorph.report.markup import Section, format_number, format_percent, short_names
from anamorph.report.measures import examine, mode_shares
from anamorph.report.sections import warps_section
from anamorph.storage.errors import WriteError
from tests.images.filemaking import rotated_affine, save_array, save_nifti
from tests.report.reports import SECTIONS, K, N, latents, random_model, section_anchors

VOID = {"meta", "img", "br", "link"}


class Nesting(HTMLParser):
    """Fails where a tag is closed that is not open; knows what is still open at the end."""

    def __init__(self):
        super().__init__()
        self.open, self.pictures, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.pictures.append(dict(attributes))
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page):
    parser = Nesting()
    parser.feed(page)
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def grey():
    return random_model()


@pytest.fixture(scope="module")
def page(report):
    return report.read_text(encoding="utf-8")


# ---- what is in it


def test_all_sections_are_there_and_linked(page):
    assert section_anchors(page) == SECTIONS
    links = [link[1:] for link in parsed(page).links if link.startswith("#")]
    assert links == ["content", *SECTIONS]


def test_it_needs_nothing_from_elsewhere(page):
    parser = parsed(page)
    *figures, dialog = parser.pictures
    assert dialog == {"alt": ""}
    assert len(figures) >= 9
    for picture in figures:
        assert re.match(r"data:image/(png|svg\+xml);base64,", picture["src"])
        assert picture["alt"]
    outside = [link for link in parser.links if not link.startswith("#")]
    assert outside == ["https://doi.org/10.1016/j.media.2019.04.008"]
    assert len(page) < 8e6


def test_numbers_are_said_in_words(page):
    assert "14 images of 12 × 10 pixels" in page
    assert "raised it by 1, 20 % of the whole rise: more iterations may still help" in page
    assert "In all 5.2 s; the median iteration took 1.2 s, or 86 ms per image" in page
    assert "10.1016/j.media.2019.04.008" in page


def test_settings_say_which_are_defaults(page):
    assert "(default: those of the likelihood)" in page
    rows = re.findall(r'<th scope="row">([^<]+)</th><td>([^<]*)</td>', page)
    assert dict(rows)["Latents"] == "3 (joint)"
    assert dict(rows)["Likelihood"] == "bernoulli"
    assert "object at 0x" not in page
    assert dict(rows)["Tolerance"] == "none (default)"


def test_without_images_and_latents_the_rest_is_there(grey, tmp_path):
    model, _ = grey
    page = write_report(model, tmp_path / "r.html").read_text(encoding="utf-8")
    absent = {"fits", "latents", "outliers"}
    assert section_anchors(page) == [name for name in SECTIONS if name not in absent]
    assert "The first modes" in page


def test_models_that_do_not_warp_have_no_section_of_warps(tmp_path):
    images = np.random.default_rng(0).random((6, 8, 8)) > 0.5
    model = ShapeAppearanceModel(2, likelihood="bernoulli", latents="appearance", n_iter=1)
    path = write_report(model.fit(images), tmp_path / "r.html", images=images)
    assert "warps" not in section_anchors(path.read_text(encoding="utf-8"))


def test_separate_modes_are_told_apart(tmp_path):
    images = np.random.default_rng(0).random((8, 8, 8)) > 0.5
    model = ShapeAppearanceModel((2, 1), likelihood="bernoulli", latents="separate", n_iter=1)
    page = write_report(model.fit(images), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Modes of appearance: all 2" in page
    assert "Modes of shape: all 1" in page
    assert "2 for appearance, 1 for shape (separate)" in page


@pytest.mark.slow
def test_volumes_with_an_affine_say_where_left_is(tmp_path):
    model, images = random_model("categorical", (8, 6, 7), 3, affine=rotated_affine())
    paths = [
        save_nifti(tmp_path / f"{n}.nii", labels.astype(np.int16), rotated_affine())
        for n, labels in enumerate(images)
    ]
    path = write_report(model, tmp_path / "r.html", images=paths, latents=latents())
    page = path.read_text(encoding="utf-8")
    assert section_anchors(page) == SECTIONS
    assert "the left of the patient is on the left" in page


# ---- what people write


def test_texts_are_escaped(page):
    assert "<script>alert" not in page
    assert "<title>&lt;script&gt;" in page
    assert "coloured by &lt;script&gt;" in page


def test_a_dollar_above_a_warp_is_no_formula(grey):
    model, _ = grey
    warps_figure(model, latents(1), [r"$\frac"], None, None).draw_without_rendering()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["a"]}, "names must be 14, one for each image, got 1"),
        ({"latents": np.zeros((3, K))}, "latents must be 14 x 3"),
        ({"labels": ["a"]}, "labels must be 14, one for each image, got 1"),
    ],
)
def test_errors_say_what_is_accepted(grey, tmp_path, options, message):
    model, images = grey
    arguments = {"images": images, "latents": latents()} | options
    with pytest.raises(ValueError, match=message) as error:
        write_report(model, tmp_path / "r.html", **arguments)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["names", "labels"])
def test_names_and_labels_of_nothing_are_explained(grey, tmp_path, what):
    model, _ = grey
    with pytest.raises(ValueError, match=f"{what} are of images: give `images`, or"):
        write_report(model, tmp_path / "r.html", **{what: ["a"] * N})


def test_models_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted"):
        write_report(ShapeAppearanceModel(3), tmp_path / "r.html")


# ---- whole or not at all


def test_a_full_disk_leaves_the_old_report(grey, tmp_path, monkeypatch):
    model, _ = grey
    path = tmp_path / "r.html"
    path.write_text("old")

    def no_space(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("anamorph.report.write._make_sections", lambda *_: [])  # which take long
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_report(model, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_explained(grey, tmp_path):
    model, _ = grey
    with pytest.raises(WriteError, match=r"does not exist: create it, then write r.html"):
        write_report(model, tmp_path / "none" / "r.html")


# ---- what is looked at


def test_few_of_many_files_are_read(grey, tmp_path, monkeypatch):
    model, images = grey
    monkeypatch.setattr("anamorph.report.measures._MOST_IMAGES", 4)
    monkeypatch.setattr("anamorph.report.measures._FEWEST_IMAGES", 1)
    paths = [save_array(tmp_path / f"{n}.npy", image) for n, image in enumerate(images)]
    collection = model.open_files(paths)
    read = set()
    load = FileImages._read_intensities

    def spy(self, n):
        read.add(self.name(n))
        return load(self, n)

    monkeypatch.setattr(FileImages, "_read_intensities", spy)
    examined = examine(model, collection, latents(), None)
    assert len(read) == 4
    assert examined.names == ["0", "4", "9", "13"]
    assert examined.n_images == N
    np.testing.assert_array_equal(examined.latents, latents()[[0, 4, 9, 13]])


def test_images_without_latents_are_encoded(grey):
    model, images = grey
    np.testing.assert_array_equal(
        examine(model, images[:3], None, None).latents, model.transform(images[:3])
    )


@pytest.fixture
def shown(monkeypatch):
    """What goes into the sections of fits, warps and latents, which are not drawn."""
    given = {}

    def keep(name):
        def section(*arguments):
            given[name] = arguments
            return Section(name, name, "")

        return section

    for name in ("mean", "modes", "samples", "fits", "warps", "latents", "fit"):
        monkeypatch.setattr(f"anamorph.report.write.{name}_section", keep(name))
    return given


def test_latents_of_a_fit_are_not_those_of_other_images(grey, shown, tmp_path):
    model, images = copy.copy(grey[0]), grey[1]
    model.latents_ = latents()
    write_report(model, tmp_path / "r.html", images=images)
    np.testing.assert_array_equal(shown["latents"][1], model.transform(images))
    write_report(model, tmp_path / "r.html")
    np.testing.assert_array_equal(shown["latents"][1], latents())


def test_all_images_with_labels_are_encoded_and_others_only_where_they_are_shown(
    grey, shown, tmp_path, monkeypatch
):
    model, images = grey
    monkeypatch.setattr("anamorph.report.measures._MOST_IMAGES", 4)
    monkeypatch.setattr("anamorph.report.measures._FEWEST_IMAGES", 1)
    write_report(model, tmp_path / "r.html", images=images)
    assert len(shown["latents"][1]) == 4
    write_report(model, tmp_path / "r.html", images=images, labels=["a", "b"] * (N // 2))
    np.testing.assert_array_equal(shown["latents"][1], model.transform(images))


def test_warps_of_latents_without_images_have_names(grey, monkeypatch):
    model, _ = grey
    titles = []

    def warps_figure(model, codes, names, *_):
        titles.extend(names)
        return Figure((1, 1))

    monkeypatch.setattr("anamorph.report.sections.warps_figure", warps_figure)
    shares = mode_shares(model)
    warps_section(model, None, latents(), [f"face-{n}" for n in range(N)], shares, None)
    assert titles == ["face-0", "face-4", "face-8", "face-13"]


def test_fits_are_ordered_by_what_voxels_say(grey):
    model, _ = grey
    codes = latents()
    images = (model.inverse_transform(codes) > 0.5).astype(np.float32)
    images[5] = 1 - images[5]
    images[7, :6] = np.nan  # half of it is not observed, which is no reason to be last
    examined = examine(model, images, codes, None)
    assert examined.order[-1] == 5
    assert examined.pick_evenly(3)[0] == examined.order[0]
    assert examined.pick_evenly(3)[-1] == 5
    expected = model.log_likelihood(images[7:8], codes[7:8])[0] / 60
    assert examined.fit[7] == pytest.approx(expected)


# ---- numbers


def test_shares_of_modes_sum_to_one_and_grow_with_the_mode(grey):
    model, _ = grey
    shares = mode_shares(model)
    assert shares.together.sum() == pytest.approx(1)
    assert (shares.shape >= 0).all()
    louder, _ = random_model()
    louder.appearance_basis_ = louder.appearance_basis_.copy()
    louder.appearance_basis_[1] *= 3
    assert mode_shares(louder).appearance[1] > shares.appearance[1]


def test_small_modes_carry_what_images_say():
    model, _ = random_model("gaussian")
    model.shape_basis_ *= 0.05  # warps that are small are those of first order
    deviation = np.sqrt(np.diag(np.linalg.inv(model.latent_precision_)))
    mean = model.inverse_transform(np.zeros((1, K)))
    variances = [
        np.square(model.inverse_transform([row, -row]) - mean).sum() for row in np.diag(deviation)
    ]
    np.testing.assert_allclose(
        mode_shares(model).together, np.array(variances) / sum(variances), rtol=0.01
    )


def test_larger_in_the_image_is_the_opposite_of_larger_in_the_mean():
    displacement = np.random.default_rng(0).random((2, 6, 6)).astype(np.float32) / 4
    one = plot_log_jacobian(displacement, has_colour_bar=False)
    other = plot_log_jacobian(displacement, of_image=True)
    np.testing.assert_allclose(one.images[0].get_array(), -other.images[0].get_array())
    assert (len(one.figure.axes), len(other.figure.axes)) == (1, 2)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "image 12"], ["a", "image 12"]),
        (["hippocampus_010_label", "hippocampus_011_label"], ["010", "011"]),
        (["abcdefghijkl", "mnopqrstuvwx"], ["abcd…ijkl", "mnop…uvwx"]),
        (["the same name"] * 2, ["name"] * 2),
    ],
)
def test_names_are_short_and_still_tell_images_apart(names, expected):
    assert short_names(names, 9) == expected


def test_numbers_for_people():
    times = [duration(seconds) for seconds in (0, 0.0012, 0.0997, 0.42, 41, 720, 11520)]
    assert times == ["0 s", "1.2 ms", "0.1 s", "0.42 s", "41 s", "12 min", "3.2 h"]
    assert [format_percent(share) for share in (0.234, 0.0512)] == ["23 %", "5.1 %"]
    assert [format_number(value) for value in (-0.01234, 2881.4)] == ["−0.0123", "2,881"]
