"""Lineage records are typed where they are made: a value of a wrong type fails mypy, and raises an error.

mypy reports a comment below that ignores an error if there is none.
"""

# mypy: enable-error-code="arg-type,list-item"

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

import etl
from etl import schemas
from etl.lake.lineage_record import Change, Origin

MAKERS = ("dedup", "job", "lake", "maintenance")
RECORDS = {
    "Change", "Counts", "InputFile", "InputTable", "Lineage", "Origin", "RunRecord",
    "TokenizerRecord", "Usage",
}  # fmt: skip
FILES = [path for name in MAKERS for path in sorted((Path(etl.__path__[0]) / name).rglob("*.py"))]


def test_values_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(ValidationError):
        schemas.Counts(rows="three")  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        schemas.InputFile(uri="a", size=1, fingerprint="f", rows=None)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        schemas.InputTable(name="a", url="b", version=1, rows=2)  # type: ignore[call-arg]
    file = schemas.InputFile(uri="a", size=1, fingerprint="f", rows=1)
    with pytest.raises(ValidationError):
        file.updated(rows="all")  # type: ignore[arg-type]
    assert file.updated(rows=-1).rows == -1


def test_parts_of_records_have_checked_types() -> None:
    """Change and Origin are plain classes: mypy alone checks their values."""
    Change(action="erase", generation=1)  # type: ignore[arg-type]
    Change(action="append", generation=1, counts={"rows": 1})  # type: ignore[arg-type]
    Change(action="append", generation=1, input_files=["a.jsonl"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        Origin(step="tokens", recipe="web")  # type: ignore[call-arg]


def untyped(code: str) -> Iterator[str]:
    """Yield what mypy cannot check in code: records from a dictionary, and copies without validation."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        is_record = name in RECORDS and any(keyword.arg is None for keyword in node.keywords)
        if is_record or name == "model_construct":
            yield ast.unparse(node)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_record_is_made_without_types(path: Path) -> None:
    code = path.read_text("utf-8")
    assert [*untyped(code)] == []
    if path.parent.name in ("lake", "maintenance"):
        assert "model_copy(" not in code, "the values of a copy are not validated"


def test_such_code_is_found() -> None:
    code = "schemas.Counts(**total)\nLineage.model_construct(a=1)\nschemas.Counts(rows=1)"
    assert len([*untyped(code)]) == 2
