"""How main text is written: paragraphs, lists and tables; kinds that are left out; metadata and shares."""

import json
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import frozen, texts
from etl.kernels.html.page_batches import BlockModel, extract_pages
from etl.kernels.html.trees import Trees
from etl.kernels.html.writer import CODE, COMMENTS, LISTS, MATH, TABLES
from etl.text.main_text import extract_main_text
from tests.kernels.html.pages import HOSTILE, PIECES, SMALL

ALL = TABLES | LISTS | CODE | COMMENTS | MATH
TEXT = (
    "The heron waded in the shallow water, and no one could say for how long it had been there. "
    * 4
)


def model(bar: float) -> BlockModel:
    """Return a model without trees: all blocks are main text if the bar is below 0."""
    none = frozen(np.zeros((0, 1), np.int32))
    trees = Trees(none, none.view(np.float32), frozen(np.zeros((0, 2), np.float32)))
    bars = np.float32(bar), np.float32(bar - 1)
    return BlockModel(frozen(np.zeros(0, np.int64)), trees, *bars, np.float32(0))


EVERYTHING = model(-1)


def extract(page: str, keep: int = ALL):
    return extract_pages(
        texts(pa.array([page])), frozen(np.ones(1, np.bool_)), EVERYTHING, keep=keep
    )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<h1>A</h1><p>b<br>c<p>d", "A\n\nb\nc\n\nd"),
        ("a<ul><li>b<li>c<p>d</ul>e", "a\n\n- b\n- c\n\nd\n\ne"),
        (
            "<ol><li>a<li>b<ul><li>c<li>d<ol><li>e</ol></ul><li>f</ol>",
            "1. a\n2. b\n  - c\n  - d\n    1. e\n3. f",
        ),
        ("<ol>" + "<li>a" * 12 + "</ol>", "\n".join(f"{k}. a" for k in range(1, 13))),
        ("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "a\nb\nc\nd"),
        ("a<table><tr><td>b<th>c<tr><td>d<td>e</table>f", "a\n\nb\tc\nd\te\n\nf"),
        ("<table><tr><td>a<p>b<td>c</table>", "a\n\nb\tc"),
        ("<table><tr><td>a<table><tr><td>b<td>c</table><td>d</table>", "a\n\nb\tc\n\nd"),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("<ul><li><table><tr><td>a<td>b</table></ul>", "a\tb"),
    ],
)
def test_layout(page, expected):
    assert extract(page).text[0].as_py() == expected


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (LISTS, "<ul><li>x</ul>"),
        (CODE, "<pre>x</pre>"),
        (TABLES, "<table><tr><td>x<td>x</table>"),
        (COMMENTS, "<div class='comments'><p>x</div>"),
        (MATH, "<img class=tex alt='x'>"),
    ],
)
def test_kinds_that_are_left_out(kind, page):
    with_kind, without = (extract(f"<p>{TEXT}{page}<p>z", keep) for keep in (ALL, ALL & ~kind))
    assert "x" in with_kind.text[0].as_py()
    assert without.text[0].as_py() == f"{TEXT.strip()}\n\nz"


def test_tables_for_layout_are_kept():
    page = "<table><tr><td><p>a<p>b<td>c</table><table><tr><td>d<tr><td>e</table>"
    assert extract(page, ALL & ~TABLES).text[0].as_py().split() == ["a", "b", "d", "e"]


def test_the_posts_of_a_forum_are_kept():
    """Blocks with a class for comments are kept if no text before could be their subject."""
    page = f"<h1>A</h1><div class=comments><p>{TEXT}<p>b</div>"
    assert extract(page, ALL & ~COMMENTS).text[0].as_py() == f"A\n\n{TEXT.strip()}\n\nb"
    page = f"<body class=comments-open><article class=no-comments><p>{TEXT}<p>b"
    assert extract(page, ALL & ~COMMENTS).text[0].as_py() == f"{TEXT.strip()}\n\nb"


def test_few_blocks_lower_the_bar():
    page = texts(pa.array([f"<p>{TEXT[:80]}"]))
    for bar, expected in ((0.9, TEXT[:80].strip()), (1.1, "")):
        found = extract_pages(page, frozen(np.ones(1, np.bool_)), model(bar), keep=ALL)
        assert found.text[0].as_py() == expected


