"""The table ``keys``: look-ups by key, and runs that need not read old documents again."""

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.compute import frame_shuffles
from etl.compute.cluster import Cluster
from etl.dedup import key_writer
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import StoredKeys
from etl.dedup.numbered_files import NumberedFile, address
from etl.dedup.stored_file_list import StoredFileList
from etl.delta.table import Table
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake import keys_table as keys_table_module
from etl.lake.commit_info import fields_of
from etl.lake.input_log import int63
from etl.lake.keys_table import KeyFile, Kind
from etl.lake.table_specs import KEYS
from etl.parquet import data_file
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash, DedupParagraphs
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import (
    expected,
    make,
    pairs,
    planted,
    record,
    tangled,
    words,
    write,
)
from tests.helpers.paths import NewPlace, move, remove

Key = tuple[int, int, int, int]  # key, check, file, row

_UNITS = [f"{k:032x}"[::-1] for k in range(3)]

some_keys = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
stored = st.lists(
    st.lists(st.tuples(some_keys, st.integers(0, 1), st.integers(0, 2), st.integers(0, 9))),
    min_size=1,
    max_size=4,
)


def _stored_keys(
    stored: Sequence[KeyFile], files: Sequence[NumberedFile], kind: Kind
) -> StoredKeys:
    return StoredKeys.of(stored, cast(StoredFileList, files), kind, DocumentReader(""))


def key_files(
    url: str, keys: Sequence[Key], *, kind: int = 0, partitions: int = 1
) -> list[KeyFile]:
    """Write keys as one run does, and return the data files of the table."""
    names = ["key", "check", "unit", "row"]
    frame = pd.DataFrame(keys, columns=names).astype("int64").assign(kind=kind)
    ids, numbers = np.unique(frame["unit"].to_numpy(), return_inverse=True)
    frame["document"] = address(numbers, frame["row"].to_numpy())
    none = _stored_keys((), (), "cut")
    write = key_writer._Write(url, "f" * 32, np.arange(len(ids)), ids, none, partitions)
    (text,) = write(frame)["result"]
    table = Table.create(url, key_writer.schemas.KEYS, KEYS.layout)
    fragments = [data_file.DataFile(**fields) for fields in key_writer.json.loads(text)]
    return keys_table_module.list_key_files(table.commit(fragments, transactions={}))


@settings(max_examples=40)  # each writes and commits up to 32 files
@given(stored, st.lists(some_keys), st.sampled_from([1, 2]))
def test_matching_keys_are_those_of_a_naive_search(
    new_place: NewPlace, runs: list[list[Key]], wanted: list[int], partitions: int
) -> None:
    """Keys are in several runs, files and row groups; keys of a removed unit are left out."""
    url = str(new_place("keys"))
    files = [
        NumberedFile(7 - k, "", _UNITS[k], (), 9, True, True, (), keyed=("exact",))
        for k in range(2)
    ]
    ids = [int63(unit) for unit in _UNITS]
    stored_files: list[KeyFile] = []
    with pytest.MonkeyPatch.context() as patch:
        small = replace(KEYS.layout, row_group_rows=3)
        patch.setattr(key_writer, "KEYS", replace(KEYS, layout=small))
        for keys in runs:
            rows_of_run = [(key, check, ids[file], row) for key, check, file, row in keys]
            stored_files = key_files(url, rows_of_run, partitions=partitions)
    old = _stored_keys(stored_files, files, "exact")
    matching = old.matching(np.array(wanted, np.int64))
    naive = [
        (key, check, int(address(np.int64(7 - file), np.int64(row))))
        for keys in runs
        for key, check, file, row in keys
        if key in wanted and file < 2
    ]
    assert sorted(matching.itertuples(index=False, name=None)) == sorted(naive)
    assert old.rows == sum(map(len, runs))


