"""Each query engine, in a separate environment, finds every row of a table by hostile strings."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from etl.delta.table import Table
from tests.helpers import delta_engines
from tests.helpers.hostile_strings import comparisons, find_wrong_counts, write_hostile_table
from tests.helpers.paths import at

ENVIRONMENTS = Path(__file__).parents[2] / ".engines"
READERS = {
    "pyarrow": "deltalake",
    "datafusion": "deltalake",
    "polars": "polars",
    "duckdb": "duckdb",
}
"""Reader -> its environment, with the packages of the text file of that name in `engines`."""

TABLES: dict[str, Callable[[Path], Table]] = {
    "a string a file": lambda path: write_hostile_table(at(path), 1),
    "checkpoint": lambda path: write_hostile_table(at(path), 1, checkpoint=True),
    "seven strings a file": lambda path: write_hostile_table(at(path), 7),
}


@pytest.fixture(scope="module", params=TABLES)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    TABLES[request.param](folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_an_engine_finds_every_row(table: Path, reader: str) -> None:
    python = ENVIRONMENTS / READERS[reader] / "bin" / "python"
    if not python.exists():
        pytest.skip("`make test-engines` installs the engine")
    asked = comparisons("=<>")
    request = {"reader": reader, "table": str(table), "comparisons": asked}
    program = subprocess.run(
        [python, delta_engines.__file__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert program.returncode == 0, program.stderr
    assert find_wrong_counts(asked, json.loads(program.stdout)) == []
