"""The extractors that are compared: functions from a page's HTML to its main text."""

from collections.abc import Callable

import justext
import trafilatura
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from main_text.pages import Page

Run = Callable[[Page], str]

STOP_LISTS = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pl": "Polish",
    "pt": "Portuguese", "ru": "Russian", "tr": "Turkish", "ko": "Korean", "ar": "Arabic", "uk": "Ukrainian",
    "fa": "Persian", "vi": "Vietnamese", "hi": "Hindi", "bn": "Bengali",
}  # fmt: skip


def trafilatura_precision(page: Page) -> str:
    """Extract as the stage does with ``extractor: trafilatura``."""
    html = page.html.decode("utf-8", "replace")
    return trafilatura.extract(html, favor_precision=True, include_comments=False) or ""


def trafilatura_default(page: Page) -> str:
    """Extract with trafilatura's defaults, but no comments."""
    return trafilatura.extract(page.html.decode("utf-8", "replace"), include_comments=False) or ""


def resiliparse(page: Page) -> str:
    """Extract as the stage does with ``extractor: resiliparse``."""
    html = page.html.decode("utf-8", "replace")
    return str(extract_plain_text(html, main_content=True, alt_texts=False))


def resiliparse_parse(page: Page) -> str:
    """Only build the tree, for the speed."""
    HTMLTree.parse(page.html.decode("utf-8", "replace"))
    return ""


def justext_by_language(page: Page) -> str:
    """Extract with jusText and the list of stop words of the page's language, else English."""
    words = justext.get_stoplist(STOP_LISTS.get(page.language, "English"))
    try:
        parts = justext.justext(page.html, words, encoding="utf-8")
    except Exception:  # noqa: BLE001 (lxml's and its own, for odd pages)
        return ""
    return "\n".join(part.text for part in parts if not part.is_boilerplate)


PEERS: dict[str, Run] = {
    "trafilatura, precision": trafilatura_precision,
    "trafilatura, default": trafilatura_default,
    "resiliparse": resiliparse,
    "jusText": justext_by_language,
}
