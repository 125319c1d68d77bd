"""The generated files are up to date: the map of modules, the reference of stages, the JSON Schema."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GENERATED = runpy.run_path(str(ROOT / "docs" / "generate.py"))["GENERATED"]


@pytest.mark.parametrize("file", GENERATED)
def test_a_generated_file_is_up_to_date(file: str) -> None:
    assert (ROOT / file).read_text("utf-8") == GENERATED[file](), "run `make docs`"
