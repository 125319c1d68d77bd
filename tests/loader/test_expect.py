"""What a training run expects is checked before its first step, against lineage and tokens."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from etl.errors import LoaderError
from etl.loader import Expect, Format, TokenDataset
from etl.loader.ends import sample_ends
from etl.table import Table
from schemas import TokenizerRecord
from tests.loader.tables import SHAPES, SMALL, documents, group_tokens, make_lake

NUM_TOKENS = sum(group_tokens(SMALL))  # the ids of the table are those below
FRAMED = [[[n for n in lengths if n != 1] for lengths in groups] for groups in SMALL]


def record(**changes):
    fields = {
        "name": "tiny",
        "sha256": "a" * 64,
        "vocab_size": NUM_TOKENS,
        "bos_id": None,
        "eos_id": 0,
        "append_eos": True,
        "prepend_bos": False,
    }
    return TokenizerRecord.model_validate({**fields, **changes})


@pytest.fixture
def told(place):
    """A lake, and what adds a commit with a tokenizer to its lineage."""
    lake = make_lake(place, FRAMED, framed=True)

    def commit(found: TokenizerRecord, action: str = "append") -> str:
        lineage = {"format": 2, "tokenizer": found.model_dump(), "action": action}
        Table.open(f"{lake}/tokens").commit([], transactions={}, lineage=lineage)
        return lake

    return commit


def opened(lake, **expected):
    return TokenDataset(lake, seq_len=7, shuffle=False, expect=Expect(**expected))


def test_what_fits_is_taken(told, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    sha256 = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    lake = told(record(sha256=sha256))
    for named in (sha256, str(tokenizer)):
        dataset = opened(lake, tokenizer=named, vocab_size=NUM_TOKENS, bos=False, eos=True)
        assert len([*dataset.batches(2)]) == dataset.num_samples // 2


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"tokenizer": "b" * 64}, r"of tokenizer tiny of 266 ids with sha256 aaa.*with sha256 bbb"),
        (
            {"vocab_size": 265},
            r"ids up to 265, the model takes vocab_size=265(.|\n)*266 embeddings",
        ),
        ({"bos": True}, r"do not begin with BOS, bos=True(.|\n)*`prepend_bos: true`"),
        ({"eos": False}, r"documents end with EOS, eos=False(.|\n)*`append_eos: false`"),
    ],
)
def test_what_does_not_fit_is_refused(told, expected, message):
    with pytest.raises(LoaderError, match=rf"lake/tokens: (.|\n)*{message}"):
        opened(told(record()), **expected)


def test_another_tokenizer_file_is_told_by_its_ids(told, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    vocabulary = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1233}]}
    tokenizer.write_text(json.dumps(vocabulary))
    lake = told(record())
    with pytest.raises(LoaderError, match=r"expected is one of 1,234 ids with sha256"):
        opened(lake, tokenizer=str(tokenizer))
    tokenizer.write_text("{}")
    with pytest.raises(LoaderError, match=r"tokenizer\.json: no tokenizer\.json"):
        opened(lake, tokenizer=str(tokenizer))


def test_every_tokenizer_since_the_last_rebuild_counts(told):
    told(record(append_eos=False))
    lake = told(record())
    with pytest.raises(LoaderError, match="do not end with EOS"):
        opened(lake, eos=True)
    told(record(), "rebuild")
    assert opened(lake, eos=True).tokenizer() == record()


def test_a_lineage_without_tokenizer_can_be_asked_for_ids_alone(place):
    lake = make_lake(place, SMALL)
    for expected in ({"tokenizer": "a" * 64}, {"bos": False}, {"eos": True}):
        with pytest.raises(LoaderError, match="names no tokenizer"):
            opened(lake, **expected)
    assert opened(lake, vocab_size=1).num_samples


def test_lineage_is_compared_with_the_documents_themselves(told):
    both = {"bos_id": 1, "prepend_bos": True}
    lake = told(record(**both))
    assert opened(lake, bos=True, eos=True).num_samples
    # The lineage says so, and what it says is not true.
    told(record(bos_id=1, eos_id=5, prepend_bos=True), "rebuild")
    with pytest.raises(LoaderError, match=r"0\.0% of .* end with EOS, eos=True(.|\n)*etl history"):
        opened(lake, eos=True)
    told(record(bos_id=1), "rebuild")
    with pytest.raises(LoaderError, match=r"100\.0% of .* begin with BOS, bos=False"):
        opened(lake, bos=False)


@given(SHAPES)
@settings(max_examples=20)
def test_ends_are_those_of_a_loop(new_place, shape):
    assume(sum(group_tokens(shape)) > 1)
    lake = make_lake(new_place("table"), shape, data_page_size=1 << 20)
    index = TokenDataset(lake, seq_len=1)._index
    found = [d.tokens for d in documents(shape) if d.tokens]
    assume(len(index.group_tokens) <= 8)
    for token in (found[0][0], found[-1][-1], -1):
        firsts, lasts = ([d[place] == token for d in found] for place in (0, -1))
        expected = (sum(firsts) / len(found), sum(lasts) / len(found))
        assert sample_ends(index, {token}, {token}) == expected


def test_a_table_without_documents_has_no_share(place):
    index = TokenDataset(make_lake(place, [[[100]]]), seq_len=1)._index
    assert sample_ends(index, {0}, {99}) == (1.0, 1.0)
    empty = replace(index, group_tokens=index.group_tokens * 0)
    assert sample_ends(empty, {0}, {99}) == (None, None)


@pytest.mark.parametrize("batch_format", [Format(), Format(document_ids=True), Format(pad_id=0)])
def test_an_id_that_the_model_does_not_have_is_named(place, batch_format):
    lake = make_lake(place, SMALL)
    for limit in (NUM_TOKENS, NUM_TOKENS - 1):
        dataset = TokenDataset(
            lake, seq_len=7, shuffle=False, format=batch_format, expect=Expect(vocab_size=limit)
        )
        if limit == NUM_TOKENS:
            assert [*dataset.batches(1)]
            continue
        with pytest.raises(
            LoaderError, match=r"003\.parquet: row group 2 .*token 265, vocab_size=265"
        ):
            list(dataset.batches(1))
