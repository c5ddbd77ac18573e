"""The explorer in a browser without a network: its pictures, its controls, and what it may do."""
# ruff: noqa: E501

import base64
import io
import json

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from anamorph.explorer.packing import pack_model
from anamorph.explorer.write import write_explorer
from tests.explorer.browser import BROWSER, Browser
from tests.explorer.models import EVIL, KINDS, N, latents_of, model_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None, reason="no browser: install chromium or chrome to test the explorer in it"
    ),
]

# Returns numbers as base64, which is quicker than JSON.
ENCODE = """const encode = (array) => {
  const bytes = new Uint8Array(array.buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
};"""
# Keeps what would be downloaded.
CATCH = """window.caught = [];
window.make ??= URL.createObjectURL;
URL.createObjectURL = (blob) => { window.caught.push(blob); return window.make(blob); };
HTMLAnchorElement.prototype.click = function () { window.caughtName = this.download; };"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Return a browser without a network."""
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the address of a page of every kind, with people in it but for volumes."""
    folder = tmp_path_factory.mktemp("pages")

    def write(kind):
        model, images = model_of(kind)
        people = {} if kind == "volumes" else {
            "images": images,
            "latents": latents_of(),
            "names": [f"{EVIL} {n}" for n in range(N)],
            "covariates": {"age": list(range(N)), EVIL: [EVIL, "b", None] * 3},
        }  # fmt: skip
        return write_explorer(model, folder / f"{kind}.html", title=EVIL, **people).as_uri()

    return {kind: write(kind) for kind in KINDS}


def start(browser, address, *arguments, **options):
    """Open a page and wait until it shows its first picture."""
    browser.open(address, *arguments, **options)
    browser.run("await explorer;")


def picture_in(browser, z, part="both", resolution="full"):
    answer = browser.run(
        f"{ENCODE} const {{ image }} = await (await explorer)"
        f".picture({json.dumps(list(z))}, {part!r}, {resolution!r}); return encode(image);"
    )
    return np.frombuffer(base64.b64decode(answer), np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_those_of_the_stored_model(browser, pages, kind):
    start(browser, pages[kind])
    stored = pack_model(model_of(kind)[0], np.inf).stored
    for part, how in (
        ("both", {}),
        ("shape", {"coloured": False}),
        ("appearance", {"warped": False}),
    ):
        for z in latents_of(2):
            expected = stored.expected_images(z[None], **how)[0]
            found = picture_in(browser, z, part).reshape(expected.shape)
            assert np.abs(found - expected).max() < 1e-4 * np.ptp(expected)


def test_nothing_is_asked_for_and_no_text_runs(browser, pages):
    start(browser, pages["faces"])
    browser.run("const e = await explorer; await e.comparison.select(0); e.map.colourBy(1);")
    assert {address.partition(":")[0] for address in browser.requests} <= {"file", "blob"}
    assert browser.console == []
    assert browser.evaluate("document.querySelectorAll('img, [onerror]').length") == 0
    assert browser.evaluate("document.querySelector('h1').textContent") == EVIL
    assert browser.evaluate("document.querySelector('.compare h2').textContent") == f"{EVIL} 0"
    refused = browser.run(
        """const refused = [];
        addEventListener("securitypolicyviolation", (event) => refused.push(event.violatedDirective));
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        document.body.append(Object.assign(document.createElement("img"), { src: "https://example.org/a.png" }));
        try { await fetch("https://example.org/"); } catch { refused.push("fetch"); }
        await new Promise((resolve) => setTimeout(resolve, 100));
        return [refused.map((name) => name.split("-")[0]), window.ran === undefined];"""
    )
    assert set(refused[0]) == {"script", "img", "connect", "fetch"}
    assert refused[1]


def test_a_page_says_whose_data_it_holds(browser, pages):
    start(browser, pages["digits"])
    notice = browser.evaluate("document.querySelector('.personal').textContent")
    assert "holds data of individuals" in notice
    assert f"names, latents, covariates and images of {N}" in notice
    start(browser, pages["volumes"])
    assert browser.evaluate("document.querySelector('.personal')") is None


def test_latents_are_moved_by_keys_numbers_and_buttons(browser, pages):
    start(browser, pages["digits"])
    values = "Array.from((await explorer).latents.values)"
    browser.evaluate("document.querySelector('input[type=range]').focus()")
    for _ in range(3):
        browser.press("ArrowRight", 39)
    assert browser.run(f"return {values}") == pytest.approx([0.03, 0, 0])
    browser.run(
        """const number = document.querySelectorAll(".row input[type=number]")[1];
        number.value = "-1.5"; number.dispatchEvent(new Event("change"));"""
    )
    assert browser.run(f"return {values}") == pytest.approx([0.03, -1.5, 0])
    press = "[...document.querySelectorAll('button')].find((b) => b.textContent === {!r}).click()"
    browser.evaluate("document.querySelector('[aria-label=\"Lock z2\"]').click()")
    browser.evaluate(press.format("Opposite"))
    assert browser.run(f"return {values}") == pytest.approx([-0.03, -1.5, 0])
    browser.evaluate(press.format("Random"))
    drawn = browser.run(f"return {values}")
    assert drawn[1] == -1.5
    assert drawn[0] != -0.03
    browser.evaluate(press.format("Reset"))
    assert browser.run(f"return {values}") == [0, -1.5, 0]
    hint = browser.run(
        "const e = await explorer; e.latents.set(2, 7); return e.stage.status.textContent"
    )
    assert "z3 are beyond every image observed" in hint  # and z2, which is locked
    shown = browser.run(
        """const e = await explorer; e.latents.set(2, 1); await e.follower.settled();
        const first = e.stage.canvases[0].toDataURL(); e.latents.set(2, -1); await e.follower.settled();
        return first !== e.stage.canvases[0].toDataURL()"""
    )
    assert shown
    played = browser.run(
        """const e = await explorer; e.latents.reset(); document.querySelector('[aria-label="Play z1"]').click();
        await new Promise((resolve) => setTimeout(resolve, 700));
        const during = e.latents.values[0]; document.querySelector('[aria-label="Play z1"]').click();
        return during"""
    )
    assert played != 0


def test_what_people_do_ends_what_plays(browser, pages):
    start(browser, pages["digits"])
    values = "Array.from((await explorer).latents.values)"
    pressed = "document.querySelectorAll('.row [aria-pressed=true]').length"
    wait = "await new Promise((resolve) => setTimeout(resolve, 300));"
    browser.run(f"document.querySelector('[aria-label=\"Play z1\"]').click(); {wait}")
    assert browser.run(f"return {pressed}") == 1
    # Keys work while a slider has the focus, and what played does not go on.
    browser.evaluate("document.querySelector('input[type=range]').focus()")
    browser.press("0", 48)
    assert browser.run(f"{wait} return {values}") == [0, 0, 0]
    assert browser.run(f"return {pressed}") == 0
    browser.press("R", 82)
    assert browser.run(f"return {values}") != [0, 0, 0]
    typed = browser.run(
        """const number = document.querySelector(".row input[type=number]");
        number.value = "1e999"; number.dispatchEvent(new Event("change"));
        number.dispatchEvent(new Event("blur")); return number.value"""
    )
    assert typed == "0"


def test_an_address_moves_locked_latents_too(browser, pages):
    start(browser, pages["digits"])
    found = browser.run(
        """const e = await explorer; e.latents.set(0, 1.25);
        document.querySelector('[aria-label="Lock z1"]').click();
        location.hash = "#z=2:1"; await new Promise((resolve) => setTimeout(resolve, 100));
        return Array.from(e.latents.values)"""
    )
    assert found == [0, 1, 0]


def test_an_address_restores_the_view(browser, pages):
    start(browser, pages["volumes"] + "#z=1:2")
    found = browser.run(
        """const e = await explorer, out = [Array.from(e.latents.values)];
        location.hash = "#z=2:-1.5&part=shape&grid=1&convention=radiological&at=1,2,3";
        await new Promise((resolve) => setTimeout(resolve, 100));
        await e.follower.settled();
        const pressed = [...document.querySelectorAll(".stage [aria-pressed=true]")].map((b) => b.textContent);
        return [...out, Array.from(e.latents.values), e.stage.cursor, pressed, e.stage.planes[0].sides]"""
    )
    assert found == [[2, 0, 0], [0, -1.5, 0], [1, 2, 3], ["Shape", "Grid", "Smooth"], ["R", "L"]]


def test_images_are_chosen_compared_and_added_up(browser, pages):
    start(browser, pages["faces"])
    z = latents_of()
    found = browser.run(
        """const e = await explorer, z = () => e.latents.z, c = e.comparison;
        const out = {};
        for (const [letter, row] of [["A", 1], ["B", 2], ["C", 3]]) { await c.select(row); c.mark(letter); }
        out.selected = z();
        c.walk(0.25); out.walk = z();
        c.sum.click(); out.sum = z();
        out.figures = [...document.querySelectorAll(".figures canvas")].map((canvas) => {
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(data).size;
        });
        return out;"""
    )
    np.testing.assert_allclose(found["selected"], z[3], rtol=1e-4)
    np.testing.assert_allclose(found["walk"], 0.75 * z[1] + 0.25 * z[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["sum"], z[1] - z[2] + z[3], rtol=1e-4, atol=1e-5)
    assert min(found["figures"]) > 10


def test_the_map_shows_thumbnails_and_means_of_groups(browser, pages):
    start(browser, pages["digits"], 1280, 900)
    browser.evaluate("document.querySelector('.tabs button:last-child').click()")
    browser.evaluate("document.querySelector('.plot').scrollIntoView()")
    box = browser.run(
        """const b = document.querySelector(".plot canvas").getBoundingClientRect();
        return [b.left, b.top, b.width, b.height]"""
    )
    point = browser.run("return (await explorer).map.pointOf(4)")
    at = [box[0] + point[0] * box[2] / 720, box[1] + point[1] * box[3] / 560]
    browser.hover(*at)
    name = browser.run(
        """await new Promise((resolve) => setTimeout(resolve, 300));
        const e = await explorer, t = e.map.thumbnail;
        const data = t.getContext("2d").getImageData(0, 0, t.width, t.height).data;
        return [e.map.tip.hidden, e.map.tipName.textContent, t.hidden, new Set(data).size > 2]"""
    )
    assert name == [False, f"{EVIL} 4", False, True]
    browser.drag([at])
    np.testing.assert_allclose(
        browser.run("return (await explorer).latents.z"), latents_of()[4], rtol=1e-4
    )
    browser.evaluate(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Lasso').click()"
    )
    left, top, width, height = box
    around = [(left + 3, top + 3), (left + width - 3, top + 3),
              (left + width - 3, top + height - 3), (left + 3, top + height - 3)]  # fmt: skip
    browser.drag(around)
    np.testing.assert_allclose(
        browser.run("return (await explorer).latents.z"), latents_of().mean(0), atol=1e-4
    )
    assert f"mean of {N} images" in browser.evaluate(
        "document.querySelector('.map .status').textContent"
    )


def test_slices_share_a_cursor_and_know_left_from_right(browser, pages):
    start(browser, pages["volumes"])
    found = browser.run(
        """const e = await explorer, s = e.stage, out = {};
        out.names = s.planes.map((plane) => plane.name);
        out.sides = s.planes.map((plane) => plane.sides);
        s.canvases[0].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        s.canvases[0].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp" }));
        out.cursor = s.cursor;
        const before = s.canvases[2].toDataURL();
        s.options.convention = "radiological"; s.mirror(); s.draw();
        out.mirrored = s.planes.map((plane) => plane.sides);
        out.changed = before !== s.canvases[2].toDataURL();
        out.grid = await (async () => { s.options.grid = true; await e.follower.settled(); return s.answer.displacement.length; })();
        return out;"""
    )
    assert found["names"] == ["Coronal", "Sagittal", "Axial"]
    assert found["sides"] == [["L", "R"], ["P", "A"], ["L", "R"]]
    assert found["mirrored"] == [["R", "L"], ["P", "A"], ["R", "L"]]
    # The first axis of the array runs from right to left, the second from below.
    assert found["cursor"] == [5 - 1, 4 + 1, 7]
    assert found["changed"]
    assert found["grid"] == 3 * 11 * 8 * 14


def test_the_surface_of_labels_moves(browser, pages):
    start(browser, pages["labels"])
    shown = browser.run(
        """const e = await explorer, out = [];
        for (const [value, colouring] of [[0, "class"], [2, "class"], [2, "growth"], [2, "displacement"]]) {
          e.stage.options.surface = colouring; e.latents.set(0, value); await e.follower.settled();
          out.push([e.stage.surface.nTriangles, e.stage.surface.canvas.toDataURL(), e.stage.surface.scale.textContent]);
        }
        return out"""
    )
    assert min(n for n, _, _ in shown) > 100
    assert len({picture for _, picture, _ in shown}) == 4
    assert "volume" in shown[2][2]
    assert "mm" in shown[3][2]


def caught(browser, method):
    """Return the name and the bytes of the file that a button saves."""
    browser.evaluate(CATCH)
    name, text = browser.run(
        f"""{ENCODE} const e = await explorer; await e.exports.{method}();
        return [window.caughtName, encode(new Uint8Array(await window.caught.at(-1).arrayBuffer()))]"""
    )
    return name, base64.b64decode(text)


def test_what_is_shown_is_saved(browser, pages, tmp_path):
    address = pages["volumes"] + "#z=1:1.5,3:-0.5&at=1,2,3"
    start(browser, address)
    deviations = np.sqrt(np.diag(np.linalg.inv(model_of("volumes")[0].latent_precision_)))
    z = np.array([1.5, 0, -0.5]) * deviations
    name, data = caught(browser, "json")
    assert name.endswith(".json")
    np.testing.assert_allclose(list(json.loads(data)["latents"].values()), z, rtol=1e-6)
    name, data = caught(browser, "nifti")
    (tmp_path / name).write_bytes(data)
    volume = nib.load(tmp_path / name)
    np.testing.assert_allclose(volume.affine, model_of("volumes")[0].origin_.affine)
    expected = pack_model(model_of("volumes")[0], np.inf).stored.expected_images(z[None])[0, 0]
    assert np.abs(np.asarray(volume.dataobj) - expected).max() < 1e-4 * np.ptp(expected)
    name, data = caught(browser, "png")
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "PNG"
        assert len(picture.convert("RGB").getcolors(2**20)) > 50
    assert browser.run("return (await explorer).stage.cursor") == [1, 2, 3]
    start(browser, pages["digits"])
    name, data = caught(browser, "gif")
    with Image.open(io.BytesIO(data)) as animation:
        assert animation.n_frames == 32


@pytest.mark.parametrize("kind", ["digits", "labels"])
@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_pages_are_no_wider_than_the_window(browser, pages, kind, width):
    start(browser, pages[kind], width, 900)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    small = browser.run(
        """const b = (await explorer).stage.canvases[0].getBoundingClientRect();
        return [b.left >= 0 && b.right <= innerWidth, b.width > 80, b.bottom < innerHeight]"""
    )
    assert small == [True, True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_can_be_used_has_a_name(browser, pages, kind):
    start(browser, pages[kind])
    browser.command("Accessibility.enable")
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    used = {"button", "slider", "spinbutton", "combobox", "image", "img"}
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node.get("role", {}).get("value") in used
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    assert sum(node.get("role", {}).get("value") == "slider" for node in nodes) >= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(browser, pages, scheme):
    start(browser, pages["digits"], scheme=scheme)
    colours = browser.evaluate(
        """["--text", "--quiet", "--warn", "--accent", "--page", "--raised", "--on-accent"].map(
          (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"""
    )
    *texts, page, raised, on_accent = colours
    for text in texts:
        for ground in (page, raised):
            assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast(texts[3], on_accent) >= 4.5


def contrast(one, other):
    """Return the contrast ratio of WCAG 2."""
    return np.divide(*sorted((luminance(one) + 0.05, luminance(other) + 0.05), reverse=True))


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_a_notebook_shows_the_page_in_its_sandbox(browser, tmp_path):
    frame = model_of("digits")[0].explore()._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><body>{frame}</body>", encoding="utf-8")
    browser.open(path.as_uri())
    browser.run("await new Promise((resolve) => setTimeout(resolve, 1500));")
    targets = browser.frames()
    assert len(targets) == 2
    assert browser.evaluate_in(targets[1], "(await explorer).stage.answer.image.length") == 28 * 28
