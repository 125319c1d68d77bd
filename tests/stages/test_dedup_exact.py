"""Compare the content hash with a naive implementation."""

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from etl.stages.dedup_exact import content_hash

texts = st.text(
    st.sampled_from("aé東 \t\n\r\x1c\x1f\x85\xa0\u2003\u2028\u3000\u200b\ufeff"), max_size=8
)
texts = texts | st.text(max_size=20)


def hashes(array, normalize="whitespace"):
    return content_hash(array, normalize).to_pylist()


@given(st.lists(texts, min_size=2, max_size=6))
def test_hashes_are_equal_if_texts_differ_only_in_white_space(documents):
    array = pa.array(documents)
    normal = [" ".join(text.split()) for text in documents]
    assert hashes(array) == [xxhash.xxh3_128_digest(text.encode()) for text in normal]
    assert len(set(hashes(array))) == len(set(normal))


@given(st.lists(texts, max_size=6))
def test_without_normalization_the_exact_text_is_hashed(documents):
    expected = [xxhash.xxh3_128_digest(text.encode()) for text in documents]
    assert hashes(pa.array(documents, pa.string()), "none") == expected


@pytest.mark.parametrize("normalize", ["whitespace", "none"])
def test_slices_nulls_and_chunks_are_hashed_by_value(normalize):
    array = pa.array(["skipped", None, "", "b  c", None])
    (empty, text) = hashes(pa.array(["", "b  c"]), normalize)
    assert hashes(array[1:], normalize) == [None, empty, text, None]
    assert hashes(pa.chunked_array([array[:2], array[3:]]), normalize)[1:] == [None, text, None]
    assert content_hash(array, normalize).type == pa.binary()
    assert hashes(pa.array([], pa.string()), normalize) == []
