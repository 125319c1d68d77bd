"""Objects are complete when they are made: no module of ``etl.job`` sets an attribute of another object."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import etl.job


def foreign_changes(code: str) -> Iterator[str]:
    """Yield the attributes of objects other than ``self`` and ``cls`` that code sets or deletes."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in ("setattr", "delattr", "__setattr__", "__delattr__"):
                yield ast.unparse(node)


@pytest.mark.parametrize(
    "path", sorted(Path(*etl.job.__path__).rglob("*.py")), ids=lambda p: p.stem
)
def test_no_attribute_of_another_object_is_set(path: Path) -> None:
    assert [*foreign_changes(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("code", "attributes"),
    [
        ("job.client = client", ["job.client"]),
        ("job.client, self.limit = pair", ["job.client"]),
        ("self.report.rows += 1", ["self.report.rows"]),
        ("job.client: Client = client", ["job.client"]),
        ("for job.client in clients: pass", ["job.client"]),
        ("with connect() as job.client: pass", ["job.client"]),
        ("del runs[0].meter", ["runs[0].meter"]),
        ("setattr(job, name, 1)", ["setattr(job, name, 1)"]),
        ("object.__setattr__(job, 'a', 1)", ["object.__setattr__(job, 'a', 1)"]),
        ("self.client = job.client\nrows['a'] = 1\njob.add(2)", []),
    ],
)
def test_such_changes_are_found(code: str, attributes: list[str]) -> None:
    assert [*foreign_changes(code)] == attributes
