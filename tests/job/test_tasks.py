"""What a worker returns to the driver is a small value of known types."""

import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

from upath import UPath

from etl.delta.logical_file import LogicalFile
from etl.job.plan import make_plan
from etl.job.tasks import ReadSplit, TokenizeUnit
from etl.lake.work_units import WorkResult, WorkUnit
from etl.parquet.data_file import DataFile
from etl.recipe.recipe import Recipe
from etl.sources.content_digests import Content
from tests.helpers.corpus import records, write_jsonl

KEY = "0" * 32
USER_CODE = """\
class Reason(str):
    pass
def judge(document):
    return Reason("odd") if document["row"] % 2 else True
"""


class _Unpickler(pickle.Unpickler):
    """Records the classes and functions that a pickle imports."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.imported: set[Any] = set()

    def find_class(self, module: str, name: str) -> Any:
        imported = super().find_class(module, name)
        self.imported.add(imported)
        return imported


def imports_of(value: object) -> set[Any]:
    data = pickle.dumps(value)
    assert len(data) < 8192, "a result is small"
    unpickler = _Unpickler(data)
    assert unpickler.load() == value
    return unpickler.imported


def test_a_result_imports_nothing_but_its_own_classes(
    recipe: Recipe, place: UPath, tmp_path: Path
) -> None:
    """Otherwise a worker could make the driver import a user's code."""
    (tmp_path / "typed_reasons.py").write_text(USER_CODE)
    call = {"call": "typed_reasons:judge", "per": "document", "folder": str(tmp_path)}
    source = recipe.source.model_dump() | {"path": str(place / "in.jsonl")}
    write_jsonl(place / "in.jsonl", records(0, 30))
    stages = ["gopher_quality", {"python": call}, recipe.tokenizers["tokens"]]
    recipe = Recipe(name="typed", source=source, lake=recipe.lake, stages=stages)
    split = next(iter(make_plan(recipe).splits))
    (result,) = ReadSplit(recipe, "tokens")((replace(split, first_row=0), KEY, KEY))
    assert result is not None
    assert result.rejected["python.odd"] > 0
    assert result.kept > 0
    assert result.tokens > 0
    assert result.costs.keys() >= {"read", "signals.words", "2 python", "write", "tokenize"}
    assert imports_of(result) == {WorkResult, DataFile, Content}


def test_tokenizing_a_unit_returns_such_a_result(recipe: Recipe, place: UPath) -> None:
    source = recipe.source.model_dump() | {"path": str(place / "in.jsonl")}
    write_jsonl(place / "in.jsonl", records(0, 30))
    recipe = Recipe(name="typed", source=source, lake=recipe.lake, stages=recipe.stages)
    split = next(iter(make_plan(recipe).splits))
    (read,) = ReadSplit(recipe)((replace(split, first_row=0), KEY, ""))
    assert read is not None
    files = tuple(LogicalFile(file.path) for file in read.files["texts"])
    unit = WorkUnit(
        key=KEY,
        source=split.uri,
        files=files,
        rows=read.kept,
        size=0,
        first_row=0,
        last_row=30,
    )
    (result,) = TokenizeUnit(recipe, "tokens")((unit, KEY, ()))
    assert result is not None
    assert (result.rows, result.kept, result.duplicates) == (read.kept, read.kept, 0)
    assert result.tokens > 0
    assert imports_of(result) == {WorkResult, DataFile}
