"""Files of Delta tables and of lakes are not read as plain files, however a path reaches them."""

from pathlib import Path

import polars as pl
import pytest
from upath import UPath

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import RecipeError, SourceError
from etl.job.run import run
from etl.lake.table_specs import SPECS
from etl.parquet.data_file import DataFileWriter
from etl.sources.inspect import list_files
from etl.sources.list_splits import list_source
from etl.sources.source_settings import Source
from etl.storage.s3_request_counts import store_usage
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.delta_source import SourceTable
from tests.helpers.paths import at
from tests.helpers.recipes import small_recipe
from tests.helpers.s3_server import new_bucket

DELTA_FILE = "belongs to the Delta table"


def names(path: object, lake: object = None, **settings: object) -> list[str]:
    """Return the names of the files that a source has."""
    paths = [str(each) for each in path] if isinstance(path, list) else str(path)
    source = Source.model_validate({"path": paths, **settings})
    target = None if lake is None else str(lake)
    return sorted(split.uri.rsplit("/", 1)[-1] for split in list_source(source, lake=target).files)


def write_lake(folder: UPath, tables: tuple[str, ...] = ("documents", "tokens")) -> UPath:
    """Write tables of a lake with a data file each, and a file in its scratch space."""
    rows = {"id": ["a"], "source": ["s3://raw/a"], "row": [0], "tokens": [[1]], "num_tokens": [1]}
    for name in tables:
        url = storage.join(str(folder), name)
        table = Table.create(url, schemas.TOKENS, SPECS["tokens"].layout)
        writer = DataFileWriter(url, schemas.TOKENS, SPECS["tokens"].layout, name="k" * 32)
        fields = [f for f in schemas.TOKENS if f.name in rows]
        writer.append(pl.DataFrame(rows).to_arrow().select([f.name for f in fields]))
        table.commit(writer.close(), transactions={})
    (folder / "scratch").mkdir(parents=True, exist_ok=True)
    (folder / "scratch" / "part.parquet").write_bytes(b"PAR1")
    return folder


# Object stores take the segments . and .. literally, or refuse them.
_DOTS = pytest.param("./data/../data", marks=pytest.mark.local_only)


@pytest.mark.parametrize("form", ["data", "data/", "data/*", "data/**", "data/**/*", _DOTS])
@pytest.mark.parametrize("name", ["lake", "deep/er/lake"])
def test_the_lake_below_its_source_is_left_out(place: UPath, form: str, name: str) -> None:
    write_jsonl(place / "data" / "a.jsonl", records(0, 2))
    lake = place / "data" / name
    assert names(f"{place}/{form}", lake) == ["a.jsonl"]  # it does not exist yet
    write_lake(lake)
    (lake / "documents" / "part-0-of-another-program.parquet").write_bytes(b"PAR1")
    assert names(f"{place}/{form}", lake) == ["a.jsonl"]


@pytest.mark.parametrize("tables", [("documents",), ("documents", "tokens")])
def test_other_lakes_are_left_out(place: UPath, tables: tuple[str, ...]) -> None:
    write_jsonl(place / "a.jsonl", records(0, 2))
    other = write_lake(place / "other", tables)
    if len(tables) == 1:
        (other / "scratch" / "part.parquet").unlink()
    assert names(place) == names(f"{place}/**") == ["a.jsonl"]
    assert [file.uri for file in list_files([str(place)])] == [
        storage.normalize(f"{place}/a.jsonl")
    ]
    for path in (other, f"{other}/**/*.parquet", f"{other}/documents/*.parquet"):
        with pytest.raises(SourceError, match="all files belong to the lake or table"):
            names(path)
    columns = {"columns": {"text": "source"}}
    assert len(names(other / "documents", **columns)) == 1  # read as a table


def test_a_table_is_not_made_from_itself(place: UPath) -> None:
    lake = write_lake(place / "lake")
    write_jsonl(lake / "raw" / "a.jsonl", records(0, 2))
    with pytest.raises(SourceError, match="the table is in the lake that is written"):
        names(lake / "documents", lake, columns={"text": "source"})
    for path in (lake, lake / "raw", f"{lake}/raw/*.jsonl", lake / "raw" / "a.jsonl"):
        with pytest.raises(SourceError, match="all files belong to the lake"):
            names(path, lake)


