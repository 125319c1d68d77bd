"""The page of a lake in headless Chromium: themes, phones, accessibility, and the script of the limits."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.audit.page.render import lake_page
from etl.recipe.recipe import Recipe
from tests.helpers.hostile_lake import make_hostile_lake

pytestmark = pytest.mark.slow

PHONE = {"width": 375, "height": 800}
DESKTOP = {"width": 1280, "height": 900}
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start the system's Chromium, or skip the test."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the extra `pages` is not installed"
    )
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no browser: chromium is not on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_files(
    made: Recipe,
    by_length: Recipe,
    client: Client,
    tiny_tokenizer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Write the pages of an ordinary lake, of another whose limit can be moved, and of a hostile lake."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = make_hostile_lake(UPath(folder), client, tiny_tokenizer)
    files = {}
    for name, recipe in (("ordinary", made), ("by length", by_length), ("hostile", hostile)):
        files[name] = folder / f"{name}.html"
        files[name].write_text(lake_page(str(recipe.lake)), encoding="utf-8")
    return files


def visit(browser: Any, file: Path, size: dict[str, int], scheme: str) -> tuple[Any, list[str]]:
    """Open a page; return it with its requests and messages of the console, as they come."""
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
    events: list[str] = []
    page.on("request", lambda request: events.append(request.url))
    page.on("console", lambda message: events.append(message.text))
    page.on("dialog", lambda dialog: events.append(dialog.message))
    page.goto(file.as_uri())
    return page, events


@pytest.mark.parametrize("name", ["ordinary", "hostile"])
@pytest.mark.parametrize(
    ("size", "scheme"),
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")],
    ids=["desktop-light", "desktop-dark", "phone-light", "phone-dark"],
)
def test_the_page_is_accessible_fits_and_loads_only_itself(
    browser: Any, page_files: dict[str, Path], name: str, size: dict[str, int], scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page, events = visit(browser, page_files[name], size, scheme)
    assert events == [page_files[name].as_uri()]
    assert "owned" not in page.title()
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()


def test_dark_and_light_differ(browser: Any, page_files: dict[str, Path]) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        page, _ = visit(browser, page_files["ordinary"], DESKTOP, scheme)
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_a_limit_can_be_moved_with_the_keyboard(browser: Any, page_files: dict[str, Path]) -> None:
    page, _ = visit(browser, page_files["by length"], DESKTOP, "light")
    slider = page.get_by_label("Another limit").first
    output = page.locator("output").first
    before = output.text_content()
    slider.focus()
    page.keyboard.press("Home")
    assert output.text_content() != before
    assert "would keep" in str(output.text_content())
