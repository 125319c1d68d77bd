"""Hosts, pages and words of URLs against a naive version."""

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etl.text import url_columns as addresses
from etl.text.hosts import normalize_host
from tests.helpers.naive_urls import known_to_both, naive_page, naive_parts, naive_words, urls


@given(st.lists(urls, max_size=5))
def test_hosts_and_pages_agree_with_a_naive_version(texts):
    hosts = addresses.extract_hosts(pl.Series(texts, dtype=pl.String))
    pages = addresses.normalize_urls(pl.Series(texts, dtype=pl.String))
    assert hosts.to_list() == [naive_parts(text)[0] for text in texts]
    assert pages.to_list() == [naive_page(text) for text in texts]


@given(st.lists(urls | st.none(), max_size=5))
def test_hosts_of_lists_are_valid_and_normalized(texts):
    hosts = addresses.normalize_hosts(pl.Series(texts, dtype=pl.String))
    assert hosts.to_list() == [normalize_host(text or "") for text in texts]
    assert addresses.normalize_hosts(hosts).to_list() == hosts.to_list()


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a",
        "HTTPS://user:p@ss@Example.COM:443/a/",
        " \x01http://example.com/a\x1f ",
        "ht\ntp:\t//exa\nmple.c\rom/\ta",
        r"http:\\example.com\a",
        r"http:/\/\example.com\a",
        "http:example.com/a",
        "http:///example.com/a",
        "//example.com/a",
        r"\\example.com\a",
        "example.com/a",
        "example.com.:0080/a#b",
        "http://ex%61mple.com/a",
        "http://ｅｘａｍｐｌｅ．com/a",
        "http://example。com/a",
        "http://exam\u00adple.com/a",
        "ftp://@example.com/a",
    ],
)
def test_browsers_open_the_same_page(url):
    assert addresses.extract_hosts(pl.Series([url])).to_list() == ["example.com"]
    assert addresses.normalize_urls(pl.Series([url])).to_list() == ["example.com/a"]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://A b.Example.com/", "a b.example.com"),
        ("http://xn--A.example/", "xn--a.example"),
        ("http://256.1.1.1/", "256.1.1.1"),
        ("http://ex%zzample.com", "ex%zzample.com"),
        ("http://[::1", "[::1"),
        ("http://" + "ü" * 2000, "ü" * 2000),
        ("http://\ufffd.com", "\ufffd.com"),
        ("http://%", "%"),
        ("/path", ""),
        ("file:///etc", ""),
        ("mailto:joe@example.com", "example.com"),
    ],
)
def test_an_invalid_host_is_kept_as_written(url, host):
    assert addresses.extract_hosts(pl.Series([url, None])).to_list() == [host, None]


@given(urls)
def test_words_agree_with_a_naive_version(text):
    assume(known_to_both(text))
    assert addresses.extract_words(pl.Series([text])).to_list() == [naive_words(text)]
    assert addresses.squeeze_urls(pl.Series([text])).to_list() == ["".join(naive_words(text))]


@given(st.lists(st.sampled_from("a b1 10 - 日本".split()), max_size=6).map(".".join))
def test_parents_are_the_suffixes_of_a_host(name):
    labels = name.split(".")
    above = [".".join(labels[k:]) for k in range(len(labels))]
    expected = [n for n in above[1:] if not n.rpartition(".")[2].isdigit() and n.rpartition(".")[2]]
    assert [level[0] for level in addresses.list_parent_domains(pl.Series([name]))] == [
        name,
        *expected,
    ]


@pytest.mark.parametrize(("labels", "parents"), [(128, 127), (129, 0), (1_000_000, 0)])
def test_a_host_that_is_too_long_has_no_parents(labels, parents):
    levels = addresses.list_parent_domains(pl.Series([".".join("a" * labels)]))
    assert len(levels) == 1 + parents
