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
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
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


@pytest.mark.slow
def test_search_works_in_pages_opened_as_files(site: Path) -> None:
    with browser() as chromium:
        page = chromium.new_page(offline=True)
        page.goto((site / "index.html").as_uri())
        page.get_by_role("textbox", name="Search").fill("min_alpha_word_ratio")
        page.wait_for_selector(".md-search-result__item")
        links = page.locator(".md-search-result__link").evaluate_all("all => all.map(a => a.href)")
    assert any(re.search(r"reference/stages\.html\?.*#gopher_quality$", link) for link in links), (
        links
    )


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
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append(path.relative_to(site).as_posix())
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
