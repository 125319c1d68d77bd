"""Files that a list or an index names are known, traced, replaced and quarantined like all others."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from upath import UPath

import etl
from etl import storage
from etl.audit.source_texts import read_texts
from etl.audit.verify.verify import verify
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.lake.quarantine import Quarantine
from etl.sources.source_settings import Source
from tests.helpers.lake_rows import addresses, rows
from tests.helpers.record_index import Row, crawl_file, write_index, write_list
from tests.helpers.source_folder import SourceFolder

NAMES = ("segments/1/a.warc.gz", "segments/2/b.warc.gz")
FILES = {name: crawl_file(range(12 * at, 12 * at + 12), name) for at, name in enumerate(NAMES)}
ROWS: list[Row] = [row for _, rows in FILES.values() for row in rows]


@pytest.fixture
def crawl(folder: SourceFolder) -> SourceFolder:
    """A folder with two WARC files."""
    for name, (content, _) in FILES.items():
        path = folder.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def _list(folder: SourceFolder, tmp_path: Path, names: Sequence[str]) -> None:
    listed = write_list(tmp_path / "warc.paths.gz", names)
    folder.source = {"list": str(listed), "prefix": str(folder.folder)}


def _index(folder: SourceFolder, tmp_path: Path, wanted: Sequence[Row], **settings: int) -> None:
    index = write_index(tmp_path / "index.parquet", wanted)
    folder.source = {"index": str(index), "prefix": str(folder.folder), **settings}


def _addresses(folder: SourceFolder, wanted: Sequence[Row]) -> list[tuple[object, object]]:
    prefix = storage.normalize(str(folder.folder))
    return sorted((f"{prefix}/{name}", offset) for name, offset, _ in wanted)


def _held(folder: SourceFolder) -> list[tuple[object, object]]:
    return addresses(rows(str(folder.lake), "documents"))


def test_a_list_may_grow_and_shrink(crawl: SourceFolder, tmp_path: Path) -> None:
    _list(crawl, tmp_path, ["gone.warc.gz", NAMES[0]])
    report = crawl.run()
    gone = f"{storage.normalize(str(crawl.folder))}/gone.warc.gz"
    assert (report.rows, report.num_quarantined) == (12, 1)
    assert [note.source for note in Quarantine(str(crawl.lake)).notes()] == [gone]
    _list(crawl, tmp_path, NAMES)
    report = crawl.run()
    assert (report.rows, report.num_quarantined) == (12, 0)
    assert _held(crawl) == _addresses(crawl, ROWS)
    _list(crawl, tmp_path, NAMES[1:])
    assert (crawl.run().missing.count, len(_held(crawl))) == (1, 24)
    crawl.source = {"path": str(crawl.folder)}  # the same files, named otherwise
    assert not make_plan(crawl.recipe).has_work()
    assert verify(str(crawl.lake), sources=True) == []


@pytest.mark.parametrize("split_bytes", [2000, 1 << 20])
def test_records_of_an_index_are_traced_and_verified(
    crawl: SourceFolder, tmp_path: Path, split_bytes: int
) -> None:
    wanted = ROWS[1:-1:2]
    _index(crawl, tmp_path, wanted, split_bytes=split_bytes)
    assert len(make_plan(crawl.recipe).splits) == (2 if split_bytes > 2000 else 5)
    assert crawl.run().rows == len(wanted)
    assert _held(crawl) == _addresses(crawl, wanted)
    assert not make_plan(crawl.recipe).has_work()
    assert verify(str(crawl.lake), sources=True) == []
    name, offset, _ = wanted[3]
    [trace] = etl.trace(str(crawl.lake), source=f"{crawl.folder}/{name}", row=offset)
    assert trace.url == "https://example.org/7"
    assert trace.input is not None
    texts, why = read_texts([trace.input], trace.source, {offset}, Source(**crawl.source))
    assert (texts, why) == ({offset: trace.text}, None)
    (tmp_path / "index.parquet").unlink()
    problems = [problem.what for problem in verify(str(crawl.lake), sources=True)]
    assert len(problems) == 2
    assert all("the index of the source does not name" in problem for problem in problems)


def test_other_records_of_a_file_replace_its_rows(crawl: SourceFolder, tmp_path: Path) -> None:
    _index(crawl, tmp_path, ROWS[:15])
    crawl.run()
    _index(crawl, tmp_path, [*ROWS[14::-1], ROWS[3]])  # the same records
    assert not make_plan(crawl.recipe).has_work()
    _index(crawl, tmp_path, ROWS[:18])
    with pytest.raises(MismatchError, match="1 input file changed") as caught:
        crawl.run()
    assert caught.value.where == f"{storage.normalize(str(crawl.folder))}/{NAMES[1]}"
    assert crawl.run(replace_changed=True).rows == 6
    assert _held(crawl) == _addresses(crawl, ROWS[:18])
    _index(crawl, tmp_path, ROWS[:12])
    assert (crawl.run().missing.count, len(_held(crawl))) == (1, 18)


def test_a_moved_file_of_an_index_keeps_its_rows(crawl: SourceFolder, tmp_path: Path) -> None:
    _index(crawl, tmp_path, ROWS)
    crawl.run()
    held = _held(crawl)
    for name in NAMES:
        moved: UPath = crawl.folder / "mirror" / name
        moved.parent.mkdir(parents=True, exist_ok=True)
        moved.write_bytes((crawl.folder / name).read_bytes())
        (crawl.folder / name).unlink()
    _index(crawl, tmp_path, ROWS)
    crawl.source["prefix"] = str(crawl.folder / "mirror")
    report = crawl.run()
    assert (report.rows, report.missing.count, len(report.copies)) == (0, 0, 2)
    assert _held(crawl) == held


def test_a_bad_record_and_a_missing_file_are_reported(crawl: SourceFolder, tmp_path: Path) -> None:
    (name, offset, length), gone = ROWS[1], ("gone.warc.gz", 0, 10)
    _index(crawl, tmp_path, [ROWS[0], (name, offset, length - 3), gone, (None, 1, 1)])
    report = crawl.run()
    assert (report.rows, report.kept, report.num_quarantined) == (2, 1, 2)
    held = {row["row"]: row["reason"] for row in rows(str(crawl.lake), "documents")}
    assert held == {ROWS[0][1]: None, offset: "source.damaged"}
    [trace] = etl.trace(str(crawl.lake), source=f"{crawl.folder}/{name}", row=offset)
    assert trace.reason == "source.damaged"
    sources = {note.source.rpartition("/")[2] for note in Quarantine(str(crawl.lake)).notes()}
    assert sources == {"gone.warc.gz", "index.parquet"}
    _index(crawl, tmp_path, ROWS[:2])
    assert crawl.run(replace_changed=True).num_quarantined == 0
    assert _held(crawl) == _addresses(crawl, ROWS[:2])
