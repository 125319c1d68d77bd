"""Lists of files and indexes of records: what they name is read, and what is wrong with them is reported."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from etl.errors import RecipeError, SourceError, StorageError
from etl.recipe.propose import propose_recipe
from etl.recipe.recipe import Recipe
from etl.sources.formats import warc_index
from etl.sources.inspect import inspect_source
from etl.sources.list_splits import cut_files, list_source, list_splits
from etl.sources.read_split import read_split
from etl.sources.source_settings import Source
from tests.helpers.range_server import RangeServer, range_server
from tests.helpers.record_index import INDEX, Row, crawl_file, write_index, write_list
from tests.helpers.s3_server import new_environment
from tests.helpers.warc_archives import PACKINGS, pack, record, response

NAMES = ("crawl-data/CC-1/segments/1/warc/a.warc.gz", "crawl-data/CC-1/segments/2/warc/b.warc.gz")
FILES = {name: crawl_file(range(20 * at, 20 * at + 20), name) for at, name in enumerate(NAMES)}
ROWS: list[Row] = [row for _, rows in FILES.values() for row in rows]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    with range_server() as started:
        new_environment(started.endpoint, monkeypatch)
        started.objects.update({name: content for name, (content, _) in FILES.items()})
        yield started


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    for name, (content, _) in FILES.items():
        path = tmp_path / "crawl" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    return tmp_path / "crawl"


def _rows(source: Source) -> list[dict[str, Any]]:
    tables = [table for split in list_splits(source) for table in read_split(split, source)]
    return pa.concat_tables(tables).to_pylist() if tables else []


def _addresses(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["source"], row["row"]) for row in rows]


def _expected(prefix: str, wanted: Sequence[Row]) -> list[tuple[str, int]]:
    return sorted((f"{prefix}/{name}", offset) for name, offset, _ in wanted)


# Lists


@pytest.mark.parametrize("name", ["warc.paths", "warc.paths.gz", "list.txt"])
def test_a_list_has_the_rows_of_its_files(tmp_path: Path, crawl: Path, name: str) -> None:
    listed = write_list(tmp_path / name, ["# two files", *NAMES, "", NAMES[0]])
    source = Source(list=str(listed), prefix=str(crawl))
    assert _rows(source) == _rows(Source(path=str(crawl)))
    assert _addresses(_rows(source)) == _expected(f"file://{crawl}", ROWS)


def test_names_are_below_the_folder_of_a_local_list_or_have_their_own_url(crawl: Path) -> None:
    relative = write_list(crawl / "a.paths", NAMES)
    absolute = write_list(crawl / "b.paths", [f"{crawl}/{NAMES[0]}", f"file://{crawl}/{NAMES[1]}"])
    expected = _rows(Source(path=f"{crawl}/crawl-data"))
    assert _rows(Source(list=str(relative))) == expected
    assert _rows(Source(list=str(absolute))) == expected
    assert _rows(Source(list=(str(relative), str(absolute)))) == expected


def test_a_list_has_precedence_over_a_path_without_a_value(tmp_path: Path, crawl: Path) -> None:
    listed = write_list(crawl / "warc.paths.gz", NAMES)
    recipe = Recipe.load("fineweb", settings=[f"source.list={listed}", "tokenize.tokenizer=a"])
    assert recipe.source.paths == (str(listed),)
    assert len(list_source(recipe.source).files) == len(NAMES)
    with pytest.raises(SourceError, match=r"set source.list instead of source.path"):
        list_source(Source(path=str(listed)))


def test_a_list_is_inspected(crawl: Path) -> None:
    listed = write_list(crawl / "warc.paths.gz", NAMES)
    facts = inspect_source([str(listed)])
    assert facts.source == Source(list=str(listed))
    assert [(each.format, each.files) for each in facts.formats] == [("warc", 2)]
    assert facts.documents.num_rows == len(ROWS)
    assert f"list: {listed}" in propose_recipe(str(listed)).text


def test_a_list_may_name_files_of_any_format(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "b").write_text('{"text": "two"}\n')
    listed = write_list(tmp_path / "files.txt", ["a.jsonl"])
    assert [row["text"] for row in _rows(Source(list=str(listed)))] == ["one"]
    write_list(listed, ["a.jsonl", "b"])
    with pytest.raises(SourceError, match="/b: the format of the file cannot be determined"):
        _rows(Source(list=str(listed)))
    rows = _rows(Source(list=str(listed), format="jsonl"))
    assert [row["text"] for row in rows] == ["one", "two"]


def test_wrong_names_are_problems_and_the_others_are_read(tmp_path: Path, crawl: Path) -> None:
    names = ["gone.warc.gz", NAMES[0], "../secret.warc.gz", "s3://b/a?versionId=7"]
    listed = write_list(tmp_path / "warc.paths", names)
    source = Source(list=str(listed), prefix=str(crawl))
    found = list_source(source)
    assert [split.uri for split in found.files] == [f"file://{crawl}/{NAMES[0]}"]
    problems = {str(error.where): f"{error.what}; {error.hint}" for error in found.problems}
    assert problems.keys() == {
        f"file://{listed}:3",
        f"file://{listed}:4",
        f"file://{crawl}/gone.warc.gz",
    }
    assert f"named in file://{listed}:1" in problems[f"file://{crawl}/gone.warc.gz"]
    write_list(listed, ["gone.warc.gz"])
    with pytest.raises(StorageError, match="gone.warc.gz: the file does not exist"):
        list_source(source)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the list is empty"), (b"\xff\xfe", "not UTF-8"), (b"\x1f\x8bX", "as gzip")],
)
def test_a_list_that_cannot_be_read_is_an_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "warc.paths.gz"
    path.write_bytes(content if content[:1] == b"\x1f" else write_list(path, []).read_bytes())
    if content[:1] == b"\xff":
        path = path.with_suffix("")
        path.write_bytes(content)
    with pytest.raises(RecipeError, match=message):
        list_source(Source(list=str(path)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'path' is missing"),
        ({"path": "a", "list": "b"}, "one of path, list and index, not path and list"),
        ({"list": "a", "index": "b"}, "one of path, list and index, not list and index"),
        ({"path": "a", "prefix": "b"}, "set prefix with list or index"),
        ({"index": "a", "format": "jsonl"}, "an index is of WARC files"),
        ({"list": ()}, "list"),
    ],
)
def test_a_source_names_one_input(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Source(**given)


# An index


def test_an_index_has_the_rows_of_its_records(tmp_path: Path, crawl: Path) -> None:
    wanted = ROWS[35:3:-2]
    write_index(tmp_path / "index" / "0.parquet", wanted[::2])
    write_index(tmp_path / "index" / "1.parquet", wanted[1::2] + wanted[:3])
    whole = {(row["source"], row["row"]): row for row in _rows(Source(path=str(crawl)))}
    for index in (str(tmp_path / "index"), f"{tmp_path}/index/*.parquet"):
        rows = _rows(Source(index=index, prefix=str(crawl), metadata="all"))
        assert _addresses(rows) == _expected(f"file://{crawl}", wanted)
    for row in rows:
        assert {**row, "metadata": None} == whole[row["source"], row["row"]]
    assert {split.format for split in list_splits(Source(index=index, prefix=str(crawl)))} == {
        "warc"
    }


@pytest.mark.parametrize("how", [how for how in PACKINGS if how != "one gzip"])
def test_records_of_any_packing_are_read(tmp_path: Path, how: str) -> None:
    records = [response(number, b"<p>Page %d of many pages" % number) for number in range(9)]
    packed = pack(records, how)
    suffix = {"plain": "", "gzip": ".gz"}.get(how, ".zst")
    path = tmp_path / f"a.warc{suffix}"
    path.write_bytes(packed)
    whole = _rows(Source(path=str(path)))
    offsets = [row["row"] for row in whole]
    lengths = [b - a for a, b in zip(offsets, [*offsets[1:], len(packed)], strict=True)]
    rows = [(path.name, *each) for each in zip(offsets, lengths, strict=True)]
    index = write_index(tmp_path / "index.parquet", rows[::3])
    assert _rows(Source(index=str(index))) == whole[::3]


@pytest.mark.parametrize("protocol", ["s3", "http"])
def test_neighbours_are_read_by_one_request(
    server: RangeServer, tmp_path: Path, protocol: str
) -> None:
    url = {"s3": "s3://bucket", "http": f"{server.endpoint}/bucket"}[protocol]
    server.objects["far.warc.gz"] = FILES[NAMES[0]][0] + bytes(1 << 20) + FILES[NAMES[0]][0]
    far = [("far.warc.gz", offset, length) for _, offset, length in FILES[NAMES[0]][1]]
    second = len(FILES[NAMES[0]][0]) + (1 << 20)
    far += [(name, offset + second, length) for name, offset, length in far]
    index = write_index(tmp_path / "index.parquet", [*ROWS, *far][::-1])
    source = Source(index=str(index), prefix=url)
    rows = _rows(source)
    assert _addresses(rows) == _expected(url, [*ROWS, *far])
    assert {row["reason"] for row in rows} == {None}
    ranges = [
        (name, wanted) for method, name, wanted in server.requests if method == "GET" and wanted
    ]
    assert sorted(name for name, _ in ranges) == [*NAMES, "far.warc.gz", "far.warc.gz"]
    sizes = [int(last) - int(first) for _, r in ranges for first, last in [str(r)[6:].split("-")]]
    assert sum(sizes) < 4 * len(FILES[NAMES[0]][0])


@pytest.mark.parametrize("protocol", ["s3", "http"])
def test_a_remote_list_is_below_its_bucket_or_host(server: RangeServer, protocol: str) -> None:
    url = {"s3": "s3://bucket", "http": server.endpoint}[protocol]
    names = NAMES if protocol == "s3" else [f"bucket/{name}" for name in NAMES]
    server.objects["crawl-data/CC-1/warc.paths"] = "\n".join(names).encode()
    path = f"{url}{'' if protocol == 's3' else '/bucket'}/crawl-data/CC-1/warc.paths"
    rows = _rows(Source(list=path))
    prefix = url if protocol == "s3" else f"{url}/bucket"
    assert _addresses(rows) == _expected(prefix, ROWS)


def test_a_list_and_an_index_on_a_real_store(s3: str, tmp_path: Path) -> None:
    for name, (content, _) in FILES.items():
        path = UPath(s3) / name
        path.write_bytes(content)
    listed = UPath(s3) / "crawl-data/CC-1/warc.paths.gz"
    listed.write_bytes(
        write_list(tmp_path / "warc.paths.gz", [*NAMES, "gone.warc.gz"]).read_bytes()
    )
    source = Source(list=str(listed))
    found = list_source(source)
    assert [error.where for error in found.problems] == [f"{s3}/gone.warc.gz"]
    rows = [
        row for split in found.files for t in read_split(split, source) for row in t.to_pylist()
    ]
    assert _addresses(rows) == _expected(s3, ROWS)
    index = write_index(tmp_path / "index.parquet", ROWS[::7])
    assert _addresses(_rows(Source(index=str(index), prefix=s3))) == _expected(s3, ROWS[::7])


def test_records_are_cut_by_their_lengths(tmp_path: Path, crawl: Path) -> None:
    index = write_index(tmp_path / "index.parquet", ROWS)
    length = ROWS[0][2]
    source = Source(index=str(index), prefix=str(crawl), split_bytes=4 * 3 * length)
    files = list_source(source).files
    pieces = [*cut_files(files, source)]
    assert len(pieces) > 10
    assert sum(piece.bytes for piece in pieces) == sum(row[2] for row in ROWS)
    rows = [row for piece in pieces for t in read_split(piece, source) for row in t.to_pylist()]
    assert _addresses(rows) == _expected(f"file://{crawl}", ROWS)


def test_other_records_make_another_fingerprint(tmp_path: Path, crawl: Path) -> None:
    def fingerprints(rows: Sequence[Row]) -> list[str]:
        index = write_index(tmp_path / "index.parquet", rows)
        return [
            file.fingerprint
            for file in list_source(Source(index=str(index), prefix=str(crawl))).files
        ]

    first = fingerprints(ROWS)
    assert fingerprints([*ROWS[::-1], ROWS[3]]) == first
    assert fingerprints(ROWS[:-1]) == [first[0], fingerprints(ROWS[1:-1])[1]] != first


# Wrong indexes


def test_bad_records_are_rejected_with_their_offsets(tmp_path: Path, crawl: Path) -> None:
    name, size = NAMES[0], len(FILES[NAMES[0]][0])
    (_, good, length), (_, second, second_length) = ROWS[2], ROWS[4]
    wrong = [
        (name, good + 1, length),  # inside a member
        (name, second, second_length - 9),  # cut
        (name, size - 3, 500),  # the end of the last member
        (name, size + 10, 500),
    ]
    index = write_index(
        tmp_path / "index.parquet", [*wrong, (name, good, length), (name, 0, 10**9)]
    )
    rows = _rows(Source(index=str(index), prefix=str(crawl)))
    outcomes = {row["row"]: row["reason"] for row in rows}
    assert outcomes.pop(good) is None
    assert outcomes == {
        **{offset: "source.damaged" for _, offset, _ in wrong},
        0: "source.too_large",
    }
    messages = {row["row"]: row["metadata"] for row in rows}
    assert (
        f"of the {second_length - 9} bytes that the index lists: the last member is truncated"
        in messages[second]
    )
    assert "no record" in messages[size + 10]


def test_too_long_a_length_does_not_read_the_next_records(tmp_path: Path, crawl: Path) -> None:
    rows = [(name, offset, length + 2000) for name, offset, length in ROWS[:3]]
    index = write_index(tmp_path / "index.parquet", rows)
    assert _addresses(_rows(Source(index=str(index), prefix=str(crawl)))) == _expected(
        f"file://{crawl}", ROWS[:3]
    )


def test_records_that_are_not_documents_have_no_rows(tmp_path: Path, crawl: Path) -> None:
    index = write_index(tmp_path / "index.parquet", [(NAMES[0], 0, ROWS[0][1]), ROWS[1]])
    assert _addresses(_rows(Source(index=str(index), prefix=str(crawl)))) == _expected(
        f"file://{crawl}", ROWS[1:2]
    )


def test_rows_that_name_no_record_are_a_problem_of_the_index(tmp_path: Path, crawl: Path) -> None:
    wrong: list[Row] = [
        (None, 0, 10),
        (NAMES[0], None, 10),
        (NAMES[0], -1, 10),
        (NAMES[0], 5, 0),
        (" ", 5, 5),
    ]
    index = write_index(tmp_path / "index.parquet", [ROWS[0], *wrong, ROWS[1]])
    source = Source(index=str(index), prefix=str(crawl))
    found = list_source(source)
    [problem] = found.problems
    assert problem.where == f"file://{index}"
    assert "5 rows without a valid warc_filename" in problem.what
    assert "the first is row 1" in problem.what
    [split] = found.files
    [table] = read_split(split, source)
    assert table.num_rows == 2


def test_a_file_that_is_no_index_is_an_error(tmp_path: Path, crawl: Path) -> None:
    index = tmp_path / "index.parquet"
    index.write_bytes(b"text")
    with pytest.raises(SourceError, match="index.parquet: cannot be read as an index"):
        list_source(Source(index=str(index)))
    name = pa.array([b"\xff.warc"]).view(pa.string())
    columns = [pa.array(["u"]), name, pa.array([1], pa.int32()), pa.array([1], pa.int32())]
    pq.write_table(pa.table(columns, schema=INDEX), index)
    with pytest.raises(SourceError, match="index.parquet: cannot be read as an index"):
        list_source(Source(index=str(index)))
    write_index(index, ROWS, INDEX.set(3, pa.field("length", pa.int32())))
    with pytest.raises(SourceError, match="the index has no column warc_record_length"):
        list_source(Source(index=str(index)))
    write_index(index, ROWS, INDEX.set(2, pa.field("warc_record_offset", pa.float64())))
    assert _addresses(_rows(Source(index=str(index), prefix=str(crawl)))) == _expected(
        f"file://{crawl}", ROWS
    )


def test_a_damaged_index_is_an_error_or_has_other_rows(tmp_path: Path) -> None:
    rows: list[Row] = [(f"{number % 7}.warc.gz", 100 * number, 90) for number in range(500)]
    index = write_index(tmp_path / "index.parquet", rows)
    content, chance, errors = index.read_bytes(), Random(3), 0
    for _ in range(500):
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 2, 5))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        index.write_bytes(damaged[: chance.choice((None, chance.randrange(len(damaged))))])
        try:
            warc_index.read_index([index.as_uri()], [])
        except SourceError:
            errors += 1
    assert 200 < errors < 500


def test_a_missing_file_of_an_index_is_a_problem(tmp_path: Path, crawl: Path) -> None:
    index = write_index(tmp_path / "index.parquet", [*ROWS, ("gone.warc.gz", 0, 10)])
    found = list_source(Source(index=str(index), prefix=str(crawl)))
    assert [error.where for error in found.problems] == [f"file://{crawl}/gone.warc.gz"]
    assert len(found.files) == 2


def test_two_names_of_a_file_have_the_records_of_both(tmp_path: Path, crawl: Path) -> None:
    (crawl / "link.warc.gz").symlink_to(crawl / NAMES[0])
    rows = [*ROWS[:3], *(("link.warc.gz", *row[1:]) for row in ROWS[2:6])]
    index = write_index(tmp_path / "index.parquet", rows)
    found = _rows(Source(index=str(index), prefix=str(crawl)))
    assert sorted(row["row"] for row in found) == [row[1] for row in ROWS[:6]]


def test_a_file_that_is_no_warc_file_has_rejected_rows(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(record("response", 1, b"x")[:3] * 100)
    index = write_index(tmp_path / "index.parquet", [("a.warc", 0, 10), ("a.warc", 50, 10)])
    rows = _rows(Source(index=str(index)))
    assert [(row["row"], row["reason"]) for row in rows] == [
        (0, "source.damaged"),
        (50, "source.damaged"),
    ]
