"""Documentation: its examples run, its links lead somewhere, and nothing is fetched to read it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


def load(name):
    """Import one of the scripts that the site is built with."""
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_is_current():
    path = ROOT / "docs" / "scripts" / "command_line.py"
    spec = importlib.util.spec_from_file_location("command_line", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert "\n## check\n" in page
    assert page == script.current_page(), "run python docs/scripts/command_line.py"


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_python_in_readme_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) == 2
    exec(compile(blocks[number], "README.md", "exec"), {})


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_to_files(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    drawn = re.compile(rf"^{page.stem}-\d+\.png$")  # by the examples of the page
    for link in LINK.findall(text):
        target = link.partition("#")[0]
        if target and not re.match(r"https?:", link) and not drawn.match(target):
            assert (page.parent / target).exists(), f"{page.name} links to {link}"


def test_every_page_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    included = {"measured-settings.md"}
    for page in PAGES:
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name in included or name in listed.partition("\nnav:")[2], name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_pages_compiles(page):
    for code in PYTHON.findall(page.read_text(encoding="utf-8")):
        compile(code, str(page), "exec")


def test_examples_show_what_they_print_and_draw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (
        "```python\nnumber = 6\nprint('six')\nnumber * 7\n```\n"
        '```python figure="An empty figure"\n'
        "from matplotlib.figure import Figure\nFigure((1, 1))\n```\n"
        "```console\n$ echo eight \\\n    nine\n```\n"
    )
    shown, pictures = load("executed_pages").execute(page, "folder/page.md")
    assert "six\n42\n" in shown
    assert "![An empty figure](page-1.png)" in shown
    assert "figure=" not in shown
    assert "eight nine\n" in shown
    assert [picture[:4] for picture in pictures] == [b"\x89PNG"]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("text\n\n```python\n1 / 0\n```\n", "page.md: the example in line 3 failed: division"),
        ("```console\n$ exit 3\n```\n", "exit 3 ended with 3"),
        ("```python\nfrom matplotlib.figure import Figure\nFigure()\n```\n", "needs figure="),
    ],
)
def test_an_example_that_fails_stops_the_build(page, message):
    scripts = load("executed_pages")
    with pytest.raises(scripts.PluginError, match=message):
        scripts.execute(page, "page.md")


RESULTS = {
    "300": {"error": 4.5678, "interval": [4.1, 5.0], "bar": 5.0},
    "1000": {"error": 2.0, "interval": [1.8, 2.2], "bar": None},
}


def test_results_stand_where_pages_ask_for_them():
    page = (
        "error {{ 300.error | .2f }} ({{ 300.interval.1 }})\n| {{ * }} | {{ *.bar | .1f }} |\nend"
    )
    reverse = dict(reversed(RESULTS.items()))
    shown = load("results").fill(page, reverse, "page.md")
    assert shown == "error 4.57 (5.0)\n| 300 | 5.0 |\n| 1000 | – |\nend"


@pytest.mark.parametrize("place", ["{{ 500.error }}", "{{ 300.seconds | .1f }}", "{{ *.seconds }}"])
def test_a_result_that_nobody_found_stops_the_build(place):
    scripts = load("results")
    with pytest.raises(scripts.PluginError, match=r"page\.md: results\.json has no "):
        scripts.fill(f"text {place}", RESULTS, "page.md")


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=lambda page: page.name
)
def test_pages_of_results_have_all_their_numbers(page):
    results = json.loads((page.with_suffix("") / "results.json").read_text(encoding="utf-8"))
    shown = load("results").fill(page.read_text(encoding="utf-8"), results, page.name)
    assert "{{" not in shown
    for entry in results.values():
        assert set(entry["made"]) >= {"commits", "machines", "seed", "seconds"}
