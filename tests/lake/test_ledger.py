"""Each unit of work is in a table exactly once, with any number of writers and commits."""

import multiprocessing
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from etl import schemas, storage
from etl.errors import ConflictError, MismatchError, StorageError
from etl.lake.input_log import InputLog
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.table_specs import SPECS
from etl.lake.work_units import split_key
from etl.parquet.data_file import DataFileWriter
from etl.sources import Split
from etl.sources.content_digests import Content
from tests.helpers.paths import NewPlace, at

SCHEMA = schemas.DUPLICATES
LAYOUT = SPECS["duplicates"].layout


def entry(ledger: Ledger, unit: str, rows: int = 1, split: Split | None = None) -> LedgerEntry:
    """Write the rows of a unit, with the unit's name as their source, and return its entry."""
    key = ledger.key(unit) if split is None else split_key(ledger, split)
    writer = DataFileWriter(ledger.url, SCHEMA, LAYOUT, name=key)
    values = {
        "source": [unit] * rows,
        "row": list(range(rows)),
        "id": [None] * rows,
        "keeper_source": ["k"] * rows,
        "keeper_row": [0] * rows,
        "kind": ["exact"] * rows,
        "similarity": [1.0] * rows,
        "unit": ["f"] * rows,
    }
    writer.append(pa.table(values, schema=SCHEMA))
    return LedgerEntry(key, writer.close(), split)


def open_ledger(folder: UPath, fingerprint: str = "a" * 64) -> Ledger:
    ledger = Ledger(str(folder), fingerprint=fingerprint)
    if ledger.table is None:
        ledger.create(SCHEMA, LAYOUT)
    return ledger


def split_of(fingerprint: str, start: int = 0, stop: int | None = None) -> Split:
    return Split(
        uri="s3://raw/a",
        size=9,
        fingerprint=fingerprint,
        format="jsonl",
        start=start,
        stop=stop,
        identity=InputLog.empty().hash_identity("s3://raw/a", fingerprint),
    )


def rebuild(ledger: Ledger) -> None:
    drop = Drop(rebuild=(SCHEMA, LAYOUT))
    ledger.drop(drop, lambda *_: None, lake_epoch=ledger.lake_epoch + 1)


def describe(entries: object, generation: int) -> None:
    """Return no record."""


def sources(folder: UPath) -> list[str]:
    ledger = Ledger(str(folder), fingerprint="a" * 64)
    assert ledger.table is not None
    return sorted(ledger.table.dataset().to_table(columns=["source"])["source"].to_pylist())


def test_a_unit_is_committed_once(place: UPath) -> None:
    ledger = open_ledger(place)
    unit = entry(ledger, "one")
    assert ledger.commit([unit], describe) == [unit]
    again = open_ledger(place)
    assert again.is_done(again.key("one"))
    assert again.commit([entry(again, "one"), other := entry(again, "two")], describe) == [other]
    assert sources(place) == ["one", "two"]


def test_a_stale_driver_commits_only_new_units(place: UPath) -> None:
    stale, fast = open_ledger(place), open_ledger(place)
    fast.commit([entry(fast, "one"), entry(fast, "two")], describe)
    late = [entry(stale, "two"), entry(stale, "three")]
    assert stale.commit(late, describe) == late[1:]
    assert sources(place) == ["one", "three", "two"]
    stale = open_ledger(place)
    open_ledger(place).commit([entry(stale, "four")], describe)
    with pytest.raises(ConflictError):
        stale.commit([entry(stale, "five")], describe, retry=False)


