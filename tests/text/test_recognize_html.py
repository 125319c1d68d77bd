"""Which texts are HTML: by their media type, by their start, and by where their text lies."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.text.recognize_html import find_pages, inside_ratio, markup_ratios

SENTENCES = " ".join(f"Ferry {n} crossed the wide river before the storm." for n in range(6))
BODY = f"<body class='a'><article><h1>Ferry</h1>{f'<p>{SENTENCES}</p>' * 9}</article></body>"
PAGE = f"<html><head><title>Ferry</title></head>{BODY}</html>"
STARTS = [
    *(
        "",
        "\n\t ",
        "\ufeff",
        "\ufeff\ufeff",
        "\u200b",
        "\xa0",
        "\x00\x1f",
        "\ufffd",
        "ï»¿",
        "&nbsp;",
    ),
    *("&#8203;", "<!-- a > b -->", "<!-- one\n--><!-- two -->", "<!--[if IE]><p><![endif]-->"),
    *(
        "<!DOCTYPE html>",
        "<!doctype HTML PUBLIC '-//W3C//DTD HTML 4.01//EN' 'x.dtd'>",
        "<!DOCTYPE>",
    ),
    *("<?xml version='1.0' encoding='utf-8'?>", "<?php include('a.php'); ?>", "<%@ page x='y' %>"),
    *(
        "<![CDATA[",
        "]]>",
        "<strong>Site</strong>",
        "<pre>log</pre>",
        "<noindex></noindex>",
        "</div>",
    ),
    *(
        "<marquee>",
        "<svg><path d='M0'/></svg>",
        "<x-header></x-header>",
        "<my:tag/>",
        "<o:p></o:p>",
    ),
    "Notice: Undefined index: lang in /var/www/index.php on line 12\n",
    "<br />\n<b>Warning</b>:  mysql_connect(): Access denied in <b>/a.php</b> on line <b>3</b><br />\n",
    "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html\r\n\r\n",
    *(
        "1a2b\r\n",
        "Array\n(\n    [0] => 1\n)\n",
        "var x = 1;\n",
        "// <![CDATA[\nx();\n",
        "{'a': 1}\n",
    ),
    *(
        "-->",
        "'\">",
        "Hello World! ",
        "0",
        "日本語",
        "�PNG",
        "<script>if (a < b) { c(); }</script>",
    ),
]
PROSE = [
    "",
    "1 < 2 and 3 > 2",
    "The <br> element produces a line break, and </p> ends a paragraph.",
    "<prefwindow> is an element of XUL",
    f"Write this to a file:\n\n{PAGE[:150]}</p></article></body></html>\n\n{SENTENCES}",
    f"{SENTENCES}\n\n<!DOCTYPE html>\n<html><body><p>Hello</p></body></html>\n\n{SENTENCES}",
    f"{SENTENCES} Begin with <html>, then <head> and <body>. {SENTENCES} </body> and </html> end it.",
    f"# A heading\n\n{SENTENCES}\n\n<table class='b'><tr><td>1</td><td>2</td></tr></table>\n\n{SENTENCES}",
    f"<!-- markdownlint-disable -->\n# A heading\n\n{SENTENCES}",
    "std::vector<std::string> a; List<String> b; #include <map>",
]


def _is_page(text: str, media_type: str | None = None) -> bool:
    found = find_pages(pa.array([text]), pa.array([media_type], pa.string())).to_pylist()
    return bool(found[0])


@pytest.mark.parametrize("start", STARTS)
def test_a_page_is_found_whatever_it_begins_with(start: str) -> None:
    assert _is_page(start + PAGE)
    assert _is_page(start + BODY)
    assert _is_page((start + PAGE)[:2000])  # the crawler stopped early


@pytest.mark.parametrize("text", PROSE)
def test_prose_about_html_is_not_a_page(text: str) -> None:
    assert not _is_page(text)
    assert markup_ratios(pa.array([text])).to_pylist()[0] <= 0.7


@pytest.mark.parametrize(
    ("media_type", "is_page"),
    [
        ("text/html", True),
        (" Text/HTML ;charset=utf-8", True),
        ("application/xhtml+xml", True),
        ("text/htmlx", None),
        ("text/plain", False),
        ("TEXT/PLAIN; charset=utf-8", False),
        # the content decides
        ("application/octet-stream", None),
        ("application/xml", None),
        ("text/x-php", None),
        ("", None),
        (None, None),
    ],
)
def test_the_container_knows_the_type(media_type: str | None, is_page: bool | None) -> None:
    fragment = "Words, <em>then</em> a tag."
    assert _is_page(fragment, media_type) is (is_page or False)
    assert _is_page("A &amp; B", media_type) is (is_page or False)
    assert _is_page(PAGE, media_type) is (True if is_page is None else is_page)
    assert not _is_page("no markup\nat all; 1 < 2 & 3", media_type)


def test_null_texts_are_not_pages() -> None:
    texts = pa.array([None, PAGE, None], pa.string())
    types = pa.array(["text/html", None, None], pa.string())
    assert find_pages(texts, types).to_pylist() == [False, True, False]
    assert markup_ratios(pa.array([None, SENTENCES], pa.string())).to_pylist() == [None, 0.0]


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("<p>12345</p>67890", 0.5),
        ("<P>12345</p >67890", 0.5),
        ("<p>12345", 0.0),
        ("12345</p>", 0.0),
        ("<p>1<p>2</p>3</p>", 1.0),
        ("<b>12<i>34</b>56</i>78", 0.75),
        ("<p>1</p>2<p>3</p>4", 0.5),
        ("<br>1</br>", 0.0),
        ("<p><script>12345<p></script>1</p>2", 0.5),
        ("<p>1</p><style>never closed", 1.0),
        ("<p>1<!-- <p>2</p> --></p>3", 0.5),
        ("<p>1</p><!-- never closed", 1.0),
        ("<p/>1</p>", 1.0),
        ("<x>1</x>", 0.0),
        ("", 0.0),
    ],
)
def test_the_share_of_text_inside_closed_elements(text: str, ratio: float) -> None:
    assert inside_ratio(text) == ratio


_PIECES = st.sampled_from("<p> </p> <b> </b> <br> <script> </script> <!-- --> word < > & ä".split())


@given(st.lists(_PIECES, max_size=30).map("".join))
def test_the_share_is_between_none_and_all(text: str) -> None:
    assert 0 <= inside_ratio(text) <= 1
    assert inside_ratio(f"<html>{text}</html>") in (0, 1) or "<!--" in text or "<script>" in text
    assert inside_ratio(f"{text}") <= inside_ratio(f"<div>{text}</div>") or "<!--" in text


def test_many_unclosed_elements_take_linear_time() -> None:
    assert inside_ratio("<div>" * 300_000 + "</b>" * 300_000) == 0
    assert inside_ratio("<script>" * 300_000 + "x") == 0
    assert inside_ratio("<!--" * 300_000) == 0
    assert inside_ratio("<a " * 300_000) == 0


def test_real_pages_and_texts(data) -> None:
    pages = pq.read_table(data / "web" / "mdn-html-00000.parquet")["text"].combine_chunks()
    pages = pa.concat_arrays(pages.chunks) if isinstance(pages, pa.ChunkedArray) else pages
    unknown = pa.nulls(len(pages), pa.string())
    assert find_pages(pages, unknown).true_count == len(pages)
    after_a_notice = pa.array(["Notice: a problem\n" + text for text in pages.to_pylist()])
    assert find_pages(after_a_notice, unknown).true_count == len(pages)
    texts = pq.read_table(data / "bench" / "win32-docs-00000.parquet")["text"].slice(0, 5000)
    assert find_pages(pa.array(texts.to_pylist()), pa.nulls(5000, pa.string())).true_count <= 1