def test_keys_of_the_other_kind_do_not_match(place: UPath) -> None:
    url = str(place)
    keys = [(1, 0, int63(_UNITS[0]), 0)]
    files = [NumberedFile(0, "", _UNITS[0], (), 1, True, True, (), keyed=("exact", "near"))]
    stored_files = [file for kind in (0, 1) for file in key_files(url, keys, kind=kind)]
    assert len(_stored_keys(stored_files, files, "near").matching(np.array([1]))) == 1
    files = [NumberedFile(0, "", _UNITS[0], (), 1, True, True, (), keyed=("exact",))]
    assert len(_stored_keys(stored_files, files, "near").matching(np.array([1]))) == 0


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_equal_keys_are_shuffled_to_one_partition(client: Client, partitions: int) -> None:
    rng = np.random.default_rng(partitions)
    keys = rng.integers(-(2**63), 2**63 - 1, 400)
    frame = pd.DataFrame({"key": np.concatenate([keys, keys, [-(2**63), 2**63 - 1]])})
    ranged = frame_shuffles.shuffle_by_range(
        dd.from_pandas(frame, npartitions=4), "key", partitions
    )
    assert ranged.npartitions == partitions
    parts = client.gather([client.compute(ranged.get_partition(k)) for k in range(partitions)])
    assert sorted(pd.concat(parts)["key"]) == sorted(frame["key"])
    assert all(len(part) for part in parts)
    sets = [set(part["key"]) for part in parts]
    assert sum(map(len, sets)) == len(set().union(*sets))
    for part in parts:
        ranges = frame_shuffles.range_of(part["key"], max(partitions, 2))
        for _, group in part.groupby(ranges):
            low, high = group["key"].min(), group["key"].max()
            assert sum(frame["key"].between(low, high)) == len(group)


NEAR = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7)


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3))])
@pytest.mark.parametrize("stages", [["dedup_exact"], [NEAR], ["dedup_exact", NEAR]])
def test_any_increments_give_the_duplicates_of_one_run(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch, seed: int, stages: list[Any]
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 10**6 if seed else 200)
    rng = random.Random(seed)
    records, source = tangled(seed + 9, 40), place / "in"
    cuts = sorted(rng.sample(range(1, len(records)), 1 + seed))
    grown = make(place / "grown", source, *stages)
    for first, last in zip([0, *cuts], [*cuts, len(records)], strict=True):
        part = records[first:last]
        write(source, part, min(len(part), rng.choice([1, 3])), first)
        run(grown, cluster=client)
    whole = make(place / "whole", source, *stages)
    run(whole, cluster=client)
    assert len(pairs(whole)) >= 3
    assert pairs(grown) == pairs(whole)
    assert verify(str(grown.lake)) == []


@pytest.mark.parametrize("files", [7, pytest.param(50, marks=pytest.mark.slow)])
def test_the_number_of_files_does_not_matter(client: Client, place: UPath, files: int) -> None:
    records = tangled(3, 60)
    recipes = []
    for number in (1, files):
        source = write(place / f"in-{number}", records, number)
        recipes.append(make(place / f"lake-{number}", source, "dedup_exact", NEAR))
        run(recipes[-1], cluster=client)
    one, many = ({(a, kind) for a, _, kind in pairs(recipe)} for recipe in recipes)
    assert one == many
    assert len(one) > 10


def test_old_documents_are_not_read_again_for_their_lines(client: Client, place: UPath) -> None:
    """All old data files are moved away; some lines occur first in documents that were too short."""
    lines = [" ".join(words(k, 4)) for k in range(9)]
    source = place / "in"
    stage = DedupParagraphs(unit="lines", min_chars=12, min_rest_chars=30)
    recipe = make(place / "lake", source, "dedup_exact", stage)
    for number, parts in enumerate([(0, 1, 2), (0, 1, 3), (3, 4, 5, 6)]):
        write(
            source,
            [{"doc_id": f"{number}", "body": "\n".join(lines[k] for k in parts), "link": None}],
            1,
            number,
        )
        run(recipe, cluster=client)
    texts = place / "lake" / "texts"
    paths = Table.open(str(texts)).data_files()["path"].to_pylist()
    for path in paths:
        move(texts / path, place / "away" / path)
    body = "\n".join(lines[k] for k in (3, 4, 7, 8, 0))
    write(source, [{"doc_id": "3", "body": body, "link": None}], 1, 3)
    assert run(recipe, cluster=client).ok
    for path in paths:
        move(place / "away" / path, texts / path)
    cuts = {row["id"]: (row["kind"], row["cut"]) for row in rows(recipe.lake, "duplicates")}
    assert cuts == {"1": ("short", [0, 1]), "3": ("cut", [0, 1, 4])}
    assert verify(str(recipe.lake)) == []


def keys_table(recipe: Recipe) -> Table:
    return Table.open(f"{recipe.lake}/keys")


