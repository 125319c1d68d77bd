"""Pages are read as browsers read them: tags, references, white space, and what is not shown."""

import html
import re
from html.entities import html5

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.html.describe import describe_page
from etl.kernels.html.page import MAX_BLOCKS, MAX_DEPTH

CASES = {
    # paragraphs, lists and tables whose end tags are missing
    "<p>One<p>Two": ["One", "Two"],
    "<ul><li>a<li>b<ul><li>c</ul><li>d</ul>": ["a", "b", "c", "d"],
    "<dl><dt>1<dd>2<dt>3</dl>": ["1", "2", "3"],
    "<h1>A<h2>B</h1>c": ["A", "B", "c"],
    "<table><tr><td>1<td>2<tr><td>3<table><tr><td>4</table>5</table>6": [*"123456"],
    "<table><tr><td><p>a<td>b</table>": ["a", "b"],
    "<table><thead><tr><th>a<tbody><tr><td>b<tfoot><tr><td>c</table>d": [*"abcd"],
    # end tags that are misplaced or close nothing
    "a</p>b</div>c</h1>d</li>e": ["a", "bcde"],
    "<b>a<i>b</b>c</i>d": ["abcd"],
    "<div>a<span>b</div>c": ["ab", "c"],
    "<a href=x>link<div>in</div></a>after": ["link", "in", "after"],
    "<p>a</br>b": ["a", "b"],
    # comments, declarations and sections
    "a<!-- > -->b<!-->c<!--->d<!-- --!>e<!x>f<?y?>g</ z>h": ["abcdefgh"],
    "a<![CDATA[b]]>c": ["ac"],
    "<svg><![CDATA[<p>]]></svg>a": ["a"],
    "a<!-- unclosed": ["a"],
    # what is never text
    "<title>t</title><style>s</style><script>if(a<b)</scripty></script >a": ["a"],
    "<textarea><p>no</textarea><noscript>n</noscript><iframe>i</iframe>a": ["a"],
    "<template>n<b>o</template><select><option>n</select><video>n</video>a": ["a"],
    "<svg><title>n</title><text>n</text><p>yes</svg>": ["yes"],
    "<svg><foreignObject><p>n</foreignObject></svg>a": ["a"],
    "<script>unclosed <p>a": [],
    # attributes in all forms
    "<p a=1 b='>' c=\">\" d = e f g=h/>a": ["a"],
    "<p/>a<p =x>b": ["a", "b"],
    "a<p title='unclosed>b": ["a"],
    # hidden elements
    "a<span hidden>n</span>b<i aria-hidden=TRUE>n</i>c<b style='Display : None'>n</b>d": ["abcd"],
    "a<i style='visibility:hidden'>n</i><i aria-hidden=false>b</i><i style='display:block'>c</i>": [
        "abc"
    ],
    # white space
    "  a \n\t b&nbsp; c&#32;&#9;d \x07 e\x00f": ["a b c d ef"],
    "<b>a </b> <i> b</i>": ["a b"],
    "x<br>y <br/> z<br><br>w": ["x\ny\nz", "w"],
    "<pre>\n a\n  b &lt;\r\nc\rd</pre>e": [" a\n  b <\nc\nd", "e"],
    "<pre>a<br>b <b>c</b></pre>": ["a\nb c"],
    # ruby annotations
    "<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby>字": ["漢字"],
    "<p><ruby>漢<rp>(<rt>かん<rp>)</rp>字<rt>じ</ruby>x": ["漢字x"],
    "<ruby><rb>a<rb>b<rtc><rt>x<rt>y</rtc></ruby>c": ["abc"],
    # what only looks like a tag
    "a < b <3 <> c </>d <": ["a < b <3 <> c d <"],
    "a<b": ["a"],
    # formulas
    "<math><mi>x</mi><annotation encoding='application/x-tex'> x^2 &lt;\n1 </annotation></math>": [
        "$x^2 < 1$"
    ],
    "<math><annotation>n</annotation></math>a": ["a"],
    "<p>a <script type='math/tex'>y</script> <script type='math/tex; mode=display'>z</script>": [
        "a $y$ $$z$$"
    ],
    "<i hidden><math><annotation encoding='application/x-tex'>n</annotation></math></i>a": ["a"],
    "<img alt='n'><img class='mwe-math-fallback-image' alt='&alpha;'>": ["$α$"],
}


_SPACES = re.compile("[\x01-\x20\x7f\xa0]+")


def texts_of(page: str, **settings: bool) -> list[str]:
    return describe_page(page.encode(), **settings).texts


def collapse(text: str) -> str:
    """Return a text with each run of white space, control characters and no-break spaces as one space."""
    return _SPACES.sub(" ", text.replace("\0", "")).strip(" ")


@pytest.mark.parametrize("page", CASES)
def test_blocks(page):
    assert texts_of(page) == CASES[page]


def test_formulas_can_be_left_out():
    pages = [page for page, blocks in CASES.items() if any("$" in block for block in blocks)]
    assert len(pages) == 3
    assert [texts_of(page, keeps_math=False) for page in pages] == [[], ["a"], []]


def test_hidden_blocks_are_marked():
    blocks = describe_page(b"<div hidden><p>a</div><p>b<p style='display:none'>c")
    assert (blocks.texts, blocks.is_hidden) == (["a", "b", "c"], [True, False, True])


def test_all_named_references():
    """Each name with and without its semicolon, alone and before a letter, as Python decodes them."""
    names = sorted({name.rstrip(";") for name in html5})
    pages = [f"&{name}{end}" for name in names for end in (";", ";x", " y", "-z", "q")]
    for page in pages:
        assert " ".join(texts_of(page)) == collapse(html.unescape(page)), page
    assert len(pages) > 10_000


@given(st.integers(-5, 0x120000), st.sampled_from(["&#{};", "&#{} ", "&#x{:x};", "&#X{:X}g"]))
@example(0x80, "&#{};")
@example(0x10FFFF, "&#x{:x};")
@example(0xD800, "&#x{:x};")
def test_numeric_references(code, form):
    if code < 0:
        expected = form.format(code)  # not a reference
    elif code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        expected = "\ufffd"
    elif 0x80 <= code < 0xA0:
        expected = bytes([code]).decode("cp1252", "ignore") or chr(code)
    else:
        expected = chr(code)
    if code >= 0:
        expected += form[-1].strip(";")
    assert texts_of(f"<p>a{form.format(code)}b") == [collapse(f"a{expected}b")]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<&")))
@example("\0\0a\0 \0b")
@example(" " * 70 + "é" + "x" * 63 + " \n" * 40 + "漢")
def test_white_space_is_collapsed(text):
    expected = collapse(text)
    assert texts_of(text) == ([expected] if expected else [])


def test_depth_is_limited():
    deep = "<div>" * (MAX_DEPTH * 2)
    assert texts_of(f"{deep}a{'</div>' * MAX_DEPTH * 2}<p>b") == ["a", "b"]


def test_the_last_block_has_what_there_is_no_room_for():
    count = MAX_BLOCKS + 100
    blocks = texts_of("".join(f"<p>{k}" for k in range(count)))
    assert len(blocks) == MAX_BLOCKS
    assert blocks[-1].split() == [str(k) for k in range(MAX_BLOCKS - 1, count)]
