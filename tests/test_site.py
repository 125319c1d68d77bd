"""The website of `make docs` works without a network: its pages, and its search."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("material", reason="needs the extra `site`")

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOADED = {"audio", "embed", "iframe", "img", "input", "script", "source", "track", "video"}
WIDTHS = {"phone": 390, "desktop": 1280}
OF_THE_THEME = {"aria-dialog-name", "landmark-unique"}  # the search, and the buttons that copy code


FOUND = {  # query -> a page that is among the first three results
    "minhash": "guides/near-duplicates",
    "near duplicates": "guides/near-duplicates",
    "keeper_row": "reference/tables",
    "resume training": "explanation/resume",
    "hugging face trainer": "guides/trainers",
    "pytorch lightning": "guides/trainers",
    "megatron": "guides/trainers",
    "mix datasets": "guides/mixing",
    "TokenMixture": "guides/mixing",
    "validation split": "guides/views",
    "random order": "explanation/shuffle",
    "delete a document": "guides/operations",
    "out of memory": "guides/operations",
    "cost estimate": "guides/operations",
    "slurm": "guides/operations",
    "spot nodes on kubernetes": "guides/kubernetes",
    "tls certificates": "guides/dask-cluster",
    "s3 credentials": "guides/s3",
    "custom filter": "guides/own-filter",
    "change a threshold": "guides/change",
    "train a classifier": "guides/own-classifier",
    "datatrove": "guides/migrate",
    "html report": "guides/look",
    "why was a document rejected": "guides/look",
    "min_alpha_word_ratio": "reference/stages/filters",
    "personal data": "reference/stages/transforms",
    "gzip csv": "reference/formats",
    "etl vacuum": "reference/commands",
    "report a vulnerability": "about/security",
}
REPOSITORY = "https://git.example.org/owner/tokenlake"


class Resources(HTMLParser):
    """The URLs of all files that a browser loads to show a page, and the styles in the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.feed(text)
        self.urls += urls_of_styles(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in LOADED:
            self.urls += [values[name] for name in ("src", "srcset") if name in values]
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.urls.append(values["href"])


def urls_of_styles(text: str) -> list[str]:
    """Return what `url(...)` and `@import` load."""
    return re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s]+)""", text)


CUT_OFF = """() => {
  const column = document.querySelector(".md-content__inner");
  const edge = column.getBoundingClientRect().right + 16;  // the padding of code
  const scrolls = (element) => element !== column
    && (/auto|scroll/.test(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
  return [...column.querySelectorAll("*")]
    .filter((element) => element.getBoundingClientRect().right > edge && !scrolls(element))
    .map((element) => element.tagName + ": " + element.textContent.trim().slice(0, 40));
}"""
"""What reaches beyond the column of the text, and is not part of anything that scrolls."""

TEXTS_OUTSIDE = """() => {
  const view = document.documentElement.viewBox.baseVal;
  const isOutside = (box) => box.x < view.x || box.x + box.width > view.x + view.width;
  return [...document.querySelectorAll("text")].filter((text) => isOutside(text.getBBox()))
    .map((text) => text.textContent);
}"""
"""The texts of an SVG image that reach beyond its left or right edge."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The website; a warning, such as a link without a target, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GIT_CONFIG_COUNT": "1"}
    environment |= {"GIT_CONFIG_KEY_0": "remote.origin.url"}
    environment |= {"GIT_CONFIG_VALUE_0": "git@git.example.org:owner/tokenlake.git"}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return folder


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = {
        page.relative_to(site).as_posix(): Resources(page.read_text("utf-8")).urls for page in pages
    }
    loaded |= {
        style.name: urls_of_styles(style.read_text("utf-8")) for style in site.rglob("*.css")
    }
    assert loaded["index.html"]
    remote = [
        (page, url)
        for page, urls in loaded.items()
        for url in urls
        if re.match(r"(?!data:)\w+:|//", url)
    ]
    assert remote == []


def test_every_stage_setting_command_and_column_can_be_found(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    texts = " ".join(entry["title"] + " " + entry["text"] for entry in index["docs"])
    for word in (
        "min_alpha_word_ratio",
        "etl vacuum",
        "keeper_row",
        "TokenMixture",
        "FileNotFound",
    ):
        assert (word in texts) == (word != "FileNotFound")


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra `pages`")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


def search(page: Any, query: str) -> list[str]:
    """Return the pages that a search finds, best first, without their extension."""
    box, count = page.get_by_role("textbox", name="Search"), ".md-search-result__meta"
    for text, expected in (("zzz", "No matching"), (query, "matching document")):
        box.fill(text)
        box.press("End")  # the theme listens to keys
        page.wait_for_function(
            f"document.querySelector('{count}').textContent.includes('{expected}')"
        )
    links = page.locator(".md-search-result__item > a")
    links.first.wait_for(state="attached")
    paths = links.evaluate_all("all => all.map((link) => link.pathname)")
    return list(dict.fromkeys(path.removesuffix(".html") for path in paths))


@pytest.mark.slow
def test_search_finds_the_right_page_in_pages_opened_as_files(site: Path) -> None:
    assert len(FOUND) == 29
    missed = {}
    with browser() as chromium:
        page = chromium.new_page(offline=True)
        page.goto((site / "index.html").as_uri())
        for query, expected in FOUND.items():
            first = search(page, query)[:3]
            if not any(path.endswith(f"/{expected}") for path in first):
                missed[query] = first
    assert missed == {}


@pytest.mark.slow
def test_the_first_page_shows_claim_report_commands_and_repository_at_once(site: Path) -> None:
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 800}, offline=True)
        page.goto((site / "index.html").as_uri())
        pictures = page.locator(".grid img:visible")
        links = page.locator(f".grid a[href^='{REPOSITORY}']")
        shown = [page.locator(".grid strong"), page.locator(".grid pre").last, pictures, links]
        shown.append(page.locator(f".md-header a[href='{REPOSITORY}']"))
        ends = [box["y"] + box["height"] for box in (each.bounding_box() for each in shown)]
    assert max(ends) <= 800, ends


