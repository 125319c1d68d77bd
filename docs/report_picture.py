"""Write docs/assets/report-*.png, the pictures of `etl report --html` on the first page of the website.

Needs the extra `pages` and chromium: `python docs/report_picture.py LAKE`, after `etl run demo --lake LAKE`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from etl.audit.page.render import lake_page

ASSETS = Path(__file__).parent / "assets"
SIZE = {"width": 800, "height": 600}


def main(lake: str) -> None:
    """Open the page of a lake in headless Chromium, and save how it begins in both themes."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        page_file.write_text(lake_page(lake), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(page_file.as_uri())
            page.locator("h1").evaluate(
                "(title, name) => { title.textContent = name }", Path(lake).name
            )
            page.screenshot(path=ASSETS / f"report-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
