"""What extractors keep of the structures of a page, case by case.

``page_structures.json`` has parts of pages and the text that each extractor returns for them. Where it loses
something (trafilatura: MathML), the file records that, so that no new version changes texts unnoticed.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.text.html import Extractor
from etl.text.html_worker import load_extractor, mark_lone_characters, remove_readings

CASES = json.loads(Path(__file__).with_name("page_structures.json").read_text("utf-8"))
BEFORE = "The ferry crossed the wide river before the storm arrived in the harbour. Nobody had expected it."
AFTER = (
    "Three days later, the captain wrote a long letter to his brother about it, and sent it away."
)
PAGE = (
    "<html><head><title>Title</title></head><body><div><main><article><h1>Title</h1>"
    f"<p>{BEFORE}</p>%s<p>{AFTER}</p></article></main></div></body></html>"
)


def extracted(extractor: str, part: str) -> str:
    text = load_extractor(extractor)(PAGE % part)
    before, _, rest = text.partition(BEFORE)
    assert before.strip() == "Title"
    inside, _, after = rest.partition(AFTER)
    assert after == ""
    return inside.strip("\n")


@pytest.mark.parametrize("extractor", get_args(Extractor))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_structures(extractor: str, case: dict[str, str]) -> None:
    if find_spec(extractor) is None:
        pytest.skip(f"needs pip install {extractor}")
    assert extracted(extractor, case["html"]) == case[extractor]


_CHARACTERS = st.characters(
    min_codepoint=0x20,
    max_codepoint=0xFFFD,
    categories=["L", "N", "P", "S"],
    exclude_characters="<&¶",
)


@given(st.lists(_CHARACTERS, min_size=1, max_size=8))
@example(["漢", "—", "a", "é", "€", "。"])
@example(["“", "•", "”"])
def test_elements_around_single_characters_do_not_change_the_text(characters: list[str]) -> None:
    marked = "".join(f"<b>{character}</b>" for character in characters)
    assert extracted("resiliparse", f"<p>A{marked}Z</p>") == f"A{''.join(characters)}Z"


_PARTS = st.sampled_from(
    [
        "<ruby>",
        "</ruby>",
        "<rb>",
        "</rb>",
        "<rp>",
        "</rp>",
        "<rtc>",
        "</rtc>",
        "<rt>",
        "<p>",
        "</p>",
    ]
)


@given(st.lists(_PARTS | st.sampled_from(["a ", "b "]), max_size=20).map("".join))
def test_only_readings_are_removed(page: str) -> None:
    without = remove_readings(page)
    assert remove_readings(without) == without
    if "<rt" not in page and "<rp" not in page:
        assert without.replace("<ruby>", "").count("a") == page.count("a")


def test_pages_without_readings_and_lone_characters_are_not_copied() -> None:
    page = PAGE % "<p>plain &nbsp; <b>x</b>&amp;</p><rt>word</rt>"
    assert remove_readings(page) is page
    assert mark_lone_characters(page) is page


def test_many_open_readings_take_linear_time() -> None:
    assert remove_readings("<ruby>" + "<rt>" * 200_000) == ""
    assert remove_readings("<ruby>" + "<rtc>" * 200_000 + "<b>") == ""
    assert mark_lone_characters("> " * 200_000 + "漢").count("\ufdd0") == 0
    assert mark_lone_characters(">" + " " * 200_000 + "漢" + " " * 200_000).count("&") == 0
