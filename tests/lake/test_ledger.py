"""Each unit of work is in a table exactly once, with any number of writers and commits."""

import json
import multiprocessing
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from etl import schemas, storage
from etl.delta.data_file import DataFile, DataFileWriter
from etl.errors import ConflictError, MismatchError
from etl.lake.ledger import Ledger, LedgerEntry
from etl.lake.table_specs import SPECS
from tests.helpers.paths import NewPlace, at

SCHEMA = schemas.DUPLICATES
LAYOUT = SPECS["duplicates"].layout


def entry(ledger: Ledger, unit: str, rows: int = 1) -> LedgerEntry:
    """Write the rows of a unit, with the unit's name as their source, and return its entry."""
    key = ledger.key(unit)
    writer = DataFileWriter(ledger.url, SCHEMA, LAYOUT, name=key)
    values = {
        "source": [unit] * rows,
        "row": list(range(rows)),
        "id": [None] * rows,
        "keeper_source": ["k"] * rows,
        "keeper_row": [0] * rows,
        "kind": ["exact"] * rows,
        "similarity": [1.0] * rows,
        "file": ["f"] * rows,
    }
    writer.append(pa.table(values, schema=SCHEMA))
    return LedgerEntry(key, writer.close())


def open_ledger(folder: UPath, fingerprint: str = "a" * 64) -> Ledger:
    ledger = Ledger(str(folder), fingerprint=fingerprint)
    if ledger.table is None or ledger.is_other_recipe:
        ledger.create_or_rebuild(SCHEMA, LAYOUT, lambda generation: {"generation": generation})
    return ledger


def describe(entries: object, generation: int) -> dict[str, int]:
    return {"generation": generation}


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
    other.create_or_rebuild(SCHEMA, LAYOUT, lambda generation: {"generation": generation})
    assert not other.is_other_recipe
    assert not other.is_done(other.key("one"))
    assert sources(place) == []
    assert other.table is not None
    with pytest.raises(MismatchError, match="rebuilt by another run"):
        bystander.commit([entry(bystander, "two")], describe)
    back = Ledger(str(place), fingerprint="a" * 64)
    assert back.is_other_recipe
    back.create_or_rebuild(SCHEMA, LAYOUT, lambda generation: {})
    assert not back.is_done(back.key("one")), (
        "units of the first generation are not done in the third"
    )


def test_a_changed_file_is_detected_until_its_rows_are_replaced(place: UPath) -> None:
    ledger = open_ledger(place)
    unit = entry(ledger, "old")
    ledger.commit([LedgerEntry(unit.key, unit.data_files, files={"s3://raw/a": "etag1"})], describe)
    ledger = open_ledger(place)
    assert not ledger.has_changed("s3://raw/a", "etag1")
    assert not ledger.has_changed("s3://raw/b", "etag1")
    assert ledger.has_changed("s3://raw/a", "etag2")
    new, old_paths = entry(ledger, "new", rows=2), [f.path for f in unit.data_files]
    ledger.commit(
        [LedgerEntry(new.key, new.data_files, old_paths, {"s3://raw/a": "etag2"})], describe
    )
    assert sources(place) == ["new", "new"]
    assert not open_ledger(place).has_changed("s3://raw/a", "etag2")


def test_two_contents_of_one_file_are_not_mixed(place: UPath) -> None:
    stale = open_ledger(place)
    slow, fast = entry(stale, "first content"), entry(stale, "second content")
    fast_ledger = open_ledger(place)
    fast_ledger.commit(
        [LedgerEntry(fast.key, fast.data_files, files={"s3://raw/a": "2"})], describe
    )
    with pytest.raises(MismatchError, match="different content"):
        stale.commit([LedgerEntry(slow.key, slow.data_files, files={"s3://raw/a": "1"})], describe)
    assert sources(place) == ["second content"]


def test_a_replacement_removes_rows_committed_concurrently(place: UPath) -> None:
    ledger = open_ledger(place)
    uri = "s3://raw/a"  # the source of all rows of this file
    first, late, new = (entry(ledger, f"{name} of a") for name in ("first", "late", "new"))
    ledger.commit([LedgerEntry(first.key, _with_source(first, uri), files={uri: "1"})], describe)
    replacing, other = open_ledger(place), open_ledger(place)
    other.commit([LedgerEntry(late.key, _with_source(late, uri), files={uri: "1"})], describe)
    old_paths = [file.path for file in _with_source(first, uri)]
    assert replacing.has_changed(uri, "2")
    replacing.commit([LedgerEntry(new.key, new.data_files, old_paths, {uri: "2"})], describe)
    assert sources(place) == ["new of a"]


def _with_source(unit: LedgerEntry, uri: str) -> list[DataFile]:
    """Return the data files of a unit with another input file as the source in their statistics."""
    return [
        replace(f, statistics=f.statistics.replace(json.dumps(_source_of(f)), json.dumps(uri)))
        for f in unit.data_files
    ]


def _source_of(file: DataFile) -> str:
    return str(json.loads(file.statistics)["minValues"]["source"])


def test_files_of_another_program_are_detected(place: UPath) -> None:
    ledger = open_ledger(place)
    ledger.commit([entry(ledger, name) for name in ("one", "two")], describe)
    assert ledger.external_files() == []
    deltalake.DeltaTable(
        str(place), storage_options=storage.delta_options(str(place))
    ).optimize.compact()
    assert len(open_ledger(place).external_files()) == 1
