"""Commands that read a lake start fast: without pandas, pyarrow's datasets, Dask and readers of input."""

import subprocess
import sys

import pytest

from etl.recipe.recipe import Recipe
from tests.helpers.cli import ROOT
from tests.helpers.lake_rows import rows

CODE = """
import sys
from typer.testing import CliRunner
from etl.cli.app import app
result = CliRunner().invoke(app, sys.argv[1:])
assert result.exit_code == 0, result.output
unneeded = {"pandas", "pyarrow.dataset", "dask", "numba"}
if sys.argv[1] in ("report", "verify"):
    unneeded.add("etl.sources.formats")
if sys.argv[1] == "report":
    unneeded |= {"etl.stages", "polars"}
print(*sorted(unneeded & {*sys.modules}))
"""


@pytest.mark.parametrize(
    "words",
    [
        ("report", "LAKE"),
        ("verify", "LAKE", "--quick"),  # a full check hashes all rows, by kernels
        ("trace", "LAKE", "--source", "SOURCE", "--row", "ROW"),
        ("show", "LAKE/documents"),
        ("diff", "LAKE/documents", "0", "1"),
        ("sample", "LAKE", "--verdict", "kept"),
        ("tune", "LAKE", "--set", "gopher_quality.min_words=80"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_loads_few_libraries(made: Recipe, words: tuple[str, ...]) -> None:
    kept = next(row for row in rows(made.lake, "documents") if row["verdict"] == "kept")
    values = {"LAKE": made.lake, "SOURCE": kept["source"], "ROW": kept["row"]}
    filled = list(words)
    for name, value in values.items():
        filled = [word.replace(name, str(value)) for word in filled]
    result = subprocess.run(
        [sys.executable, "-c", CODE, *filled], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
