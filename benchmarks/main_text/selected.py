"""Pages whose main text is what the CSS selectors of their site choose (``selectors.yaml``)."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from main_text.pages import Page, as_utf8, host, is_held_back, kind_of, language_of


@cache
def rules() -> dict[str, Any]:
    """Return the selectors by set and site."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("selectors.yaml").read_text())
    return found


def select(html: bytes, content: Sequence[str], clean: Sequence[str] = ()) -> str:
    """Return the text of the elements that the first matching selector chooses, without those to clean."""
    tree = HTMLTree.parse(html.decode("utf-8", "replace"))
    for selector in content:
        parts: list[str] = []
        for node in tree.document.query_selector_all(selector) if tree.document else ():
            part = node.html
            if not parts or part not in parts[-1]:  # not inside the element before
                parts.append(part)
        text = "\n".join(filter(None, (_without(part, clean) for part in parts)))
        if text:
            return text
    return ""


def _without(html: str, clean: Sequence[str]) -> str:
    tree = HTMLTree.parse(f"<html><body>{html}</body></html>")
    return str(extract_plain_text(tree, alt_texts=False, skip_elements=list(clean)))


def news(folder: Path) -> Iterator[Page]:
    """Read Postlight's test pages; the selectors are those of Postlight Parser (MIT licence).

    Those of hosts that may be in the half that is held back are of another source: they are measured only.
    """
    for row in pq.read_table(folder / "more.parquet").to_pylist():
        site = row["key"].removesuffix(".html").split("--")[0]
        rule = rules()["postlight"].get(site)
        if row["kind"] == "parser" and rule:
            html = as_utf8(row["html"])
            text = select(html, rule["content"], rule.get("clean", ()))
            if len(text) > 300:
                where = (
                    kind_of(site),
                    language_of(html, f"https://{site}/"),
                    host(f"https://{site}/"),
                )
                source = "unseen sites" if is_held_back(where[2]) else "selected"
                yield Page(source, *where, html, text=text, key=row["key"])


def chinese(folder: Path) -> Iterator[Page]:
    """Read GeneralNewsExtractor's test pages; the selectors were chosen by a look at each site."""
    for row in pq.read_table(folder / "languages.parquet").to_pylist():
        site = row["key"].split("/")[0]
        content = rules()["chinese"].get(site)
        if row["kind"].startswith("gne") and content:
            html = as_utf8(row["html"])
            text = select(html, [content])
            if len(text) > 80:
                yield Page("selected", "news", "zh", site, html, text=text, key=row["key"])
