"""The report in a browser: all of it is there, it fits phones and screens, nothing is fetched."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from PIL import Image

from tests.report.reports import SECTIONS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
# Frames have the width that they are given; windows of a browser without a screen may not.
FRAME = """<!DOCTYPE html><html><body style="margin:0">
<iframe srcdoc="{page}" style="width:{width}px;height:900px;border:0"></iframe></body></html>"""
# Runs at the end of the page, and leaves what it found where the test can read it.
MEASURE = """<script>
addEventListener("load", () => {
  const pictures = [...document.querySelectorAll("figure img")];
  const found = {
    sections: [...document.querySelectorAll("section")].map((s) => s.id),
    broken: pictures.filter((p) => !(p.complete && p.naturalWidth > 1)).length,
    pictures: pictures.length,
    page: document.documentElement.scrollWidth,
    window: innerWidth,
    settings: document.querySelector("#settings .scroll").scrollWidth,
    room: document.querySelector("#settings .scroll").clientWidth,
    fetched: performance.getEntriesByType("resource").map((e) => e.name)
      .filter((name) => !name.startsWith("data:")),
  };
  document.querySelector("figure button").click();
  const dialog = document.querySelector("dialog");
  found.enlarged = dialog.open && dialog.querySelector("img").src === pictures[0].src;
  dialog.click();
  found.closed = !dialog.open;
  (parent || window).document.body.dataset.found = JSON.stringify(found);
});
</script></body>"""

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser: install chromium or chrome to test the report in it"
)


def browse(address, folder, *options):
    return subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *options, address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_complete_and_no_wider_than_the_window(report, tmp_path, width):
    page = report.read_text(encoding="utf-8").replace("</body>", MEASURE)
    frame = tmp_path / "frame.html"
    quoted = page.replace("&", "&amp;").replace('"', "&quot;")
    frame.write_text(FRAME.format(page=quoted, width=width), encoding="utf-8")
    dom = browse(frame.as_uri(), tmp_path, "--dump-dom", "--window-size=1400,900")
    found = json.loads(unescape(re.search(r'data-found="([^"]*)"', dom).group(1)))
    assert found["sections"] == SECTIONS
    assert found["pictures"] >= 9
    assert found["broken"] == 0
    assert found["window"] == width
    assert found["page"] <= width
    assert found["settings"] <= found["room"]  # all of the table can be read without scrolling
    assert found["fetched"] == []
    assert found["enlarged"]
    assert found["closed"]


def test_the_page_is_drawn(report, tmp_path):
    picture = tmp_path / "report.png"
    browse(report.as_uri(), tmp_path, f"--screenshot={picture}", "--window-size=1280,2000")
    with Image.open(picture) as shown:
        assert shown.size == (1280, 2000)
        assert len(shown.convert("RGB").getcolors(2**20)) > 50
