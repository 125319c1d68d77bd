"""Host names and addresses against one regular expression."""

from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.jit import kernel
from etl.kernels.words import spacy_hosts
from tests.helpers.naive_spacy import HOST_NAME, chunk_of

PIECES = """
    http :// ab+c a b A Z é Ж 東 1 - _ . . . www com de c @ : :80 :8080 :123456 / ? # /x ?y=1 \u0301
""".split()
chunks = st.lists(st.sampled_from(PIECES), min_size=1, max_size=10).map("".join)


@kernel
def _is_host(chunk):
    return spacy_hosts.is_host(chunk, 0, len(chunk) - 1)


@given(chunks)
@example("http://user@www.a-b.example:8080/path?x=1")
@example("a@@b.cd")
@example("a" * 64 + ".bc")
@example("a" * 65 + ".bc")
@example("a." + "b" * 63)
@example("a." + "b" * 64)
def test_hosts_are_those_of_the_rule(text):
    chunk, _ = chunk_of(text)
    assert _is_host(chunk) == bool(HOST_NAME.match(text))
