"""The glossary of docs/reference names code that exists, and each word once."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "glossary.md"


class Entry(NamedTuple):
    """A line of the glossary."""

    word: str
    meaning: str
    file: str
    name: str


def entries() -> list[Entry]:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [Entry(*(cell.strip(" `") for cell in row.strip("|").split("|"))) for row in rows[1:]]


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.word)
def test_an_entry_names_code_that_exists(entry: Entry) -> None:
    tree = ast.parse((ROOT / entry.file).read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    assert entry.name in names


def test_each_word_has_one_line_in_the_order_of_the_alphabet() -> None:
    words = [entry.word for entry in entries()]
    assert words == sorted(set(words))
