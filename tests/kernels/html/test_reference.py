"""The words of pages are those of the tree that lexbor, a browser's parser, builds."""

import random

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.kernels.html.describe import describe_page
from tests.helpers.html_words import words_in_tree, words_of

pytest.importorskip("selectolax", reason="it has lexbor's tree")


def words_read(page: bytes) -> list[str]:
    blocks = describe_page(page, keeps_math=False)
    shown = zip(blocks.texts, blocks.is_hidden, strict=True)
    return words_of("\n".join(text for text, is_hidden in shown if not is_hidden))


_INLINE = ["b", "i", "span", "em", "code", "font", "x-own", "ruby"]
_BLOCKS = ["p", "div", "section", "h1", "h2", "blockquote", "pre", "center", "article"]
_SKIPPED = ["script", "style", "svg", "template", "title", "textarea", "rt", "object"]
_TAGS = """p div span b i a h1 h2 ul ol li dl dt dd pre section button em select option form svg math template
title script ruby rt rp br hr nobr font object foreignObject desc""".split()
_TEXTS = st.text("abc é漢<&;\n", min_size=1, max_size=6).map(
    lambda text: text.replace("&", "&amp;").replace("<", "&lt;")
)
_ATTRIBUTES = st.sampled_from(
    ["", " hidden", " class='a b'", " id=x", " title='>'", " aria-hidden=true", " /"]
)


@st.composite
def _elements(draw, children):
    """An element, or a list or table, in which end tags that may be missing are."""
    kind = draw(
        st.sampled_from(["inline", "block", "skipped", "list", "table", "void", "definitions"])
    )
    inner = draw(st.lists(children, max_size=4))
    end = draw(st.booleans())
    if kind == "void":
        return draw(
            st.sampled_from(
                ["<br>", "<hr>", "<img alt=n>", "<input value=n>", "<!-- n -->", "<wbr>"]
            )
        )
    if kind == "list":
        return "<ul>" + "".join(f"<li>{each}" + "</li>" * end for each in inner) + "</ul>"
    if kind == "definitions":
        return "<dl>" + "".join(f"<dt>d<dd>{each}" + "</dd>" * end for each in inner) + "</dl>"
    if kind == "table":
        cells = "".join(f"<td>{each}" + "</td>" * end for each in inner)
        return f"<table><tr>{cells}<tr><th>h</table>"
    names = {"inline": _INLINE, "block": _BLOCKS, "skipped": _SKIPPED}[kind]
    name = draw(st.sampled_from(names))
    attributes = draw(_ATTRIBUTES)
    content = "n" if name in ("script", "style", "title", "textarea") else "".join(inner)
    return f"<{name}{attributes}>{content}</{name}>"


_PAGES = st.lists(st.recursive(_TEXTS, _elements, max_leaves=20), max_size=5).map("".join)


@settings(max_examples=300)
@given(_PAGES)
def test_generated_pages_have_the_words_of_the_tree(page):
    content = f"<!DOCTYPE html><html><body>{page}</body></html>".encode()
    assert words_read(content) == words_in_tree(content)


def test_tags_at_random_have_the_words_of_the_tree():
    """At least 99 % of 3,000 pages of misnested tags.

    The others have select or foreign elements in each other. Tables are left out: words that a browser moves
    before a table, since they are outside of its cells, stay where they are; cells outside of tables separate
    words.
    """
    rng, same = random.Random(1), 0
    for _ in range(3000):
        tags = [rng.choice(_TAGS) for _ in range(rng.randrange(2, 9))]
        pieces = [rng.choice([f"<{tag}>", f"<{tag}>", f"</{tag}>", "a", "b "]) for tag in tags]
        page = f"<!DOCTYPE html><html><body>{''.join(pieces)}z</body></html>".encode()
        same += words_read(page) == words_in_tree(page)
    assert same >= 2970


@pytest.mark.slow
def test_real_pages_have_the_words_of_the_tree(data):
    """At least 99.5 % of pages; where words differ, they are in ``noscript``, which browsers do not show."""
    pages: list[bytes] = []
    files = [data / "web/mdn-html-00000.parquet", *sorted((data / "extraction").glob("*.parquet"))]
    for file in files:
        table = pq.read_table(file)
        column = table["html" if "html" in table.column_names else "text"].to_pylist()
        pages += [each.encode() if isinstance(each, str) else each for each in column if each]
    differ = [page for page in pages if words_read(page) != words_in_tree(page)]
    assert len(pages) > 2900
    assert len(differ) <= len(pages) * 0.005
    assert [page for page in differ if b"<noscript" not in page.lower()] == []
