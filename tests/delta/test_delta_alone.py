"""The package ``etl.delta`` is the protocol alone: it names nothing of what is stored in a table."""

import re
from pathlib import Path

import pytest

import etl.delta

WORDS = (
    "lake", "recipe", "run", "release", "tokenlake", "lineage", "ledger", "split", "unit of work",
    "document", "duplicate", "token", "verdict", "step", "input table", "training",
)  # fmt: skip
COMMAND = r"`etl \w+"
FILES = sorted(Path(etl.delta.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_protocol_names_nothing_of_a_lake(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"[A-Za-z]+(?:_[A-Za-z]+)*", text)  # methods such as str.split do not count
    called = {name for name in names if f".{name}(" in text}
    pattern = rf"\b(?:{'|'.join(WORDS)})s?\b|{COMMAND}"
    matches = {match for match in re.findall(pattern, text, re.IGNORECASE) if match not in called}
    assert matches == set()
