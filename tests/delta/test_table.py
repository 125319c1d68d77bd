"""Data files return the rows that were written, and a commit is a compare-and-swap."""

import json
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl import schemas, storage
from etl.delta.commit import check_written
from etl.delta.table import Table
from etl.errors import ConflictError, StorageError, TableError
from etl.lake.table_specs import ARCHIVED_TOKENS, SPECS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout
from etl.parquet.plain_pages import Pages, plain_chunk
from tests.helpers.paths import NewPlace, at, opened

TOKENS = SPECS["tokens"].layout


def token_rows(lengths: list[int], source: str = "s3://raw/a") -> pa.Table:
    tokens = [list(range(n)) for n in lengths]
    return pa.table(
        {
            "id": [f"d{i}" for i in range(len(lengths))],
            "source": [source] * len(lengths),
            "row": list(range(len(lengths))),
            "tokens": pa.array(tokens, schemas.TOKENS.field("tokens").type),
            "num_tokens": pa.array(lengths, pa.int32()),
        }
    )


def write(url: str, tables: list[pa.Table], layout: Layout = TOKENS) -> list[DataFile]:
    writer = DataFileWriter(url, schemas.TOKENS, layout, name="k" * 32)
    for table in tables:
        writer.append(table)
    return writer.close()


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=20), max_size=6),
    st.integers(1, 200),
    st.integers(1, 400),
)
def test_fragments_hold_the_same_rows_in_any_layout(
    new_place: NewPlace,
    batches: list[list[int]],
    group_bytes: int,
    file_bytes: int,
) -> None:
    url = str(new_place("table"))
    layout = Layout(
        statistics=TOKENS.statistics,
        bulk="tokens",
        bulk_hash=TOKENS.bulk_hash,
        running=TOKENS.running,
        row_group_bytes=group_bytes,
        file_bytes=file_bytes,
    )
    data_files = write(url, [token_rows(lengths) for lengths in batches], layout)
    tables = [opened(at(url) / data_file.path).read() for data_file in data_files]
    lengths = [n for table in tables for n in table["num_tokens"].to_pylist()]
    assert lengths == [n for batch in batches for n in batch]
    for table, data_file in zip(tables, data_files, strict=True):
        ends = np.cumsum(table["num_tokens"].to_pylist())
        assert table["token_end"].to_pylist() == ends.tolist()
        statistics = json.loads(data_file.statistics)
        assert statistics["maxValues"]["token_end"] == ends[-1]
        assert statistics["numRecords"] == data_file.rows == table.num_rows


@pytest.mark.parametrize("layout", [TOKENS, ARCHIVED_TOKENS])
def test_tokens_are_stored_in_the_plain_form_that_the_loader_reads(
    tmp_path: Path, layout: Layout
) -> None:
    rows = token_rows([1000] * 390)
    (data_file,) = write(storage.normalize(tmp_path), [rows], layout)
    path = tmp_path / data_file.path
    chunk = pq.read_metadata(path).row_group(0).column(3)
    assert chunk.compression == layout.compression.upper()
    assert len(duckdb.read_parquet(str(path)).fetchall()) == 390
    content, plain = path.read_bytes(), plain_chunk(chunk)
    assert plain is not None
    pages = list(Pages(lambda start, size, _: content[start : start + size], plain))
    # A page ends with a document when it is full, and so it exceeds the limit by at most two of them.
    assert len(pages) > 1
    for _, tokens in pages[:-1]:
        assert layout.page_bytes <= tokens.nbytes < layout.page_bytes + 2 * 4 * 1000
    assert np.array_equal(
        np.concatenate([tokens for _, tokens in pages]),
        np.concatenate(rows["tokens"].to_pylist()),
    )


def test_a_table_is_read_by_delta_rs_polars_and_duckdb(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "tokens"), schemas.TOKENS, TOKENS)
    table = table.commit(
        write(table.url, [token_rows([3, 0, 2])]),
        transactions={"a": 1},
        commit_info={"n": {"x": [1]}},
    )
    assert table.version == 1
    assert next(table.history())["n"] == {"x": [1]}
    assert table.data_files()["max.token_end"].to_pylist() == [5]
    expected = [[0, 1, 2], [], [0, 1]]
    assert table.dataset().to_table()["tokens"].to_pylist() == expected
    path = str(tmp_path / "tokens")
    assert pl.read_delta(path)["tokens"].to_list() == expected
    rows = duckdb.sql(f"select tokens from '{path}/*.parquet' order by row").fetchall()
    assert [tokens for (tokens,) in rows] == expected
    assert (
        not pq.read_schema(next((tmp_path / "tokens").glob("*.parquet"))).field("tokens").nullable
    )


