"""A page to look at: the labelled pages on which an extractor is worst, by block."""

import difflib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from etl.kernels.html.describe import describe_page
from main_text.pages import Page
from main_text.scores import Counts, f1

MOST = 50
LONGEST = 300  # characters of a block that are shown
STYLE = """body{font:14px/1.4 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
p{margin:.2em 0;padding:0 .5em}.kept{background:#dfd}.lost{background:#ffd}.wrong{background:#fdd}"""


def write_worst(
    file: Path,
    pages: Sequence[Page],
    texts: Mapping[str, Sequence[str]],
    rows: Mapping[str, Counts],
    *,
    own: str,
) -> None:
    """Write the page: green is kept, yellow lost, red wrongly kept."""
    scores = {
        name: [_score(*each) for each in zip(pages, found, strict=True)]
        for name, found in rows.items()
    }
    parts = [
        f"<!DOCTYPE html><meta charset=utf-8><title>The worst pages</title><style>{STYLE}</style>"
    ]
    for index in np.argsort(scores[own], kind="stable")[:MOST]:
        page = pages[index]
        figures = ", ".join(f"{name} {found[index]:.2f}" for name, found in scores.items())
        parts.append(
            f"<h2>{escape(page.key)}</h2><p>{page.source}, {page.kind}, {page.language}: {figures}"
        )
        parts += (
            _segments(page, texts[own][index])
            if page.text is None
            else _lines(page, texts[own][index])
        )
    file.write_text("\n".join(parts), encoding="utf-8")


def _score(page: Page, row: Counts) -> float:
    return f1(row[None], by_text=page.text is not None)


def _segments(page: Page, text: str) -> list[str]:
    lost = [_line("lost", each) for each in page.required if each not in text]
    wrong = [_line("wrong", each) for each in page.forbidden if each in text]
    kept = [_line("kept", each) for each in describe_page(page.html).texts if each in text]
    return lost + wrong + kept


def _lines(page: Page, text: str) -> list[str]:
    truth = [line.strip() for line in (page.text or "").split("\n") if line.strip()]
    found = [line.strip() for line in text.split("\n") if line.strip()]
    names = {" ": "kept", "-": "lost", "+": "wrong"}
    return [
        _line(names[each[0]], each[2:]) for each in difflib.ndiff(truth, found) if each[0] in names
    ]


def _line(name: str, text: str) -> str:
    return f'<p class="{name}">{escape(text[:LONGEST])}'
