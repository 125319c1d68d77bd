"""The expectations of a model are checked against lineage and tokens before the first step."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.lake.commit_info import to_commit_info
from etl.loader import Expect, Format, TokenDataset
from etl.loader.check_table import sample_ends
from etl.schemas import TokenizerRecord
from tests.helpers.token_tables import SHAPES, SMALL, documents, group_tokens, make_lake

NUM_TOKENS = sum(group_tokens(SMALL))  # the table's ids are 0 to NUM_TOKENS - 1
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
def commit_lineage(place):
    """A function that commits a tokenizer to the lineage of a lake, and returns the lake."""
    lake = make_lake(place, FRAMED, framed=True)

    def commit(tokenizer: TokenizerRecord, action: str = "append") -> str:
        lineage = {"tokenizer": tokenizer.model_dump(), "action": action}
        Table.open(f"{lake}/tokens").commit(
            [], transactions={}, commit_info=to_commit_info(lineage)
        )
        return lake

    return commit


def open_dataset(lake, **expected):
    return TokenDataset(lake, seq_len=7, shuffle=False, expect=Expect(**expected))


def test_a_table_that_meets_the_expectations_is_accepted(commit_lineage, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    sha256 = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    lake = commit_lineage(record(sha256=sha256))
    for named in (sha256, str(tokenizer)):
        dataset = open_dataset(lake, tokenizer=named, vocab_size=NUM_TOKENS, bos=False, eos=True)
        assert len([*dataset.batches(2)]) == dataset.num_samples // 2


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (
            {"tokenizer": "b" * 64},
            r"with tokenizer tiny \(266 ids, sha256 aaa.*the expected one \(sha256 bbb",
        ),
        (
            {"vocab_size": 265},
            r"ids up to 265, but the model has vocab_size=265(.|\n)*266 embeddings",
        ),
        ({"bos": True}, r"do not begin with BOS, but bos=True(.|\n)*`prepend_bos: true`"),
        ({"eos": False}, r"documents end with EOS, but eos=False(.|\n)*`append_eos: false`"),
    ],
)
def test_a_table_that_does_not_meet_an_expectation_is_refused(commit_lineage, expected, message):
    with pytest.raises(LoaderError, match=rf"lake/tokens: (.|\n)*{message}"):
        open_dataset(commit_lineage(record()), **expected)


def test_the_error_states_the_vocabulary_size_of_another_tokenizer(commit_lineage, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    vocabulary = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1233}]}
    tokenizer.write_text(json.dumps(vocabulary))
    lake = commit_lineage(record())
    with pytest.raises(LoaderError, match=r"the expected one \(1,234 ids, sha256"):
        open_dataset(lake, tokenizer=str(tokenizer))
    tokenizer.write_text("{}")
    with pytest.raises(LoaderError, match=r"tokenizer\.json: not a valid tokenizer\.json"):
        open_dataset(lake, tokenizer=str(tokenizer))


def test_every_tokenizer_since_the_last_rebuild_is_checked(commit_lineage):
    commit_lineage(record(append_eos=False))
    lake = commit_lineage(record())
    with pytest.raises(LoaderError, match="do not end with EOS"):
        open_dataset(lake, eos=True)
    commit_lineage(record(), "rebuild")
    assert open_dataset(lake, eos=True).tokenizer() == record()


def test_without_a_tokenizer_in_the_lineage_only_ids_can_be_checked(place):
    lake = make_lake(place, SMALL)
    for expected in ({"tokenizer": "a" * 64}, {"bos": False}, {"eos": True}):
        with pytest.raises(LoaderError, match="names no tokenizer"):
            open_dataset(lake, **expected)
    assert open_dataset(lake, vocab_size=1).num_samples


def test_the_documents_are_checked_even_if_the_lineage_agrees(commit_lineage):
    both = {"bos_id": 1, "prepend_bos": True}
    lake = commit_lineage(record(**both))
    assert open_dataset(lake, bos=True, eos=True).num_samples
    # From here on the lineage agrees, but it is wrong.
    commit_lineage(record(bos_id=1, eos_id=5, prepend_bos=True), "rebuild")
    with pytest.raises(
        LoaderError, match=r"0\.0% of .* end with EOS, but eos=True(.|\n)*etl history"
    ):
        open_dataset(lake, eos=True)
    commit_lineage(record(bos_id=1), "rebuild")
    with pytest.raises(LoaderError, match=r"100\.0% of .* begin with BOS, but bos=False"):
        open_dataset(lake, bos=False)


@given(SHAPES)
@settings(max_examples=20)
def test_shares_of_ends_equal_those_counted_in_a_loop(new_place, shape):
    assume(sum(group_tokens(shape)) > 1)
    lake = make_lake(new_place("table"), shape, data_page_size=1 << 20)
    index = TokenDataset(lake, seq_len=1).windows.index
    docs = [d.tokens for d in documents(shape) if d.tokens]
    assume(len(index.group_tokens) <= 8)
    for token in (docs[0][0], docs[-1][-1], -1):
        firsts, lasts = ([d[end] == token for d in docs] for end in (0, -1))
        expected = (sum(firsts) / len(docs), sum(lasts) / len(docs))
        assert sample_ends(index, {token}, {token}) == expected


def test_a_table_without_documents_has_no_shares(place):
    index = TokenDataset(make_lake(place, [[[100]]]), seq_len=1).windows.index
    assert sample_ends(index, {0}, {99}) == (1.0, 1.0)
    empty = replace(index, group_tokens=index.group_tokens * 0)
    assert sample_ends(empty, {0}, {99}) == (None, None)


@pytest.mark.parametrize("batch_format", [Format(), Format(document_ids=True), Format(pad_id=0)])
def test_an_id_beyond_the_vocabulary_is_refused(place, batch_format):
    lake = make_lake(place, SMALL)
    for limit in (NUM_TOKENS, NUM_TOKENS - 1):
        dataset = TokenDataset(
            lake, seq_len=7, shuffle=False, format=batch_format, expect=Expect(vocab_size=limit)
        )
        if limit == NUM_TOKENS:
            assert [*dataset.batches(1)]
            continue
        with pytest.raises(
            LoaderError, match=r"003\.parquet: row group 2 .*token id 265 .* vocab_size=265"
        ):
            list(dataset.batches(1))