def test_the_second_of_two_writers_on_one_version_fails(place: UPath) -> None:
    Table.create(str(place), schemas.TOKENS, TOKENS)
    first, second = Table.open(str(place)), Table.open(str(place))
    first.commit(write(first.url, [token_rows([1])]), transactions={})
    with pytest.raises(ConflictError, match="another commit came first"):
        second.commit(write(second.url, [token_rows([2])]), transactions={})
    assert Table.open(str(place)).dataset().count_rows() == 1


def test_a_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # files cannot grow beyond this
    try:
        with pytest.raises(
            StorageError, match=r"cannot be written .*too large(.|\n)*free disk space"
        ):
            write(storage.normalize(tmp_path), [token_rows([1000])])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_truncated_or_missing_data_file_is_found(place: UPath) -> None:
    table = Table.create(str(place), schemas.TOKENS, TOKENS)
    (data_file,) = write(table.url, [token_rows([1, 2])])
    file = place / data_file.path
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"has \d+ bytes, but \d+ bytes were written"):
        check_written(table.url, [data_file])
    file.unlink()
    with pytest.raises(StorageError, match=r"is missing, but \d+ bytes were written"):
        check_written(table.url, [data_file])


def test_remove_and_add_create_one_version(place: UPath) -> None:
    table = Table.create(str(place), schemas.TOKENS, TOKENS)
    table = table.commit(write(table.url, [token_rows([1])]), transactions={})
    old = table.data_files()["path"].to_pylist()
    table = table.commit(write(table.url, [token_rows([2, 3])]), remove=old, transactions={})
    assert table.version == 2
    assert table.dataset().to_table()["num_tokens"].to_pylist() == [2, 3]
    assert Table.open(table.url, 1).dataset().count_rows() == 1


def test_overwrite_replaces_all_rows_and_the_schema(place: UPath) -> None:
    table = Table.create(str(place), schemas.TOKENS, TOKENS)
    table = table.commit(write(table.url, [token_rows([1])]), transactions={"a": 1})
    layout = Layout(statistics=("source", "row"))
    table = table.commit([], transactions={"b": 2}, overwrite=(schemas.DUPLICATES, layout))
    assert table.schema.names == schemas.DUPLICATES.names
    assert table.data_files().num_rows == 0
    assert [table.transactions().get(name) for name in "abc"] == [1, 2, None]
    assert Table.open(table.url, 1).schema.names == schemas.TOKENS.names


