"""The lineage record is one string in ``commitInfo``, whose fields have one type in all entries."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from distributed import Client
from upath import UPath

from etl.delta.table import Table
from etl.errors import TableError
from etl.lake.commit_info import fields_of, parse_record, to_commit_info
from etl.parquet.layout import Layout
from tests.helpers.lakes import make_sound_lake


@pytest.fixture
def client(process_client: Client) -> Client:
    return process_client


def flattened(value: object, name: str = "") -> list[tuple[str, type]]:
    """Return the type of each value in JSON data, by its path; array elements share a path."""
    types = [(name, type(value))]
    items: list[tuple[str, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = [("[]", each) for each in value]
    for key, each in items:
        types += flattened(each, f"{name}.{key}")
    return types


def test_every_field_of_commit_info_has_one_type(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    recipe = make_sound_lake(place, client, tiny_tokenizer)
    for step in recipe.steps:
        types: dict[str, set[type]] = {}
        for entry in Table.open(recipe.table_url(step)).history():
            for name, kind in flattened(entry):
                types.setdefault(name, set()).add(kind)
        assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}
        assert types[".tokenlake"] == {str}


def test_a_record_that_is_not_json_is_reported(tmp_path: Path) -> None:
    schema = pa.schema({"a": pa.int64()})
    table = Table.create(str(tmp_path / "t"), schema, Layout(statistics=()))
    table.commit([], transactions={}, commit_info={"tokenlake": "{"})
    with pytest.raises(TableError, match="the lineage record of version 1 is not valid JSON"):
        parse_record(next(Table.open(table.url).history()), table.url)


def test_a_record_is_read_as_it_was_written() -> None:
    record = {"format": 0, "canonical": {"stages": ["a", {"b": None}]}}
    info = json.loads(json.dumps(to_commit_info(record)))
    assert fields_of(info) == record
