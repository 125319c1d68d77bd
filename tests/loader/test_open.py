"""Opening a table: its version and location, the rank of this process, and errors."""

import gc
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.lake import releases
from etl.lake.table_specs import SPECS
from etl.loader import Shard, Shuffle, TokenDataset
from etl.parquet.data_file import DataFileWriter
from etl.schemas import DUPLICATES, TOKENIZED, TOKENS
from tests.helpers.paths import at, opened
from tests.helpers.token_tables import MIXED, SMALL, make_lake, rows_of


def test_the_version_is_pinned(place):
    url = make_lake(place, SMALL)
    dataset = TokenDataset(url, seq_len=10)
    table = Table.open(f"{url}/tokens")
    table.commit([], remove=["000.parquet"], transactions={})
    assert (dataset.version, dataset.num_tokens) == (1, 266)
    rows = rows_of(dataset)
    assert len(rows) == 26
    newest = TokenDataset(f"{url}/tokens", seq_len=10)
    assert (newest.version, newest.num_tokens) == (2, 212)
    assert rows_of(TokenDataset(url, seq_len=10, version=1)) == rows
    with pytest.raises(LoaderError, match=r"version=1, here 2(.|\n)*hint: open .* version=1"):
        newest.load_state_dict(dataset.state_dict())


def test_errors_state_the_mistake(place, lake):
    with pytest.raises(LoaderError, match=r"no token table(.|\n)*hint"):
        TokenDataset(str(place), seq_len=10)
    with pytest.raises(LoaderError, match="has no version 7"):
        TokenDataset(lake, seq_len=10, version=7)
    with pytest.raises(LoaderError, match=r"needs 268 tokens(.|\n)*hint: use a smaller seq_len"):
        TokenDataset(lake, seq_len=267)
    with pytest.raises(LoaderError, match="rank 2 is not valid for world size 2"):
        TokenDataset(lake, seq_len=10, shard=Shard(rank=2, world_size=2))
    other = Table.create(str(place / "duplicates"), DUPLICATES, SPECS["duplicates"].layout)
    with pytest.raises(LoaderError, match="column tokens is missing"):
        TokenDataset(other.url, seq_len=10)
    lanes = Shuffle(lanes=256)  # the defaults depend on the store
    dataset = TokenDataset(lake, seq_len=10, shuffle=lanes)
    for seed, shuffle, message in ((1, lanes, "seed=0, here 1"), (0, False, "lanes=256, here 0")):
        with pytest.raises(LoaderError, match=message):
            TokenDataset(lake, seq_len=10, seed=seed, shuffle=shuffle).load_state_dict(
                dataset.state_dict()
            )
    with pytest.raises(LoaderError, match="format 1"):
        dataset.load_state_dict({**dataset.state_dict(), "format": 1})
    for mistake in (
        lambda: dataset.locate(26),
        lambda: dataset.set_epoch(-1),
        lambda: dataset.batches(0),
    ):
        with pytest.raises(LoaderError):
            mistake()


@pytest.mark.local_only  # in a store, the footer is read at the offset that the log implies
def test_a_running_total_broken_by_another_tool_is_refused(place):
    lake, other = (make_lake(place / str(last), [[[3, 4], [last]]]) for last in (5, 6))
    file, another = (at(url) / "tokens" / "000.parquet" for url in (lake, other))
    file.write_bytes(another.read_bytes())
    with pytest.raises(LoaderError, match="the file has 13 tokens, but the log records 12"):
        TokenDataset(lake, seq_len=2)
    rows = opened(file).read()
    column = pa.array([3, 7, 6], pa.int64())  # as if two files had been merged
    with file.open("wb") as written:
        pq.write_table(rows.set_column(5, rows.schema.field(5), column), written)
    with pytest.raises(LoaderError, match="0 has 13 token values, but token_end implies 7"):
        TokenDataset(lake, seq_len=2)


def test_rank_comes_from_the_environment(lake, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    dataset = TokenDataset(lake, seq_len=10)
    with pytest.raises(LoaderError, match="rank 1 is not valid for world size None"):
        rows_of(dataset)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (dataset.rank, dataset.world_size) == (1, 2)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(LoaderError, match="RANK='one' is not an integer"):
        rows_of(dataset)


def test_a_lake_may_be_in_object_storage(s3):
    lengths = [700, 0, 1, 900, 300]
    columns = {
        "id": [str(i) for i in range(5)],
        "source": ["s3://in/0.jsonl"] * 5,
        "row": list(range(5)),
        "tokens": [[i] * n for i, n in enumerate(lengths)],
        "num_tokens": lengths,
    }
    schema = pa.schema([field for field in TOKENIZED if field.name != "token_end"])
    table = Table.create(f"{s3}/lake/tokens", TOKENS, SPECS["tokens"].layout)
    writer = DataFileWriter(table.url, TOKENS, SPECS["tokens"].layout, name="split")
    writer.append(pa.table(columns, schema=schema))
    table.commit(writer.close(), transactions={})
    dataset = TokenDataset(f"{s3}/lake", seq_len=100, shuffle=False)
    whole = [i for i, n in enumerate(lengths) for _ in range(n)]
    assert rows_of(dataset, 3) == [whole[i * 100 : i * 100 + 101] for i in range(19)]
    assert [part.id for part in dataset.locate(6)] == ["0", "2"]
    assert dataset.tokenizer() is None


def test_a_dataset_can_be_opened_from_a_state(place):
    url = make_lake(place, SMALL)
    for shuffle in (MIXED, False):
        dataset = TokenDataset(url, seq_len=7, seed=3, shuffle=shuffle)
        whole = rows_of(dataset)
        Table.open(f"{url}/tokens").commit([], transactions={})  # a newer version
        state = dataset.state_dict(consumed=11)
        resumed = TokenDataset.from_state(url, {"step": 11, "data": state})
        assert rows_of(resumed) == whole[11:]


def test_a_version_can_be_given_as_a_release(place):
    url = make_lake(place, SMALL)
    releases.create_release(url, "small", version=1)
    Table.open(f"{url}/tokens").commit([], remove=["000.parquet"], transactions={})
    dataset = TokenDataset(url, seq_len=10, version="small")
    assert (dataset.version, dataset.num_tokens) == (1, 266)
    again = TokenDataset.from_state(url, dataset.state_dict())
    assert rows_of(again) == rows_of(TokenDataset(f"{url}/tokens", seq_len=10, version="small"))
    assert dataset.state_dict()["version"] == 1
    with pytest.raises(LoaderError, match="version=1, here 2"):
        TokenDataset(url, seq_len=10).load_state_dict(dataset.state_dict())
    with pytest.raises(LoaderError, match=r"no release 'other'(.|\n)*small"):
        TokenDataset(url, seq_len=10, version="other")


def test_footers_are_freed_without_the_garbage_collector(lake):
    gc.collect()
    before = _footers()  # earlier tests may have left some
    gc.disable()
    try:
        dataset = TokenDataset(lake, seq_len=10)
        rows_of(dataset)
        for thread in threading.enumerate():  # a thread holds its last footer for a moment
            if thread.name == "tokenlake-fetch":
                thread.join()
        assert [footer for footer in _footers() if not any(footer is old for old in before)] == []
    finally:
        gc.enable()


def _footers():
    return [footer for footer in gc.get_objects() if type(footer) is pq.FileMetaData]
