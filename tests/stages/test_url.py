"""URL lists: which entries match, and which entries are allowed."""

import gzip

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.stages import Url
from etl.storage.referenced_files import find_referenced_files, find_referenced_files_cached
from etl.text.url_columns import extract_words
from tests.helpers.naive_urls import naive_page, naive_parts, naive_words

URLS = [
    "https://www.Example.org/Free-Games?x=1#top",
    "http://example.org:80/free/",
    "ftp://user:pw@a.b.example.org./",
    "https://notexample.org/",
    "https://example.org.evil.net/",
    "http://10.0.0.1/x",
    "http://[::1]:8080/x",
    "",
    None,
]


@pytest.fixture
def matches(tmp_path):
    """A function that counts the matches of a list with some entries in each of ``URLS``."""

    def count(name: str, *entries: str) -> list[float | None]:
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(entries), "utf-8")
        stage = Url(**{name: str(path)})
        (column,) = stage.columns()
        return stage.measure(pa.table({"url": pa.array(URLS)}))[column].to_pylist()

    return count


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        ("domains", "example.org", [1, 1, 1, 0, 0, 0, 0, 0, None]),
        ("domains", "*.EXAMPLE.org.", [1, 1, 1, 0, 0, 0, 0, 0, None]),
        ("domains", ".b.example.org", [0, 0, 1, 0, 0, 0, 0, 0, None]),
        ("domains", "0.0.1", [0, 0, 0, 0, 0, 0, 0, 0, None]),
        ("domains", "10.0.0.1", [0, 0, 0, 0, 0, 1, 0, 0, None]),
        ("hosts", "example.org", [0, 1, 0, 0, 0, 0, 0, 0, None]),
        ("hosts", "www.example.org", [1, 0, 0, 0, 0, 0, 0, 0, None]),
        ("hosts", "[::1]", [0, 0, 0, 0, 0, 0, 1, 0, None]),
        ("urls", "example.org/free", [0, 1, 0, 0, 0, 0, 0, 0, None]),
        ("urls", "HTTPS://Example.org/free/#x", [0, 1, 0, 0, 0, 0, 0, 0, None]),
        ("urls", "www.example.org/Free-Games", [0, 0, 0, 0, 0, 0, 0, 0, None]),
        ("urls", "www.example.org/Free-Games?x=1", [1, 0, 0, 0, 0, 0, 0, 0, None]),
        ("urls", "[::1]:8080/x", [0, 0, 0, 0, 0, 0, 1, 0, None]),
        ("words", "free", [1, 1, 0, 0, 0, 0, 0, 0, None]),
        ("words", "Free-Games", [0, 0, 0, 0, 0, 0, 0, 0, None]),
        ("soft_words", "ORG", [1, 1, 1, 1, 1, 0, 0, 0, None]),
        ("substrings", "egam", [1, 0, 0, 0, 0, 0, 0, 0, None]),
        ("substrings", "free games", [1, 0, 0, 0, 0, 0, 0, 0, None]),
    ],
)
def test_an_entry_matches_the_expected_urls(matches, name, entry, expected):
    assert matches(name, entry) == expected
    assert matches(name, "# a comment", "", f"  {entry}\r", "zzz.invalid") == expected


@pytest.mark.parametrize("name", ["words", "substrings"])
@pytest.mark.parametrize(
    "url",
    [
        "https://bücher.example/",
        "https://XN--BCHER-KVA.example/",
        "https://b%C3%BCcher.example/",
        "https://ｂücher.example/",
        "https://example.org/?from=xn--bcher-kva.example",
    ],
)
def test_words_match_in_every_spelling_of_a_host(tmp_path, name, url):
    for entry in ("bücher", "xn--bcher-kva"):
        path = tmp_path / entry
        path.write_text(entry, "utf-8")
        counts = Url(**{name: str(path)}).measure(pa.table({"url": [url]}))
        assert counts[f"url_{name}"].to_pylist() == [1]


@pytest.mark.parametrize(
    "label", ["xn--", "xn--99999999", "xn--ß", f"xn--{'a' * 100_000}", "xn--0ug-"]
)
def test_invalid_punycode_is_read_as_written(label):
    (words,) = extract_words(pl.Series([f"https://{label}.example"])).to_list()
    assert "example" in words


@given(st.from_regex(r"xn--[a-z0-9-]{1,59}", fullmatch=True))
def test_every_label_can_be_read(label):
    assert extract_words(pl.Series([f"https://{label}.example"])).len() == 1


def naive_counts(name: str, entries: list[str], url: str) -> int:
    host, page = naive_parts(url)[0], naive_page(url)
    labels = host.split(".")
    above = [host, *(".".join(labels[k:]) for k in range(1, len(labels)))]
    seen = {
        "domains": set(above[:1] + [n for n in above[1:] if not n.rpartition(".")[2].isdigit()]),
        "hosts": {host},
        "urls": {page},
        "words": set(naive_words(url)),
        "soft_words": set(naive_words(url)),
    }
    if name == "substrings":
        return sum(entry in "".join(naive_words(url)) for entry in set(entries))
    return len(seen[name] & set(entries))