@pytest.mark.parametrize("partition", [[], ["n"]])
def test_a_glob_over_the_files_of_a_table_is_refused(place: UPath, partition: list[str]) -> None:
    table = SourceTable(place / "up" / "t", partition_by=partition)
    table.append()
    table.append()
    table.open().delete("n = 0")
    write_jsonl(place / "up" / "a.jsonl", records(0, 2))
    files = sorted(file.uri for file in storage.find_files(str(place / "up" / "t")))
    assert len(files) > len(names(place / "up" / "t")) > 0  # one was removed
    folder = files[0].rpartition("/")[0]
    for path in (
        place,
        place / "up",
        f"{place}/**/*.parquet",
        f"{place}/*/t/**",
        f"{folder}/*.parquet",
    ):
        with pytest.raises(SourceError, match=DELTA_FILE) as caught:
            names(path)
        assert storage.normalize(str(place / "up" / "t")) in str(caught.value.hint)
    for path in (files[0], folder if partition else files[0]):
        with pytest.raises(SourceError, match=DELTA_FILE):
            names(path)
    with pytest.raises(SourceError, match=DELTA_FILE):
        names(place / "up" / "t", format="parquet")
    assert names(f"{place}/up/*.jsonl") == names(f"{place}/**/*.jsonl") == ["a.jsonl"]
    both = names([place / "up" / "t", f"{place}/up/*.jsonl"])
    assert both == sorted([*names(place / "up" / "t"), "a.jsonl"])


def test_a_lake_inside_a_table_is_refused(place: UPath) -> None:
    SourceTable(place / "t").append()
    write_jsonl(place / "a.jsonl", records(0, 2))
    for lake in (place / "t", place / "t" / "lake", place / "t" / "x" / "y"):
        with pytest.raises(RecipeError, match="the lake is inside the Delta table"):
            names(place / "a.jsonl", lake)


def test_links_and_other_spellings_reach_the_same_lake(tmp_path: Path) -> None:
    data = at(tmp_path / "data")
    write_jsonl(data / "a.jsonl", records(0, 2))
    lake = write_lake(data / "lake")
    table = SourceTable(tmp_path / "t")
    table.append()
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "lake").symlink_to(tmp_path / "link" / "lake")
    for path in (data, tmp_path / "link", f"file://{tmp_path}/link/**", f"{tmp_path}/./link/**/*"):
        for spelling in (lake, tmp_path / "link" / "lake", tmp_path / "lake", f"file://{lake}"):
            assert names(path, spelling) == ["a.jsonl"]
    (file,) = (tmp_path / "t").glob("*.parquet")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "b.parquet").symlink_to(file)
    with pytest.raises(SourceError, match=DELTA_FILE):
        names(tmp_path / "files")
    (tmp_path / "u").symlink_to(tmp_path / "t")
    with pytest.raises(SourceError, match=DELTA_FILE):
        names(f"{tmp_path}/u/*.parquet")
    assert names(tmp_path / "u") == [file.name]


@pytest.mark.parametrize("form", ["", "/**/*.jsonl", "/*/*"])
def test_folders_cost_no_requests(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    bucket = new_bucket(s3_endpoint, monkeypatch)
    write_lake(at(f"{bucket}/up/lake"))

    def count() -> int:
        before = store_usage()
        assert set(names(f"{bucket}/up{form}", f"s3a{bucket[2:]}/up/lake")) == {"a.jsonl"}
        sent = store_usage() - before
        lists = (
            0 if form == "/*/*" else sent.write_requests
        )  # fsspec lists each folder of this glob
        return sent.read_requests + lists

    storage.write_bytes(f"{bucket}/up/0/a.jsonl", b'{"text": "a"}\n')
    few = count()
    for number in range(1, 30):
        storage.write_bytes(f"{bucket}/up/{number}/a.jsonl", b'{"text": "a"}\n')
    assert count() == few


def test_a_lake_below_its_source_stays_the_same(place: UPath, tiny_tokenizer: Path, client) -> None:
    write_jsonl(place / "a.jsonl", records(0, 20))
    recipe = small_recipe(str(place), str(place / "lake"), tiny_tokenizer)
    assert run(recipe, cluster=client).rows == 20
    assert run(recipe, cluster=client).rows == 0