def test_a_concurrent_commit_after_ours_is_detected(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, other = open_ledger(place), open_ledger(place)
    create = storage.create_if_absent

    def create_before_the_other_commit(uri: str, content: bytes) -> bool:
        created = create(uri, content)
        monkeypatch.undo()
        assert other.commit([entry(other, "two")], describe)
        return created

    monkeypatch.setattr(storage, "create_if_absent", create_before_the_other_commit)
    ledger.commit([entry(ledger, "one")], describe)
    assert ledger.commit([entry(ledger, "two")], describe) == []
    assert sources(place) == ["one", "two"]


def _commit_all(folder: str, names: list[str]) -> None:
    ledger = open_ledger(at(folder))
    for name in names:
        ledger.commit([entry(ledger, name)], describe)


def test_concurrent_drivers_commit_each_unit_once(place: UPath) -> None:
    open_ledger(place)
    names = [f"unit{i:02}" for i in range(12)]
    context = multiprocessing.get_context("spawn")
    orders = [names, names[::-1], names[6:] + names[:6]]
    drivers = [context.Process(target=_commit_all, args=(str(place), o)) for o in orders]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert [driver.exitcode for driver in drivers] == [0, 0, 0]
    assert sources(place) == names


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), max_size=6))
def test_any_sequence_of_commits_adds_each_unit_once(
    new_place: NewPlace, commits: list[list[int]]
) -> None:
    folder = new_place("ledger")
    ledgers = [open_ledger(folder), open_ledger(folder)]
    for turn, units in enumerate(commits):
        ledger = ledgers[turn % 2]
        ledger.commit([entry(ledger, str(unit)) for unit in dict.fromkeys(units)], describe)
    assert sources(folder) == sorted({str(unit) for units in commits for unit in units})


def test_a_rebuild_forgets_finished_units_and_keeps_the_old_version(place: UPath) -> None:
    ledger = open_ledger(place)
    ledger.commit([entry(ledger, "one")], describe)
    other = Ledger(str(place), fingerprint="b" * 64)
    assert other.is_other_recipe
    bystander = open_ledger(place)
    rebuild(other)
    assert not other.is_other_recipe
    assert not other.is_done(other.key("one"))
    assert sources(place) == []
    assert other.table is not None
    with pytest.raises(MismatchError, match="dropped or rebuilt rows"):
        bystander.commit([entry(bystander, "two")], describe)
    back = Ledger(str(place), fingerprint="a" * 64)
    assert back.is_other_recipe
    rebuild(back)
    assert not back.is_done(back.key("one")), (
        "units of the first generation are not done in the third"
    )


def test_a_changed_file_is_detected_until_its_rows_are_dropped(place: UPath) -> None:
    ledger = open_ledger(place)
    unit = entry(ledger, "old", split=split_of("etag1"))
    ledger.commit([unit], describe)
    ledger = open_ledger(place)
    assert ledger.inputs.identity_of("s3://raw/a") == split_of("etag1").identity
    assert ledger.inputs.identity_of("s3://raw/b") is None
    assert ledger.inputs.is_current(split_of("etag1"))
    assert not ledger.inputs.is_current(split_of("etag2"))
    new = entry(ledger, "new", rows=2, split=split_of("etag2"))
    with pytest.raises(MismatchError, match="different content"):
        ledger.commit([new], describe)
    paths = [file.path for file in unit.data_files]
    drop = Drop(paths=paths, keys=[unit.key], files=["s3://raw/a"])
    ledger.drop(drop, lambda *_: None, lake_epoch=1)
    assert sources(place) == []
    assert not ledger.is_done(unit.key)
    ledger.commit([new], describe)
    assert sources(place) == ["new", "new"]
    assert open_ledger(place).inputs.is_current(split_of("etag2"))


def test_two_contents_of_one_file_are_not_mixed(place: UPath) -> None:
    stale = open_ledger(place)
    slow = entry(stale, "first content", split=split_of("1"))
    fast = entry(stale, "second content", split=split_of("2"))
    open_ledger(place).commit([fast], describe)
    with pytest.raises(MismatchError, match="different content"):
        stale.commit([slow], describe)
    assert sources(place) == ["second content"]


def test_overlapping_parts_of_a_file_are_not_mixed(place: UPath) -> None:
    stale, fast = open_ledger(place), open_ledger(place)
    parts = {"0-4": split_of("1", 0, 4), "4-end": split_of("1", 4)}
    fast.commit([entry(fast, "4-end", split=parts["4-end"])], describe)
    for start, stop in ((0, None), (0, 5), (4, 6), (5, None)):
        late = entry(stale, f"{start}-{stop}", split=split_of("1", start, stop))
        with pytest.raises(MismatchError, match="overlaps with ours"):
            stale.commit([late], describe)
    stale.commit([entry(stale, "0-4", split=parts["0-4"])], describe)
    assert sources(place) == ["0-4", "4-end"]


