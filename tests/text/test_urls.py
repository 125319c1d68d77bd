"""Hosts, pages and words of URLs against a naive version."""

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etl.text import urls as addresses
from tests.helpers.naive_urls import SPACE, known_to_both, naive_parts, naive_words, urls


@given(st.lists(urls, max_size=5))
def test_hosts_and_pages_agree_with_a_naive_version(texts):
    hosts = addresses.extract_hosts(pl.Series(texts, dtype=pl.String))
    pages = addresses.normalize_urls(pl.Series(texts, dtype=pl.String))
    for text, host, page in zip(texts, hosts, pages, strict=True):
        assume(known_to_both(text))
        expected, port, rest = naive_parts(text)
        assert host == expected
        port = "" if port in ("", ":", ":80", ":443") else port
        assert page == expected + port + rest.rstrip(SPACE).rstrip("/")


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
