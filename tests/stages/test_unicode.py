"""Normalize text: compare with Python; a second pass changes nothing; unchanged text is not copied."""

import unicodedata

import ftfy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages import Unicode
from etl.stages.transforms.unicode import _fix
from tests.helpers.naive_control_characters import naive, texts

FORMS = (None, "NFC", "NFKC")


def table(documents) -> pa.Table:
    return pa.table({"text": pa.array(documents, pa.string())})


def address(array) -> int:
    return buffers(array).data.ctypes.data


@settings(max_examples=60)
@given(st.lists(st.none() | texts, max_size=4), st.sampled_from(FORMS))
def test_results_agree_with_python(documents, form):
    result = Unicode(form=form).apply(table(documents))
    for text, row in zip(documents, result.to_pylist(), strict=True):
        if text is None:
            assert row == dict.fromkeys(result.column_names)
            continue
        expected, _, removed = naive(text, line_ends=True, controls=True)
        expected = expected if form is None else unicodedata.normalize(form, expected)
        changed = float(expected != text)
        assert row == {"text": expected, "unicode_controls": removed, "unicode_changed": changed}


@settings(max_examples=40)
@given(st.lists(texts, max_size=4), st.sampled_from(FORMS))
def test_a_second_pass_changes_nothing(documents, form):
    once = Unicode(form=form).apply(table(documents))["text"].combine_chunks()
    twice = Unicode(form=form).apply(pa.table({"text": once}))
    assert twice["text"].to_pylist() == once.to_pylist()
    assert set(twice["unicode_changed"].to_pylist()) <= {0.0}


def test_unchanged_text_is_not_copied():
    before = table(["né", "plain", None, ""])
    after = Unicode(fix=True).apply(before)
    assert address(after["text"]) == address(before["text"])


def test_bytes_of_a_null_text_are_not_read():
    whole = pa.array([b"a", b"\xff\xff", "e\u0301".encode()], pa.binary()).view(pa.string())
    mask = pa.py_buffer(b"\x05")
    array = pa.Array.from_buffers(pa.string(), 3, [mask, *whole.buffers()[1:]])
    assert Unicode(fix=True).apply(pa.table({"text": array}))["text"].to_pylist() == [
        "a",
        None,
        "é",
    ]


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_skipped_ascii_text_has_nothing_to_fix(text):
    if "&" not in text and "\x1b" not in text:
        config = ftfy.TextFixerConfig(
            fix_line_breaks=False, remove_control_chars=False, normalization=None
        )
        config = config._replace(uncurl_quotes=False)
        assert _fix(text) == ftfy.fix_text(text, config) == text


@pytest.mark.parametrize("text", ["&lt;b&gt;", "\x1b[36;44mred\x1b[0m"])
def test_ascii_text_with_entities_or_escapes_is_fixed(text):
    assert _fix(text) == ftfy.fix_text(text) != text


def test_real_documents(data):
    documents = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"]).slice(0, 800)
    result = Unicode().apply(documents)
    for before, row in zip(documents["text"].to_pylist(), result.to_pylist(), strict=True):
        assert row["text"] == unicodedata.normalize("NFC", naive(before, True, True)[0])
