"""Whatever the split sizes of the runs of a lake, and wherever they end, each record is read exactly once."""

import gzip
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from etl import schemas
from etl.lake.known_files import identify_files
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.table_specs import SPECS
from etl.lake.work_units import split_key
from etl.sources import Source, Split
from etl.sources.formats.parquet_footer import FooterReader
from etl.sources.list_splits import cut_files, list_source, list_splits, number_splits
from etl.sources.parts import KnownPart, cut_at, is_complete
from etl.sources.read_split import count_records, read_split

Address = tuple[str, int]  # URI and row


@st.composite
def known_parts(draw: st.DrawFn, end: int = 40) -> list[KnownPart]:
    """Return some of the pieces of a file of a given size."""
    points = sorted(draw(st.sets(st.integers(1, end - 1))))
    pieces = [(0, *points), (*points, None)]
    chosen = [each for each in zip(*pieces, strict=True) if draw(st.booleans())]
    return [KnownPart(start or 0, stop, draw(st.booleans())) for start, stop in chosen]


@given(st.lists(st.integers(1, 39)), known_parts())
def test_parts_cover_a_file_once_and_contain_the_known_ones(
    points: list[int], known: list[KnownPart]
) -> None:
    parts = cut_at(points, known)
    starts, stops = zip(*parts, strict=True)
    assert starts[0] == 0
    assert starts[1:] == stops[:-1]
    assert stops[-1] is None
    assert all(start < stop for start, stop in parts[:-1] if stop is not None)
    assert {(part.start, part.stop) for part in known} <= {*parts}
    gaps = [part for part in parts if not any(each.overlaps(*part) for each in known)]
    assert len(gaps) + len(known) == len(parts)
    for point in points:  # each point cuts, except inside of a known part
        holder = parts[bisect_right(starts, point) - 1]
        assert holder[0] == point or holder in {(part.start, part.stop) for part in known}
    assert is_complete(known) == (all(part.is_done for part in known) and not gaps)


@given(st.lists(st.integers(1, 39)), st.data())
def test_another_cut_at_the_same_points_gives_the_same_parts(
    points: list[int], data: st.DataObject
) -> None:
    parts = cut_at(points, [])
    known = [KnownPart(*part, True) for part in parts if data.draw(st.booleans())]
    assert cut_at(points, known) == parts


def write_texts(path: Path, texts: Sequence[str], group: int) -> None:
    table = pa.table({"text": pa.array(texts, pa.string())})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=group)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path), chunksize=group, compression="uncompressed")
    else:
        lines = "".join(f'{{"text": "{text}"}}\n' for text in texts).encode()
        if path.suffix == ".gz":  # members that end in any line
            parts = (
                lines[start : start + 13 * group] for start in range(0, len(lines), 13 * group)
            )
            lines = b"".join(map(gzip.compress, parts)) or gzip.compress(b"")
        path.write_bytes(lines)