def test_keys_do_not_depend_on_the_recipe(place: UPath) -> None:
    one, other = (Ledger(str(place), fingerprint=letter * 64) for letter in "ab")
    assert one.key("unit") == other.key("unit")
    assert one.key("unit") != Ledger(str(place / "other"), fingerprint="a" * 64).key("unit")


def content_entry(
    ledger: Ledger, name: str, rows: int, start: int = 0, stop: int | None = None
) -> LedgerEntry:
    """Write the rows of a part of a file; all files have one size and sample."""
    uri = f"s3://raw/{name}"
    identity = ledger.inputs.hash_identity(uri, "etag")
    split = replace(split_of("etag", start, stop), uri=uri, identity=identity)
    return replace(entry(ledger, name, split=split), content=Content("0123456789", rows))


@pytest.mark.parametrize("at_once", [False, True])
def test_a_commit_recognizes_what_an_overlapping_run_has_read(place: UPath, at_once: bool) -> None:
    fast, slow = open_ledger(place), open_ledger(place)
    first = content_entry(fast, "first", rows=1)
    late = [content_entry(slow, "copy", rows=1), content_entry(slow, "other", rows=2)]
    if at_once:
        fast.commit([first, *late], describe)
    else:
        fast.commit([first], describe)
        told = slow.commit(late, describe)
        assert [(each.is_name, len(each.data_files)) for each in told] == [(True, 0), (False, 1)]
    assert sources(place) == ["first", "other"]
    inputs = open_ledger(place).inputs
    assert first.split is not None
    assert inputs.identity_of("s3://raw/copy") == first.split.identity
    assert inputs.identity_of("s3://raw/other") != first.split.identity


def test_parts_of_a_file_that_may_be_a_copy_are_left_to_the_next_plan(place: UPath) -> None:
    ledger = open_ledger(place)
    ledger.commit([content_entry(ledger, "first", rows=1, stop=4)], describe)
    for start, stop in ((0, 4), (0, None)):
        late = content_entry(ledger, "copy", rows=1, start=start, stop=stop)
        assert ledger.commit([late], describe) == []
        assert late.split is not None
        known = replace(late, split=replace(late.split, is_distinct=True))  # it was compared
    assert ledger.commit([known], describe) == [known]
    assert sources(place) == ["copy", "first"]


def test_a_missing_data_file_is_not_committed(place: UPath) -> None:
    ledger = open_ledger(place)
    unit = entry(ledger, "one")
    (place / unit.data_files[0].path).unlink()
    with pytest.raises(StorageError, match="is missing, but"):
        ledger.commit([unit], describe)
    assert not open_ledger(place).is_done(unit.key)


def test_a_drop_fails_after_any_other_commit(place: UPath) -> None:
    ledger, other = open_ledger(place), open_ledger(place)
    other.commit([entry(other, "one")], describe)
    with pytest.raises(ConflictError):
        ledger.drop(Drop(), lambda *_: None, lake_epoch=1)


def test_a_ledger_is_valid_for_one_epoch(place: UPath) -> None:
    open_ledger(place)
    late, reader = open_ledger(place), open_ledger(place)
    first = open_ledger(place)
    first.drop(Drop(), lambda *_: None, lake_epoch=first.lake_epoch + 1)
    with pytest.raises(MismatchError, match="dropped or rebuilt rows"):
        late.commit([entry(late, "one")], describe)
    for _ in range(2):  # it stays so
        with pytest.raises(MismatchError, match="dropped or rebuilt rows"):
            reader.refresh()
    assert first.commit([entry(first, "one")], describe)
    assert sources(place) == ["one"]


def test_files_of_another_program_are_detected(place: UPath) -> None:
    ledger = open_ledger(place)
    ledger.commit([entry(ledger, name) for name in ("one", "two")], describe)
    late = open_ledger(place)
    assert late.foreign_changes() is None
    deltalake.DeltaTable(
        str(place), storage_options=storage.delta_options(str(place))
    ).optimize.compact()
    changes = open_ledger(place).foreign_changes()
    assert changes is not None
    assert (len(changes.added), len(changes.removed), len(changes.commits)) == (1, 2, 1)
    with pytest.raises(MismatchError, match="version 2 was written by another program: OPTIMIZE"):
        late.commit([entry(late, "three")], describe)
