"""What a page holds: the model as it says, nobody's data unless given, no text that runs."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from anamorph import write_explorer
from anamorph.explorer import ExplorerError
from anamorph.explorer.bundle import BundleError, joined_modules
from anamorph.explorer.packing import pack_model
from anamorph.explorer.write import make_page
from anamorph.latents import draw_latents
from anamorph.model.generator import Generator
from anamorph.model.settings import LatentLayout
from anamorph.storage.errors import WriteError
from tests.conftest import one_line
from tests.explorer.models import EVIL, KINDS, K, N, facts_in, latents_of, model_of


class Scripts(HTMLParser):
    """Collects scripts, styles, and every attribute of a page."""

    def __init__(self):
        super().__init__()
        self.open, self.found, self.attributes, self.tags = None, [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag in ("script", "style"):
            self.open = (tag, dict(attrs))

    def handle_data(self, data):
        if self.open:
            self.found.append((*self.open, data))

    def handle_endtag(self, tag):
        if self.open and tag == self.open[0]:
            self.open = None


def parsed(page):
    parser = Scripts()
    parser.feed(page)
    return parser


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_in_the_page_is_nearer_to_the_model_than_float16(kind):
    model, _ = model_of(kind)
    packed = pack_model(model, np.inf)
    exact = model.generator_
    halved = Generator(
        exact.settings,
        replace(
            exact.parameters,
            appearance_basis=np.float32(np.float16(model.appearance_basis_)),
            shape_basis=np.float32(np.float16(model.shape_basis_)),
        ),
    )
    latents = draw_latents(model.latent_precision_, 4, np.random.default_rng(3))
    for part in ({}, {"warped": False}, {"coloured": False}):
        expected = exact.expected_images(latents, **part)
        errors = [
            np.abs(one.expected_images(latents, **part) - expected).max()
            for one in (packed.stored, halved)
        ]
        assert errors[0] < 0.75 * errors[1]
    np.testing.assert_array_equal(packed.facts["space"], model.settings_.space)


def test_the_page_says_how_far_it_is_from_the_model():
    model, _ = model_of("faces")
    packed = pack_model(model, np.inf)
    latents = draw_latents(model.latent_precision_, 50, np.random.default_rng(8))
    exact = model.generator_.expected_images(latents)
    error = np.abs(packed.stored.expected_images(latents) - exact).max() / np.ptp(exact)
    assert 0.1 < packed.facts["storedError"] / error < 10


def test_modes_that_do_not_fit_are_dropped_from_the_end():
    model, _ = model_of("faces", 8)
    whole = pack_model(model, np.inf)
    sizes = [sum(map(len, mode.values())) for mode in whole.modes]
    packed = pack_model(model, len(whole.mean) + sum(sizes[:5]))
    assert [mode["latent"] for mode in packed.facts["modes"]] == [1, 2, 3, 4, 5]
    assert packed.facts["nLatents"] == 8
    assert not packed.stored.parameters.shape_basis[5:].any()
    assert packed.stored.parameters.shape_basis[4].any()
    assert packed.facts["storedError"] > 0.01  # the page says what is lost
    covariance = np.linalg.inv(model.latent_precision_)[:5, :5]
    factor = np.array(packed.facts["drawFactor"])
    np.testing.assert_allclose(factor @ factor.T, covariance, rtol=1e-10)


def test_separate_latents_are_dropped_from_the_longer_block():
    model, _ = model_of("faces", 4)
    settings = replace(
        model.settings_,
        layout=LatentLayout(n_latents=4, n_appearance=1, n_shape=3, first_shape=1),
    )
    parameters = replace(
        model.generator_.parameters,
        appearance_basis=model.appearance_basis_[:1],
        shape_basis=model.shape_basis_[:3],
    )
    model._set_fitted(model.image_format_, settings, parameters, [], model.origin_)
    whole = pack_model(model, np.inf)
    assert [mode["shape"] for mode in whole.facts["modes"]] == [None, 0, 1, 2]
    assert [mode["appearance"] for mode in whole.facts["modes"]] == [0, None, None, None]
    needed = len(whole.mean) + sum(len(c) for m in whole.modes for c in m.values())
    packed = pack_model(model, needed - 1)
    assert [mode["latent"] for mode in packed.facts["modes"]] == [1, 2, 3]


def test_a_budget_too_small_for_one_mode_is_an_error():
    model, _ = model_of("labels")
    with pytest.raises(ExplorerError) as error:
        pack_model(model, 100)
    assert "raise the budget" in one_line(error)


@pytest.mark.parametrize("given", [0.1, float("nan"), -1.0])
def test_a_budget_that_holds_no_page_is_an_error(given, tmp_path):
    model, _ = model_of("digits")
    with pytest.raises(ExplorerError) as error:
        write_explorer(model, tmp_path / "e.html", max_megabytes=given)
    assert "max_megabytes must be at least" in one_line(error)
    assert list(tmp_path.iterdir()) == []


def test_a_page_keeps_its_budget_and_leaves_out_images(tmp_path):
    model, _ = model_of("digits")
    images = np.random.default_rng(0).random((500, 28, 28)).astype(np.float32)
    path = tmp_path / "e.html"
    write_explorer(model, path, images=images, latents=latents_of(500), max_megabytes=0.4)
    people = facts_in(path.read_text(encoding="utf-8"))["people"]
    assert 0.35e6 < path.stat().st_size <= 0.4e6
    assert 0 < people["nPictures"] < 500
    assert len(people["names"]) == 500


def test_nobody_is_in_a_page_unless_given():
    model, images = model_of("digits")
    model.latents_ = latents_of()  # as after a fit
    assert facts_in(make_page(model))["people"] is None
    people = facts_in(make_page(model, latents=model.latents_))["people"]
    np.testing.assert_allclose(people["latents"], model.latents_, rtol=1e-5)
    assert people["nPictures"] == 0
    people = facts_in(make_page(model, images=images, latents=model.latents_))["people"]
    assert people["nPictures"] == N


def test_a_page_knows_that_images_have_poses():
    model, _ = model_of("digits")
    assert not facts_in(make_page(model))["hasPoses"]
    posed = replace(model.settings_, align="rigid")
    model._set_fitted(model.image_format_, posed, model.generator_.parameters, [], model.origin_)
    assert facts_in(make_page(model))["hasPoses"]


def test_images_are_encoded_where_latents_are_not_given():
    model, images = model_of("digits")
    people = facts_in(make_page(model, images=images[:2]))["people"]
    np.testing.assert_allclose(people["latents"], model.transform(images[:2]), rtol=1e-4)


def test_covariates_are_numbers_or_texts():
    model, _ = model_of("digits")
    values = {
        "age": [30, 40.5, None] * 3,
        "sex": ["f", "m", None] * 3,
        "mixed": [1, "b", None] * 3,
        "none": [None] * N,
    }
    columns = facts_in(make_page(model, latents=latents_of(), covariates=values))["people"][
        "columns"
    ]
    assert [column["kind"] for column in columns] == ["number", "text", "text", "text"]
    assert columns[0]["values"][:3] == [30, 40.5, None]
    assert columns[2]["values"][:3] == ["1", "b", None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"names": ["a"]}, "names are of images"),
        ({"covariates": {"a": [1]}}, "covariates are of images"),
        ({"latents": latents_of(), "names": ["a"]}, f"names must be {N}"),
        ({"latents": latents_of(), "covariates": {"a": [1]}}, f"'a' must have {N} values"),
        ({"latents": np.zeros((4, K + 1))}, "latents must be 4 x 3"),
    ],
)
def test_what_does_not_fit_together_is_an_error(given, message):
    model, _ = model_of("digits")
    with pytest.raises(ValueError, match=message) as error:
        make_page(model, **given)
    one_line(error)


def test_a_folder_that_is_not_there_is_found_before_the_work(tmp_path):
    with pytest.raises(WriteError, match="does not exist"):
        write_explorer(model_of("digits")[0], tmp_path / "no" / "e.html")


def test_no_text_in_a_page_can_end_its_place():
    model, images = model_of("digits")
    page = make_page(
        model, images=images, latents=latents_of(), names=[f"{EVIL} {n}" for n in range(N)],
        covariates={EVIL: [EVIL] * N}, title=EVIL,
    )  # fmt: skip
    found = parsed(page)
    assert [(tag, attributes.get("id")) for tag, attributes, _ in found.found] == [
        ("style", None),
        *(("script", name) for name in ("facts", "data", "worker", None)),
    ]
    assert "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    facts = facts_in(page)
    assert facts["title"] == EVIL
    assert facts["people"]["names"][0] == f"{EVIL} 0"


def test_the_policy_allows_the_script_and_the_style_of_the_page_and_no_other():
    page = make_page(model_of("digits")[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag, attributes, text in parsed(page).found:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed = f"'sha256-{digest}'" == rules["script-src" if tag == "script" else "style-src"]
        is_data = attributes.get("type") in ("application/json", "text/plain")
        assert allowed != is_data


def test_pages_do_not_use_markup_or_texts_as_code():
    script = joined_modules("page.js") + joined_modules("worker.js")
    banned = (
        *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("),
        *("fetch(", "XMLHttpRequest", "WebSocket", "http:", "https:"),
    )
    assert [word for word in banned if word in script] == []


def test_modules_that_cannot_be_joined_are_an_error(tmp_path):
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nconst same = 1;\n')
    (tmp_path / "b.js").write_text("export function b() {}\nconst same = 2;\n")
    with pytest.raises(BundleError, match="both declare same"):
        joined_modules("a.js", tmp_path)
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\nexport function b() {}\n')
    with pytest.raises(BundleError, match="circle"):
        joined_modules("a.js", tmp_path)
    (tmp_path / "b.js").write_text("export default 1;\n")
    with pytest.raises(BundleError, match="form"):
        joined_modules("a.js", tmp_path)
    (tmp_path / "b.js").write_text('export const b = "</script>";\n')
    with pytest.raises(BundleError, match="end a script"):
        joined_modules("a.js", tmp_path)


def test_a_likelihood_that_the_page_does_not_know_is_an_error():
    model, _ = model_of("digits")
    other = replace(model.settings_, likelihood_name="gamma")
    model._set_fitted(model.image_format_, other, model.generator_.parameters, [], model.origin_)
    with pytest.raises(ExplorerError) as error:
        pack_model(model, np.inf)
    assert "gamma" in one_line(error)


def test_notebooks_show_the_page_in_a_frame(tmp_path):
    model, _ = model_of("digits")
    explorer = model.explore(title="a & b")
    frame = explorer._repr_html_()
    assert frame.startswith("<iframe")
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert "a &amp;amp; b" in frame
    path = explorer.save(tmp_path / "e.html")
    assert path.read_text(encoding="utf-8") == explorer.page
    assert "MB" in repr(explorer)


def test_latents_are_finite(tmp_path):
    model, _ = model_of("digits")
    latents = latents_of()
    latents[1, 0] = np.nan
    with pytest.raises(ExplorerError, match="latents must be finite"):
        write_explorer(model, tmp_path / "a.html", latents=latents)