@settings(max_examples=60)
@given(
    st.sampled_from(Url.paths),
    st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("".join), max_size=4),
    st.lists(st.text(st.sampled_from("ab./-:@?"), max_size=12), max_size=5),
)
def test_counts_agree_with_a_naive_version(tmp_path_factory, name, entries, texts):
    path = tmp_path_factory.mktemp("lists") / "list"
    path.write_text("\n".join(["# a list", *entries]))
    counts = Url(**{name: str(path)}).measure(pa.table({"url": pa.array(texts, pa.string())}))
    assert counts[f"url_{name}"].to_pylist() == [naive_counts(name, entries, url) for url in texts]


def test_each_entry_counts_once(matches):
    assert matches("soft_words", "org", "ORG", "free", "org")[0] == 2
    assert matches("domains", "example.org", "www.example.org", "org")[0] == 3
    assert matches("substrings", "free", "freeg", "games")[0] == 3


def test_an_empty_list_matches_nothing(matches):
    for name in Url.paths:
        assert matches(name, "# nothing yet") == [*[0] * 8, None]


@pytest.mark.parametrize(("minimum", "reason"), [(1, "url.soft_words"), (2, None), (3, None)])
def test_min_soft_words_is_inclusive(minimum, reason):
    stage = Url(soft_words="any", min_soft_words=minimum)
    assert stage.reasons(pa.table({"url_soft_words": [1.0]})).to_pylist() == [reason]
    assert stage.reasons(pa.table({"url_soft_words": [float(minimum)]})).to_pylist() == [
        "url.soft_words"
    ]
    assert stage.reasons(pa.table({"url_soft_words": pa.nulls(1, pa.float64())})).to_pylist() == [
        None
    ]