def test_transactions_survive_checkpoints(place: UPath) -> None:
    table = Table.create(str(place), schemas.TOKENS, TOKENS, transactions={"generation": 1})
    for number in range(12):
        new = {f"k{number}": number, f"{number:032x}": number, f"file:{number:032x}": number}
        table = table.commit([], transactions=new | {"last": number})
        if number == 6:
            table = table.checkpoint()
    transactions = table.transactions()
    assert [transactions.get(name) for name in ("generation", "last")] == [1, 11]
    for form in ("k{}", "{:032x}", "file:{:032x}"):
        assert [transactions.get(form.format(number)) for number in range(12)] == [*range(12)]
    assert list((place / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_missing_table_or_version_is_reported(place: UPath) -> None:
    with pytest.raises(TableError, match="no Delta table at this URL"):
        Table.open(str(place / "none"))
    Table.create(str(place / "t"), schemas.TOKENS, TOKENS)
    with pytest.raises(TableError, match="has no version 7"):
        Table.open(str(place / "t"), 7)


def test_an_unwritable_url_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be created"):
        Table.create(str(tmp_path / "file" / "tokens"), schemas.TOKENS, TOKENS)


# SeaweedFS takes a backslash for a slash.
_BACKSLASH = pytest.param("b\\c", marks=pytest.mark.local_only)


@pytest.mark.parametrize(
    "name",
    ["l#1", "q?x=1", "a b", "a+b", "a*", "ü=日", "a%b", "a&b;c", "a%20b", "a[1]", _BACKSLASH],
)
def test_a_path_may_contain_special_characters(place: UPath, name: str) -> None:
    url = f"{storage.normalize(str(place))}/{name}/table"
    table = Table.create(f"{url}/", schemas.TOKENS, TOKENS)
    table = table.commit(write(url, [token_rows([1, 2])]), transactions={"a": 1})
    table.checkpoint()
    opened = Table.open(url)
    assert opened.url == url
    assert opened.transactions().get("a") == 1
    with storage.open_input(storage.join(url, opened.data_files()["path"][0].as_py())) as file:
        assert pq.read_table(file).num_rows == 2
    names = {file.uri.removeprefix(f"{url}/") for file in storage.find_files(f"{url}/_delta_log")}
    assert names >= {f"_delta_log/{version:020}.json" for version in (0, 1)}
    if name in ("a%20b", "b\\c") or (name == "a[1]" and storage.is_local(url)):
        with pytest.raises(StorageError, match="delta-rs cannot open .*(.|\n)*copy the table"):
            opened.dataset()
    else:
        assert opened.dataset().count_rows() == 2


def test_other_engines_open_a_new_table(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    table = Table.create(str(folder), schemas.TOKENS, TOKENS, transactions={"generation": 3})
    delta = deltalake.DeltaTable(str(folder))
    protocol, metadata = delta.protocol(), delta.metadata()
    assert (delta.version(), protocol.min_reader_version, protocol.min_writer_version) == (0, 1, 2)
    assert metadata.id
    assert metadata.created_time
    assert pa.schema(delta.schema().to_arrow()).names == schemas.TOKENS.names
    assert delta.transaction_version("generation") == 3
    assert pl.read_delta(str(folder)).schema["tokens"] == pl.List(pl.Int32)
    table.commit(write(table.url, [token_rows([1, 2])]), transactions={})
    assert delta.to_pyarrow_dataset().count_rows() == 0
    delta.update_incremental()
    assert delta.to_pyarrow_dataset().count_rows() == 2
    with duckdb.connect() as connection:  # it would download its extension for Delta
        uris = delta.file_uris()
        assert connection.execute("SELECT count(*) FROM read_parquet(?)", [uris]).fetchone() == (2,)


def test_creating_a_table_that_exists_opens_it(place: UPath) -> None:
    first = Table.create(str(place), schemas.TOKENS, TOKENS, transactions={"a": 1})
    first = first.commit(write(first.url, [token_rows([1])]), transactions={}).checkpoint()
    (place / "_delta_log" / f"{0:020}.json").unlink()  # as a clean-up of the log leaves it
    second = Table.create(str(place), schemas.TOKENS, TOKENS, transactions={"a": 2})
    assert (second.version, second.transactions().get("a")) == (1, 1)
    assert not (place / "_delta_log" / f"{0:020}.json").exists()


def test_concurrent_creations_create_one_table(place: UPath) -> None:
    with ThreadPoolExecutor(4) as pool:
        tables = list(
            pool.map(
                lambda n: Table.create(str(place), schemas.TOKENS, TOKENS, transactions={"a": n}),
                range(4),
            )
        )
    assert len({table.transactions().get("a") for table in tables}) == 1
    assert {table.version for table in tables} == {0}


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.list_(pa.timestamp("us"))])
def test_a_timestamp_without_a_time_zone_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(TableError, match="without a time zone(.|\n)*convert the column to UTC"):
        Table.create(str(tmp_path), pa.schema({"when": kind}), Layout(statistics=()))
    utc = pa.schema({"timestamp_ntz": pa.timestamp("us", "UTC")})
    assert Table.create(str(tmp_path), utc, Layout(statistics=())).version == 0


def test_a_long_source_keeps_its_statistics(place: UPath) -> None:
    table = Table.create(str(place), schemas.TOKENS, TOKENS)
    source = "s3://raw/" + "x" * 1000
    table = table.commit(write(table.url, [token_rows([1], source)]), transactions={})
    assert table.data_files()["min.source"].to_pylist() == [source]
