"""Personal data: masking is complete and exact, and counts of rejected texts equal the counts of masking."""

import re

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from etl.errors import RecipeError
from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages import Pii
from tests.helpers.personal_data import masked, table, texts

MASK = re.compile("<(?:EMAIL|IP|IBAN|CARD|PHONE)>")


@settings(max_examples=150)
@given(st.lists(texts, max_size=3))
@example(["+49 30 12345678901 4111 1111 1111 1111", "4111111111111111:0049 30 12345678"])
@example(["2020::DE89370400440532013000"])
@example(["+100000000)010000/000", "+100000000 (0301) 2345678"])
@example(["2a00:1450::81.2.3.4", "2a00:1:2:3:4:5::81.2.69.142", "2a00::1:2:3:4:5:81.2.69.142"])
@example(['81.2.69.142"john doe"@b.de', '"a"@b.de"c"@d.de', "N'a@b.de'c@d.de'"])
def test_masked_text_has_no_more_matches(documents):
    once = masked(documents)
    twice = masked([row["text"] for row in once])
    assert [row["text"] for row in twice] == [row["text"] for row in once]
    for text, row, again in zip(documents, once, twice, strict=True):
        assert {*again.values()} == {again["text"], 0}
        if not MASK.search(text):
            assert sum(list(row.values())[1:]) == len(MASK.findall(row["text"]))


@given(st.lists(texts, min_size=1, max_size=3))
def test_text_outside_the_matches_is_unchanged(documents):
    for text, row in zip(documents, masked(documents), strict=True):
        if not MASK.search(text):
            kept = map(re.escape, MASK.split(row["text"]))
            assert re.fullmatch("(.+)".join(kept), text, re.DOTALL)


def test_text_without_matches_is_not_copied():
    before = table(["no data" * 10, None, ""])  # fewer than 64 bytes would be copied
    for stage in (Pii(), Pii(action="reject")):
        after = stage.apply(before)
        assert buffers(after["text"]).data.ctypes.data == buffers(before["text"]).data.ctypes.data
    assert Pii().apply(before).to_pylist()[1] == dict.fromkeys(["text", *Pii().columns()])


@given(st.lists(texts, max_size=3))
def test_reject_counts_like_mask_and_does_not_change_the_text(documents):
    stage = Pii(action="reject")
    result = stage.apply(table(documents))
    assert result["text"].to_pylist() == documents
    counts = [*stage.columns()]
    assert result.select(counts).equals(Pii().apply(table(documents)).select(counts))


def test_invalid_settings_are_rejected():
    with pytest.raises(RecipeError, match="find: "):
        Pii(find=["mail"])
    with pytest.raises(ValidationError, match="masks.mail"):
        Pii.model_validate({"masks": {"mail": "x"}})


def test_real_documents(data):
    documents = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"])
    result = Pii().apply(documents)
    totals = {name: sum(result[name].to_pylist()) for name in Pii().columns()}
    assert totals["pii_emails"] > 500
    assert totals["pii_cards"] + totals["pii_ibans"] == 0
    again = Pii().apply(result.select(["text"]))
    assert {sum(again[name].to_pylist()) for name in Pii().columns()} == {0}