def test_a_list_can_have_several_files_and_gzip(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffexample.org\n", "utf-8")
    for name, entry in (("b", "a.example"), ("c", "b.example")):
        with gzip.open(tmp_path / f"{name}.gz", "wb") as file:
            file.write(entry.encode())
    stage = Url(hosts=[str(tmp_path / "a.txt"), str(tmp_path / "*.gz")])
    table = pa.table(
        {"url": [f"https://{host}/" for host in ("example.org", "a.example", "b.example")]}
    )
    assert stage.measure(table)["url_hosts"].to_pylist() == [1, 1, 1]


@pytest.mark.slow
def test_a_list_can_be_in_object_storage(s3, tmp_path):
    import s3fs

    data = gzip.compress(b"example.org\n")
    s3fs.S3FileSystem().pipe(f"{s3}/list.gz", data)
    stage = Url(domains=f"{s3}/list.gz")
    assert stage.measure(pa.table({"url": URLS}))["url_domains"].to_pylist()[:4] == [1, 1, 1, 0]
    (tmp_path / "list.gz").write_bytes(data)
    assert stage.identity() == Url(domains=str(tmp_path / "list.gz")).identity()


def test_identity_depends_on_the_content_of_the_list(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a.org")
    other.write_text("a.org")
    assert Url(hosts=str(one)).identity() == Url(hosts=str(other)).identity()
    other.write_text("b.org")
    assert Url(hosts=str(one)).identity() != Url(hosts=str(other)).identity()
    table = pa.table({"url": ["http://b.org"]})
    assert Url(hosts=str(other)).measure(table)["url_hosts"].to_pylist() == [1]
    other.write_text("c.org")
    assert Url(hosts=str(other)).measure(table)["url_hosts"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("domains", "example.org/path", "is not a valid host name"),
        ("hosts", "https://example.org", "is not a valid host name"),
        ("hosts", "example.org:8080", "is not a valid host name"),
        ("hosts", "a b", "is not a valid host name"),
        ("hosts", "xn--a.example", "is not a valid host name"),
        ("hosts", "1.2.3.256", "is not a valid host name"),
        ("hosts", "2001:db8::1", "is not a valid host name"),
        ("domains", "\u200d.example", "is not a valid host name"),
        ("domains", "*.", "is not a valid host name"),
        ("words", "--", "has no letters or digits"),
        ("substrings", "%", "has no letters or digits"),
        ("urls", "http://", "has no valid host name"),
        ("urls", "http://a b/c", "has no valid host name"),
    ],
)
def test_entries_that_cannot_match_are_errors(matches, name, entry, message):
    with pytest.raises(RecipeError) as caught:
        matches(name, "fine.example", "# comment", "", entry, "fine.example")
    assert str(caught.value.where).endswith(f"{name}.txt:4")
    assert caught.value.what == f"the entry {entry!r} {message}"
    assert str(caught.value.hint).startswith("write one ")


SPELLINGS = (
    "https://bücher.example/a",
    "http://BÜCHER.example.:80/a",
    "http://bu\u0308cher。example/a/",
    "//xn--BCHER-kva.example/a",
    "ftp://joe@b%C3%BCcher.example/a#b",
    "bücher.example\\a",
    " http:bü\ncher.example/a",
)


@pytest.mark.parametrize("entry", ["bücher.example", "xn--bcher-kva.example", "BÜCHER．example"])
@pytest.mark.parametrize("name", ["domains", "hosts", "urls"])
def test_spellings_of_a_host_are_equal(tmp_path, name, entry):
    path = tmp_path / "list"
    path.write_text(entry + ("/a" if name == "urls" else ""), "utf-8")
    counts = Url(**{name: str(path)}).measure(
        pa.table({"url": [*SPELLINGS, "http://bucher.example/a"]})
    )
    assert counts[f"url_{name}"].to_pylist() == [1] * len(SPELLINGS) + [0]


@pytest.mark.parametrize("entry", ["127.0.0.1", "0x7f.1", "2130706433", "017700000001"])
def test_notations_of_an_address_are_equal(tmp_path, entry):
    path = tmp_path / "list"
    path.write_text(f"{entry}\n[0:0::1]", "utf-8")
    urls = [
        "http://127.1/",
        "http://0177.0.0.1:8080/",
        "http://１２７．０．０．１",
        "http://[::1]/",
        "http://[::0:1]:1",
    ]
    counts = Url(domains=str(path)).measure(pa.table({"url": [*urls, "http://127.0.0.2/"]}))
    assert counts["url_domains"].to_pylist() == [1] * len(urls) + [0]


def test_an_invalid_host_has_the_parents_of_its_spelling(tmp_path):
    path = tmp_path / "list"
    path.write_text("example.org", "utf-8")
    urls = ["http://a b.Example.org/", "http://xn--a.example.org/", "http://a^b.example.org./"]
    assert (
        Url(domains=str(path)).measure(pa.table({"url": urls}))["url_domains"].to_pylist()
        == [1] * 3
    )
    assert Url(hosts=str(path)).measure(pa.table({"url": urls}))["url_hosts"].to_pylist() == [0] * 3


GZIP = gzip.compress(b"example.org\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("list.txt", None, "no such file", "correct the path"),
        ("list.txt", b"", "the list is empty", "# none"),
        ("list.txt", b"\n \n", "the list is empty", "# none"),
        ("list.gz", gzip.compress(b"", mtime=0), "the list is empty", "# none"),
        ("list.txt:2", b"fine\ncaf\xe9\n", "caf.* is not UTF-8 text", "iconv -f latin1"),
        ("list.txt:1", "a.org\nb.org".encode("utf-16"), "is not UTF-8 text", "iconv -f utf-16"),
        ("list.txt:1", "a.org\nb.org".encode("utf-16-be"), "is not UTF-8 text", "iconv -f utf-16"),
        ("list.txt:2", b"a.org\n\xff\xfe\x00\x81" * 9, "is not UTF-8 text", "convert the file"),
        ("list.gz", b"a.org\n", "cannot be read as gzip", "remove .gz"),
        ("list.gz", GZIP[:-9], "cannot be read as gzip", "copy it again"),
        ("list.gz", GZIP[:20] + b"\xff\xff" + GZIP[22:], "cannot be read as gzip", "copy it again"),
        ("list.gz", GZIP[:-6] + b"\0" * 6, "cannot be read as gzip", "copy it again"),
        ("list.gz", GZIP + b"tail", "cannot be read as gzip", "copy it again"),
        ("list.txt:1", b"-" * 1_000_000, "'-{60}' has no letters or digits", "one word per line"),
    ],
)
def test_damaged_lists_are_errors_with_a_remedy(tmp_path, name, content, what, hint):
    path = tmp_path / name.partition(":")[0]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecipeError, match=what) as caught:
        Url(words=str(path)).measure(pa.table({"url": URLS}))
    assert str(caught.value.where).endswith(f"/{name}")
    assert hint in str(caught.value.hint)


def test_folders_and_links_without_a_file_are_errors(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "none")
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    for name in ("folder", "dangling", "loop"):
        for use in (Url.identity, lambda stage: stage.measure(pa.table({"url": URLS}))):
            with pytest.raises(RecipeError, match=f"{name}.txt: (no such file|cannot be reached)"):
                use(Url(words=str(tmp_path / f"{name}.txt")))


def test_without_a_list_nothing_is_rejected():
    assert Url().rules() == Url().columns() == {}
    assert Url().reasons(pa.table({"url": URLS})).to_pylist() == [None] * 9
    assert Url().measure(pa.table({"url": URLS})).num_columns == 0


def test_listings_of_remote_paths_are_cached(s3):
    import s3fs

    fs = s3fs.S3FileSystem()
    fs.pipe(f"{s3}/list", b"a")
    first, second, third = (find_referenced_files_cached(f"{s3}/list") for _ in range(3))
    assert first == find_referenced_files(f"{s3}/list")
    assert second is first or third is second  # a new 10 s interval may begin between two calls
