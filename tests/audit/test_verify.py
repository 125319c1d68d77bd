"""`verify` finds no problem in sound lakes, and finds each damage with the name of its file."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from distributed import Client
from upath import UPath

from etl import schemas
from etl.audit.lake_report import report
from etl.audit.lineage_graph import trace
from etl.audit.verify.verify import Problem, verify
from etl.errors import TableError
from etl.job.run import run
from etl.lake.ledger import key_of
from etl.lake.table_specs import DUPLICATES, KEYS, TOKENS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.row_digests import hash_column
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.damage import commit_damage, file_of, live, open_table, read, rewrite
from tests.helpers.paths import at, copy, opened

Damage = Callable[[Recipe], None]


def test_a_sound_lake_has_no_problems(made: Recipe) -> None:
    assert verify(str(made.lake)) == []
    assert verify(str(made.lake), quick=True) == []


def test_unfinished_work_is_not_a_problem(client: Client, lake: Recipe, place: UPath) -> None:
    write_jsonl(place / "more" / "d.jsonl", records(500, 510))
    source = lake.source.model_copy(update={"path": str(place / "more")})
    half = lake.model_copy(update={"source": source, "stages": lake.stages[:2]})
    run(half, cluster=client)
    assert verify(str(lake.lake)) == []


@pytest.mark.parametrize("deduplicate", [True, False])
def test_replaced_files_and_rebuilt_tables_have_no_problems(
    client: Client, made: Recipe, place: UPath, *, deduplicate: bool
) -> None:
    folder = place / "changing"
    stages = made.stages if deduplicate else (made.stages[0], made.stages[2])
    source = made.source.model_copy(update={"path": str(folder)})
    update = {"source": source, "lake": str(place / "changed"), "stages": stages}
    recipe = made.model_copy(update=update)
    write_parquet(folder / "a.parquet", records(0, 50))
    write_jsonl(folder / "b.jsonl", records(50, 90))
    run(recipe, cluster=client)
    write_parquet(folder / "a.parquet", records(200, 230))
    run(recipe, cluster=client, replace_changed=True)
    assert verify(str(recipe.lake)) == []
    strict = stages[0].model_copy(update={"min_words": 20})
    run(recipe.model_copy(update={"stages": (strict, *stages[1:])}), cluster=client, rebuild=True)
    assert verify(str(recipe.lake)) == []


def test_keepers_of_later_runs_are_not_duplicates(
    client: Client, made: Recipe, place: UPath
) -> None:
    folder = place / "grows"
    source = made.source.model_copy(update={"path": str(folder)})
    recipe = made.model_copy(update={"source": source, "lake": str(place / "grown")})
    for name in ("m", "a", "z"):  # the second sorts before the first, and both before the third
        write_jsonl(folder / f"{name}.jsonl", records(1, 3))
        run(recipe, cluster=client)
    assert verify(str(recipe.lake)) == []


@pytest.mark.slow
def test_audits_of_a_lake_on_s3_are_the_same(made: Recipe, s3: str) -> None:
    copy(made.lake, at(f"{s3}/lake"))
    assert verify(f"{s3}/lake") == []
    here, there = report(str(made.lake)), report(f"{s3}/lake")
    assert there == dataclasses.replace(here, lake=f"{s3}/lake")
    for document in ("doc-00000", "doc-00003"):
        assert trace(f"{s3}/lake", id=document) == trace(str(made.lake), id=document)


def test_a_lake_without_documents_is_an_error(place: UPath) -> None:
    with pytest.raises(TableError, match="no lake at this URL"):
        verify(str(place))


@pytest.mark.parametrize("name", ["documents", "texts", "duplicates", "tokens"])
def test_a_missing_data_file_is_found(lake: Recipe, name: str) -> None:
    path = live(lake, name)[0]
    file_of(lake, name, path).unlink()
    assert verify(str(lake.lake)) == [Problem(name, path, "the file is missing")]


def test_a_truncated_data_file_is_found(lake: Recipe) -> None:
    path = live(lake, "tokens")[0]
    file = file_of(lake, "tokens", path)
    file.write_bytes(file.read_bytes()[:-100])
    size, broken = verify(str(lake.lake))[::-1]
    assert (size.file, broken.file) == (path, path)
    assert "bytes, but the log records" in size.what
    assert "cannot be read" in broken.what


def test_damaged_pages_are_found(lake: Recipe) -> None:
    path = live(lake, "texts", "kept")[0]
    file = file_of(lake, "texts", path)
    metadata = opened(file).metadata.row_group(0)
    columns = metadata.to_dict()["columns"]
    text = next(column for column in columns if column["path_in_schema"] == "text")
    start = text["data_page_offset"] + 40
    content = bytearray(file.read_bytes())
    content[start : start + text["total_compressed_size"] - 60] = bytes(
        text["total_compressed_size"] - 60
    )
    file.write_bytes(content)
    assert verify(str(lake.lake), quick=True) == []
    (problem,) = verify(str(lake.lake))
    assert problem.file == path
    assert "cannot be read" in problem.what


def test_a_wrong_number_of_rows_is_found(lake: Recipe) -> None:
    path = rewrite(lake, "documents", lambda rows: rows.slice(1))
    problems = verify(str(lake.lake))
    assert any(p.file == path and "rows, but the log records" in p.what for p in problems)


def test_wrong_columns_are_found(lake: Recipe) -> None:
    index = schemas.TOKENS.get_field_index("num_tokens")

    def wider(rows: pa.Table) -> pa.Table:
        return rows.set_column(index, "num_tokens", rows["num_tokens"].cast(pa.int64()))

    path = rewrite(lake, "tokens", wider)
    (problem,) = verify(str(lake.lake))
    assert problem.file == path
    assert "num_tokens: int64" in problem.what


def _change(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    index = rows.schema.get_field_index(name)
    field = rows.schema.field(index)
    changed = rows.set_column(index, field, pa.array(values, field.type))
    hashes = f"{name}_hash"
    if hashes in rows.column_names:
        index = rows.schema.get_field_index(hashes)
        changed = changed.set_column(index, rows.schema.field(index), hash_column(changed[name]))
    return changed


@pytest.mark.parametrize(("name", "column"), [("texts", "text"), ("tokens", "tokens")])
def test_a_value_that_does_not_have_its_hash_is_found(lake: Recipe, name: str, column: str) -> None:
    def turned(rows: pa.Table) -> pa.Table:
        index = rows.schema.get_field_index(f"{column}_hash")
        hashes = pa.concat_arrays([*rows[index][1:].chunks, *rows[index][:1].chunks])
        return rows.set_column(index, rows.schema.field(index), hashes)

    path = rewrite(lake, name, turned)
    assert verify(str(lake.lake), quick=True) == []
    assert Problem(name, path, f"{column}_hash is not the hash of {column}") in verify(
        str(lake.lake)
    )


def test_a_wrong_running_total_is_found(lake: Recipe) -> None:
    def shifted(rows: pa.Table) -> pa.Table:
        ends = rows["token_end"].to_pylist()
        return _change(rows, "token_end", [ends[0], *(end - 1 for end in ends[1:-1]), ends[-1]])

    path = rewrite(lake, "tokens", shifted)
    problem = Problem("tokens", path, "token_end is not the running total of num_tokens")
    assert verify(str(lake.lake)) == [problem]


def test_a_wrong_number_of_tokens_is_found(lake: Recipe) -> None:
    def shorter(rows: pa.Table) -> pa.Table:
        lists = rows["tokens"].to_pylist()
        return _change(rows, "tokens", [lists[0][1:], *lists[1:]])

    path = rewrite(lake, "tokens", shorter)
    assert verify(str(lake.lake), quick=True) == []
    problems = verify(str(lake.lake))
    assert problems == [Problem("tokens", path, "num_tokens is not the length of tokens")]


def test_token_ids_outside_the_vocabulary_are_found(lake: Recipe) -> None:
    def strange(rows: pa.Table) -> pa.Table:
        lists = rows["tokens"].to_pylist()
        return _change(rows, "tokens", [[512, *lists[0][1:]], *lists[1:]])

    path = rewrite(lake, "tokens", strange)
    (problem,) = verify(str(lake.lake))
    assert problem.file == path
    assert "to 512, but the vocabulary has" in problem.what


def test_a_rejected_row_without_a_reason_is_found(lake: Recipe) -> None:
    path = live(lake, "documents", "rejected")[0]
    table = open_table(lake, "documents")
    others = [p for p in live(lake, "documents") if p != path]
    commit_damage(table, remove=others)
    new = rewrite(lake, "documents", lambda rows: _change(rows, "reason", [None] * rows.num_rows))
    problems = verify(str(lake.lake))
    assert any(p.file == new and "rejected rows have no reason" in p.what for p in problems)


@pytest.mark.parametrize("name", ["documents", "texts", "tokens"])
def test_repeated_rows_are_found(lake: Recipe, name: str) -> None:
    table = open_table(lake, name)
    files = table.data_files().to_pylist()
    path = live(lake, name, None if name == "tokens" else "kept")[0]
    folder, _, file = path.rpartition("/")
    twin = f"{folder}/{file[:32]}-copy.parquet".lstrip("/")
    file_of(lake, name, twin).write_bytes(file_of(lake, name, path).read_bytes())
    (row,) = (f for f in files if f["path"] == path)
    statistics = {
        "numRecords": row["rows"],
        "minValues": {n: row[f"min.{n}"] for n in ("source", "row")},
        "maxValues": {n: row[f"max.{n}"] for n in ("source", "row")},
    }
    partition = {"verdict": "kept"} if folder else {}
    fragment = DataFile(twin, row["size"], row["rows"], partition, json.dumps(statistics))
    commit_damage(table, [fragment])
    problems = verify(str(lake.lake))
    repeated = {p.file for p in problems if "whose address occurs more than once" in p.what}
    assert repeated == {path, twin}
    if name == "documents":
        assert any(", which has " in p.what for p in problems)
    else:
        assert any("of its rows have tokens" in p.what for p in problems)


def test_missing_tokens_are_found(lake: Recipe) -> None:
    path = live(lake, "tokens")[0]
    commit_damage(open_table(lake, "tokens"), remove=[path])
    (problem,) = verify(str(lake.lake))
    assert (problem.table, problem.redo) == ("texts", "tokens")
    assert problem.file in live(lake, "texts", "kept")
    assert problem.what.startswith("0 of its rows have tokens")


def test_missing_documents_are_found(lake: Recipe) -> None:
    path = live(lake, "documents", "kept")[0]
    commit_damage(open_table(lake, "documents"), remove=[path])
    problems = {problem.table: problem.what for problem in verify(str(lake.lake))}
    assert problems.keys() == {"documents", "texts"}
    assert ", which has " in problems["documents"]
    assert "of which `documents` has no row with the same verdict" in problems["texts"]


def test_missing_texts_are_found(lake: Recipe) -> None:
    path = live(lake, "texts", "kept")[0]
    commit_damage(open_table(lake, "texts"), remove=[path])
    problems = {(problem.table, problem.what) for problem in verify(str(lake.lake))}
    assert any(table == "documents" and "without a text" in what for table, what in problems)
    assert any("whose document is not kept" in what for _, what in problems)
    assert ("tokens", "its documents no longer exist") in problems


def _add_duplicate(recipe: Recipe, row: dict[str, Any], keeper: dict[str, Any]) -> None:
    table = open_table(recipe, "duplicates")
    writer = DataFileWriter(table.url, schemas.DUPLICATES, DUPLICATES.layout, name="d" * 32)
    duplicate = {
        **{name: row[name] for name in ("source", "row", "id")},
        "keeper_source": keeper["source"],
        "keeper_row": keeper["row"],
        "kind": "exact",
        "similarity": 1.0,
        "unit": row["unit"],
    }
    writer.append(pa.Table.from_pylist([duplicate], schemas.DUPLICATES))
    commit_damage(table, writer.close())


def _documents(recipe: Recipe, verdict: str) -> list[dict[str, Any]]:
    """The rows of ``documents`` with their units of work."""
    return [
        {**row, "unit": key_of(path)}
        for path in live(recipe, "documents", verdict)
        for row in read(recipe, "documents", path).to_pylist()
    ]


def test_damaged_keys_are_found(lake: Recipe) -> None:
    """The keys are unsorted, one is missing, and one belongs to no document."""
    table = open_table(lake, "keys")
    path = max(table.data_files().to_pylist(), key=lambda file: file["rows"])["path"]
    rows = read(lake, "keys", path)
    other = next(k for k in range(1, rows.num_rows) if rows["key"][k] != rows["key"][0])
    order = [other, *range(1, other), 0, *range(other + 1, rows.num_rows)]
    ids = rows["unit"].to_pylist()
    damaged = rows.set_column(2, rows.schema.field(2), pa.array([1, *ids[1:]])).take(order)
    writer = DataFileWriter(
        table.url,
        schemas.KEYS,
        KEYS.layout,
        name=path.rsplit("/")[-1][:32],
        partition={"kind": "exact"},
    )
    writer.append(damaged)
    written = writer.close()
    commit_damage(table, written, remove=[path])
    problems = {(problem.table, problem.what) for problem in verify(str(lake.lake))}
    assert problems == {
        ("keys", "its keys are not sorted"),
        ("keys", "1 key of documents that do not exist"),
        ("texts", what_with(problems, "of its rows have a key")),
    }


def what_with(problems: set[tuple[str, str]], part: str) -> str:
    """Return the description that contains a text, or a text that equals no problem."""
    return next((what for _, what in problems if part in what), f"no problem contains: {part}")


def test_a_duplicate_that_has_tokens_is_found(lake: Recipe) -> None:
    tokens = read(lake, "tokens", live(lake, "tokens")[0]).to_pylist()
    wanted = [(row["source"], row["row"]) for row in tokens[:2]]
    first, second = (r for r in _documents(lake, "kept") if (r["source"], r["row"]) in wanted)
    _add_duplicate(lake, second, first)
    descriptions = {problem.what for problem in verify(str(lake.lake))}
    assert any("1 row of duplicates" in what for what in descriptions)
    assert any("are kept and not left out" in what for what in descriptions)


def test_a_duplicate_that_is_not_a_kept_document_is_found(lake: Recipe) -> None:
    rejected, kept = _documents(lake, "rejected")[0], _documents(lake, "kept")[0]
    _add_duplicate(lake, rejected, kept)
    assert any("whose document is not kept" in p.what for p in verify(str(lake.lake)))


def test_a_keeper_that_is_not_a_kept_document_is_found(lake: Recipe) -> None:
    rejected, kept = _documents(lake, "rejected")[0], _documents(lake, "kept")[0]
    _add_duplicate(lake, kept, rejected)
    assert any("whose keeper is not kept" in p.what for p in verify(str(lake.lake)))


def test_a_keeper_that_does_not_exist_is_found(lake: Recipe) -> None:
    kept = _documents(lake, "kept")[0]
    _add_duplicate(lake, kept, {"source": "s3://elsewhere/x.parquet", "row": 0})
    descriptions = [p.what for p in verify(str(lake.lake))]
    assert any(
        "s3://elsewhere/x.parquet, which is in no other table" in what for what in descriptions
    )


def test_a_duplicate_that_names_the_wrong_unit_is_found(lake: Recipe) -> None:
    row, other = _documents(lake, "kept")[0], _documents(lake, "kept")[-1]
    assert row["unit"] != other["unit"]
    _add_duplicate(lake, {**row, "unit": other["unit"]}, other)
    assert any("that name another unit of work" in p.what for p in verify(str(lake.lake)))


def test_tokens_without_a_document_are_found(lake: Recipe) -> None:
    table = open_table(lake, "tokens")
    writer = DataFileWriter(table.url, schemas.TOKENS, TOKENS.layout, name="f" * 32)
    row = {
        "id": "x",
        "source": "s3://elsewhere/x.parquet",
        "row": 0,
        "tokens": [1],
        "num_tokens": 1,
    }
    writer.append(pa.Table.from_pylist([row], pa.schema(list(schemas.TOKENS)[:5])))
    (fragment,) = writer.close()
    commit_damage(table, [fragment])
    problems = verify(str(lake.lake))
    assert {problem.file for problem in problems} == {fragment.path}
    assert any("whose document is not kept" in problem.what for problem in problems)