class Lake:
    """What runs of several split sizes read of a folder; the ledger is real, the rows are in memory."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder, self._random = folder / "in", random
        self.folder.mkdir()
        self._ledger_url = str(folder / "lake")
        self._rows: dict[str, list[tuple[Address, str]]] = {}  # by key of a unit
        self._splits: dict[str, Split] = {}
        self._texts = 0
        self._open().create(schemas.DUPLICATES, SPECS["duplicates"].layout)

    def _open(self) -> Ledger:
        return Ledger(self._ledger_url, fingerprint="a" * 64)

    def rows(self) -> list[tuple[Address, str]]:
        ledger = self._open()
        return [row for key, rows in self._rows.items() if ledger.is_done(key) for row in rows]

    def write(self, name: str, count: int) -> None:
        """Add or replace a file, with texts that no other file has."""
        texts = [f"{index:09}" for index in range(self._texts, self._texts + count)]
        self._texts += count
        write_texts(self.folder / name, texts, group=self._random.randint(1, 4))

    def run(self, split_bytes: int, limit: int | None = None) -> int:
        """Drop changed files, read at most some of the remaining splits, and return their number."""
        ledger = self._open()
        source = Source(path=str(self.folder), split_bytes=split_bytes)
        known = identify_files(list_source(source).files, source, ledger.inputs, None)
        changed = {doubt.file.uri for doubt in known.doubts}  # no content is recorded
        changed |= {file.uri for file in known.files if file.former}
        if changed:
            keys = [key for key, split in self._splits.items() if split.uri in changed]
            done = [key for key in keys if ledger.is_done(key)]
            ledger.drop(
                Drop(keys=done, files=changed), lambda *_: None, lake_epoch=ledger.lake_epoch + 1
            )
            return self.run(split_bytes, limit)
        splits = list(cut_files(known.files, source, ledger.inputs.parts))
        uncounted = {split.uri for split in splits if split.first_row is None}
        numbered = number_splits(
            splits, [count_records(s) if s.uri in uncounted else None for s in splits]
        )
        todo = [split for split in numbered if not ledger.is_done(split_key(ledger, split))]
        chosen = self._random.sample(todo, len(todo) if limit is None else min(limit, len(todo)))
        entries = []
        for split in chosen:
            key = split_key(ledger, split)
            rows = [row for table in read_split(split, source) for row in table.to_pylist()]
            self._rows[key] = [((row["source"], row["row"]), row["text"]) for row in rows]
            self._splits[key] = split
            entries.append(LedgerEntry(key, split=split))
        if entries:
            ledger.commit(entries, lambda *_: None)
        return len(chosen)

    def lose(self) -> None:
        """Drop a unit, as a repair does."""
        ledger = self._open()
        if done := [key for key in self._rows if ledger.is_done(key)]:
            drop = Drop(keys=[self._random.choice(done)])
            ledger.drop(drop, lambda *_: None, lake_epoch=ledger.lake_epoch + 1)

    def check(self) -> None:
        """Finish the work; then each record of each file that exists was read once."""
        self.run(self._random.choice([1, 50, 1 << 20]))
        assert self.run(self._random.choice([1, 50, 1 << 20])) == 0
        fresh = Source(path=str(self.folder), split_bytes=1 << 20)
        whole = [row for split in list_splits(fresh) for row in self._read(split, fresh)]
        here = {split.uri for split in list_splits(fresh)}
        assert Counter(row for row in self.rows() if row[0][0] in here) == Counter(whole)

    def _read(self, split: Split, source: Source) -> list[tuple[Address, str]]:
        rows = [row for table in read_split(split, source) for row in table.to_pylist()]
        return [((row["source"], row["row"]), row["text"]) for row in rows]


_SIZES = st.sampled_from([1, 10, 25, 60, 100, 400, 1 << 20])
_NAMES = st.sampled_from(["a.parquet", "b.parquet", "c.jsonl", "d.feather", "e.jsonl.gz"])
_STEPS = st.one_of(
    st.tuples(st.just("run"), _SIZES, st.integers(1, 6)),
    st.tuples(st.just("run"), _SIZES, st.none()),
    st.tuples(st.just("write"), _NAMES, st.integers(0, 12)),
    st.tuples(st.just("move"), _NAMES),
    st.tuples(st.just("lose")),
)


@settings(max_examples=5)
@given(st.lists(_STEPS, min_size=3, max_size=8), st.integers(0, 99))
def test_runs_with_any_split_sizes_read_each_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch_sync: None,
    steps: list[tuple[str, ...]],
    seed: int,
) -> None:
    _replay(Lake(tmp_path_factory.mktemp("runs"), Random(seed)), steps)


@pytest.mark.slow
@given(st.lists(_STEPS, min_size=3, max_size=20), st.integers(0, 99))
def test_many_runs_with_any_split_sizes_read_each_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch_sync: None,
    steps: list[tuple[str, ...]],
    seed: int,
) -> None:
    _replay(Lake(tmp_path_factory.mktemp("runs"), Random(seed)), steps)


def _replay(lake: Lake, steps: list[tuple[str, ...]]) -> None:
    for name in ("a.parquet", "c.jsonl", "d.feather", "e.jsonl.gz"):
        lake.write(name, 12)
    for name, *arguments in steps:
        if name == "move":
            path = lake.folder / arguments[0]
            if path.exists():
                path.rename(path.with_name(f"moved-{path.name}"))
        else:
            getattr(lake, name)(*arguments)
    lake.check()


@pytest.fixture(scope="module")
def monkeypatch_sync() -> object:
    """Write the logs of these tests without syncing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENLAKE_SYNC", "off")
        yield


def test_files_that_were_read_completely_are_not_opened(tmp_path: Path) -> None:
    write_texts(tmp_path / "a.parquet", ["text"] * 12, 1)
    source = Source(path=str(tmp_path), split_bytes=20)
    splits = list(list_splits(source))
    assert len(splits) > 3
    known = [KnownPart(split.start, split.stop, True) for split in splits]
    (tmp_path / "a.parquet").write_bytes(b"nonsense")
    larger = source.model_copy(update={"split_bytes": 70})
    again = cut_files(list_source(larger).files, larger, lambda files: dict.fromkeys(files, known))
    assert [(s.start, s.stop) for s in again] == [(s.start, s.stop) for s in splits]


def test_a_file_whose_footer_cannot_be_read_again_keeps_its_known_parts(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"nonsense")
    known = [KnownPart(2, 4, True)]
    source = Source(path=str(tmp_path))
    splits = cut_files(list_source(source).files, source, lambda files: dict.fromkeys(files, known))
    parts = [(split.start, split.stop, split.first_row) for split in splits]
    assert parts == [(0, 2, 0), (2, 4, None), (4, None, None)]


@given(st.lists(st.text(max_size=30), max_size=12), st.integers(1, 5))
def test_the_footer_gives_the_sizes_of_row_groups(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], group: int
) -> None:
    path = tmp_path_factory.mktemp("footer") / "a.parquet"
    columns = {"id": list(range(len(texts))), "text": texts, "tags": [[text] for text in texts]}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    [split] = list_splits(Source(path=str(path)))
    with pa.OSFile(str(path)) as file:
        reader = FooterReader(file, split)
        sizes = reader.read((), measured="text").sizes
        footer = reader.read(range(100), measured="text")
        assert footer.sizes == sizes
        for first, size in enumerate(sizes):
            some = reader.read(range(first, first + 2), skip_to=(first, size.offset))
            assert some.columns == footer.columns
            assert some.groups == {i: footer.groups[i] for i in footer.groups if 0 <= i - first < 2}
    groups = [pq.read_metadata(path).row_group(i) for i in range(len(sizes))]
    expected = [
        (g.num_rows, g.total_byte_size, g.column(1).total_uncompressed_size) for g in groups
    ]
    assert [size[:3] for size in sizes] == expected
    assert sum(size.rows for size in sizes) == len(texts)


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_a_file_without_the_text_column_is_one_split(tmp_path: Path, name: str) -> None:
    write_texts(tmp_path / name, ["a" * 99] * 50, 1)
    url = str(tmp_path / name)
    assert len(list(list_splits(Source(path=url, split_bytes=100)))) > 9
    (split,) = list_splits(Source(path=url, split_bytes=100, columns={"text": "body"}))
    assert split.is_whole