def test_old_documents_are_not_read_again(client: Client, place: UPath) -> None:
    """All old data files are moved away, except the one with a document similar to a new one."""
    source = place / "in"
    for number in range(3):
        write(
            source, [record(f"{number}-{k}", words(10 * number + k)) for k in range(4)], 1, number
        )
    recipe = make(place / "lake", source, "dedup_exact", NEAR)
    alone = recipe.source.model_copy(
        update={"split_bytes": 1}
    )  # no packs: an input file has its data files alone
    recipe = recipe.model_copy(update={"source": alone})
    run(recipe, cluster=client)
    moved_paths = [
        file["path"]
        for file in Table.open(f"{recipe.lake}/texts").data_files().to_pylist()
        if not file["min.source"].endswith("001.parquet")
    ]
    moves = [(place / "lake" / "texts" / path, place / "away" / path) for path in moved_paths]
    for original, backup in moves:
        move(original, backup)
    new_records = [
        record("same", words(0)),  # equal to a text in a file that was moved away
        record("similar", ["Other", *words(12)[1:]]),
        record("new", words(99)),
    ]
    write(source, new_records, 1, 3)
    assert run(recipe, cluster=client).ok
    for original, backup in moves:
        move(backup, original)
    assert pairs(recipe) == {("same", "0-0", "exact"), ("similar", "1-2", "near")}
    assert verify(str(recipe.lake)) == []
    assert [row["kept"] for row in counts(recipe)] == [1, 12]


def counts(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the counts of the commits of ``keys``, newest first."""
    lineages = map(fields_of, keys_table(recipe).history())
    return [entry["counts"] for entry in lineages if entry and entry["num_data_files"]]


@pytest.mark.parametrize("cause", ["missing", "other recipe", "other program"])
def test_missing_or_mismatched_keys_are_rebuilt(client: Client, place: UPath, cause: str) -> None:
    """Keys are missing in a lake that was written before the table existed."""
    source = write(place / "in", planted(3), 2)
    recipe = make(place / "lake", source, "dedup_exact", NEAR)
    run(recipe, cluster=client)
    before = rows_of_keys(recipe)
    if cause == "missing":
        remove(place / "lake" / "keys")
    elif cause == "other recipe":
        keys_table(recipe).commit([], transactions={"recipe": 1})
    else:
        key_files(str(place / "lake" / "keys"), [(1, 0, 0, 0)])
    plan = make_plan(recipe)
    assert plan.has_work()
    assert plan.units.unkeyed > 0
    assert run(recipe, cluster=client).ok
    assert not make_plan(recipe).has_work()
    assert rows_of_keys(recipe) == before
    assert verify(str(recipe.lake)) == []


def rows_of_keys(recipe: Recipe) -> list[tuple[Any, ...]]:
    stored_rows = keys_table(recipe).dataset().to_table().to_pylist()
    return sorted(tuple(row.values()) for row in stored_rows)


def test_keys_of_replaced_and_rebuilt_documents_are_replaced(client: Client, place: UPath) -> None:
    source = write(place / "in", planted(4), 2)
    recipe = make(place / "lake", source, "dedup_exact", NEAR)
    run(recipe, cluster=client)
    write(source, planted(5), 2)
    run(recipe, cluster=client, replace_changed=True)
    assert pairs(recipe) == expected(planted(5), has_exact=True)
    assert verify(str(recipe.lake)) == []
    run(recipe, cluster=client, rebuild=True)
    assert pairs(recipe) == expected(planted(5), has_exact=True)
    assert verify(str(recipe.lake)) == []


class _DieOnce:
    """Reader of keys that kills the first worker to reach file 5, which ends the shuffle."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker
        self._read = key_writer._read_keys

    def __call__(self, file: NumberedFile, **settings: Any) -> pd.DataFrame:
        if file.number == 5 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._read(file, **settings)


@pytest.mark.slow  # the shuffle restarts: 20 s and more
def test_keys_are_complete_after_a_worker_dies_in_the_shuffle(
    place: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 300)
    monkeypatch.setattr(key_writer, "_read_keys", _DieOnce(tmp_path / "died"))
    recipe = make(place / "lake", write(place / "in", planted(), 7), "dedup_exact", NEAR)
    with Cluster(workers=2).connect() as client:
        assert run(recipe, cluster=client).ok
    assert (tmp_path / "died").exists()
    assert len(rows(recipe.lake, "duplicates")) > 10
    assert verify(str(recipe.lake)) == []