def test_shares():
    page = "<p>12345<a>67890</a><div class=comment>1234567890</div>"
    found = extract_pages(
        texts(pa.array([page, "", "x"])),
        frozen(np.array([True, True, False])),
        EVERYTHING,
        keep=ALL,
    )
    assert found.main_ratio.to_pylist() == [1.0, None, None]
    assert found.link_ratio.to_pylist() == [0.25, None, None]
    assert found.comment_ratio.to_pylist() == [0.5, None, None]
    assert found.text.to_pylist() == ["1234567890\n\n1234567890", "", None]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>a", None),
        ('<title> A\n &amp; "B" \\ \x01</title><title>C</title>', {"title": 'A & "B" \\'}),
        ("<html lang=de><html lang=en>", {"lang": "de"}),
        ("<meta content='x' name='ROBOTS'><meta name=robots content=y>", {"robots": "x"}),
        ("<link href='/a' rel='canonical'>", {"canonical": "/a"}),
        ("<meta property=og:url content=/b>", {"canonical": "/b"}),
        ("<a href=/by/4.0 rel='license noopener'>x</a>", {"license": "/by/4.0"}),
        ("<a href=/x rel=nofollow>x</a><link rel=stylesheet href=y>", None),
        (
            "<meta name=tdm-reservation content=1><meta name='tdm-policy' content='/p'>",
            {"tdm_reservation": "1", "tdm_policy": "/p"},
        ),
        ("<meta property='article:published_time' content=2020-01-02>", {"date": "2020-01-02"}),
        (
            '<script type=\'application/ld+json\'>{"a": 1, "datePublished" : "2021-01-02"}</script>',
            {"date": "2021-01-02"},
        ),
        ('<script>"datePublished":"n"</script>', None),
        ("<svg><title>n</title></svg><meta name=keywords content=n><meta content=n>", None),
        (f"<title>{'é' * 1000}</title>", {"title": "é" * 500}),
    ],
)
def test_metadata(page, expected):
    found = extract(page).metadata[0].as_py()
    assert (found and json.loads(found)) == expected


_PAGES = st.lists(
    st.sampled_from([piece for piece in PIECES if piece != b"\xc2"])
    | st.text(max_size=5).map(str.encode)
    | st.sampled_from([b"word ", b"a sentence, with a comma. "]),
    max_size=30,
).map(lambda pieces: b"".join(pieces).decode())


@settings(max_examples=100)
@given(st.lists(_PAGES, max_size=6), st.randoms())
def test_a_page_has_the_same_result_in_any_batch(pages, random):
    """Neither scratch memory of other pages nor the size of a batch matters, and metadata are JSON."""
    is_page = [random.random() < 0.8 for _ in pages]
    array = pa.array([None, *pages, "skipped"], pa.string())[1:]  # a slice
    whole = extract_main_text(texts(array), pa.array([*is_page, False]))
    for k, page in enumerate(pages):
        alone = extract_main_text(texts(pa.array([page])), pa.array([is_page[k]]))
        assert [column[0].as_py() for column in alone] == [column[k].as_py() for column in whole]
        assert json.loads(whole.metadata[k].as_py() or "{}") is not None
        assert whole.text[k].is_valid == is_page[k]


def test_text_that_is_longer_than_expected_is_read_again():
    """A batch whose text does not fit into the first buffer: lists of one letter, with their numbers."""
    pages = ["<ol>" + "<li>a" * count for count in (0, 100_000, 3, 60_000, 1)]
    found = extract_pages(
        texts(pa.array(pages)), frozen(np.ones(5, np.bool_)), EVERYTHING, keep=ALL
    )
    assert [len(text.as_py().split("\n")) for text in found.text] == [
        1,
        65_536 + 34_464,
        3,
        60_000,
        1,
    ]
    assert found.text[2].as_py() == "1. a\n2. a\n3. a"


def test_threads_share_nothing():
    pages = [page.decode() for page in HOSTILE.values() if len(page) < 1_100_000][:8]
    array, is_page = pa.array(pages), pa.array([True] * len(pages))
    expected = extract_main_text(texts(array), is_page).text
    found: list[pa.Array] = []
    threads = [
        threading.Thread(target=lambda: found.append(extract_main_text(texts(array), is_page).text))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each.equals(expected) for each in found)
    assert len(found) == 3


@pytest.mark.parametrize("page", SMALL)
def test_pages_that_end_early(page):
    text = page.decode("utf-8", "replace")
    found = extract_main_text(texts(pa.array([text])), pa.array([True]))
    assert found.text[0].is_valid