def test_the_claim_of_the_first_page_is_measured() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    claim = re.search(r"\*\*(\d+) times as fast as datatrove\*\*.*?: (\d+) MB", index, re.DOTALL)
    assert claim is not None
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    section = results.partition("## From text to tokens compared with other programs\n")[2]
    measured = re.search(
        r"processes (\d+)\.\d to [\d.]+ MB/s/core .*?, (\d+) to", section, re.DOTALL
    )
    assert measured is not None
    assert claim.groups() == (measured[2], measured[1])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(site: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `pages`")
    found = {}
    with browser() as chromium:
        page = chromium.new_page(color_scheme=scheme)
        for name in ("index", "guides/s3", "reference/tables", "explanation/loader"):
            page.goto((site / f"{name}.html").as_uri())
            violations = axe.Axe().run(page).response["violations"]
            found[name] = {each["id"] for each in violations} - OF_THE_THEME
    assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(site: Path, width: str) -> None:
    wide = []
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": WIDTHS[width], "height": 800}, offline=True)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            cut_off = page.evaluate(CUT_OFF)
            if cut_off or page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append((path.relative_to(site).as_posix(), cut_off[:3]))
    assert (wide, errors) == ([], [])


@pytest.mark.slow
def test_the_texts_of_diagrams_are_inside() -> None:
    cut = {}
    with browser() as chromium:
        page = chromium.new_page(offline=True)
        for path in sorted((ROOT / "docs" / "assets").glob("*.svg")):
            page.goto(path.as_uri())
            cut[path.name] = page.evaluate(TEXTS_OUTSIDE)
    assert cut
    assert not any(cut.values()), cut
