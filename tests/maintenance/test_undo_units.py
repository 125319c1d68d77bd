"""The undo of foreign changes never adds a data file that no longer exists."""

from pathlib import Path

import deltalake
import pytest
from distributed import Client

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.table_specs import SPECS
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.paths import at

pytestmark = pytest.mark.local_only  # delta-rs changes the lake


@pytest.fixture
def grown(client: Client, changing: Recipe) -> Recipe:
    """A lake of two files with a common part, of which each has several splits."""
    for path in at(changing.source.path).iterdir():
        path.unlink()
    write_parquet(at(changing.source.path) / "a.parquet", records(0, 40), group=20)
    write_parquet(at(changing.source.path) / "b.parquet", records(30, 60), group=20)
    assert run(changing, cluster=client).ok
    return changing


def delete_and_vacuum(recipe: Recipe, name: str) -> int:
    """Delete all rows of a table and their files, as another program does; return the version."""
    table = deltalake.DeltaTable(recipe.table_url(name))
    table.delete()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    return Table.open(recipe.table_url(name)).version


def missing(recipe: Recipe, name: str, after: int) -> list[str]:
    """Return the files that a version after another names, and that do not exist."""
    commits = Table.open(recipe.table_url(name)).commits(after=after)
    paths = [path for each in commits for file in each.add for path in file.stored_paths]
    added = [storage.join(recipe.table_url(name), path) for path in paths]
    return [uri for uri in added if storage.file_info(uri) is None]


@pytest.mark.parametrize("name", ["documents", "duplicates", "tokens"])
def test_rows_of_vacuumed_files_are_made_again(client: Client, grown: Recipe, name: str) -> None:
    before = rows_by_table(grown)
    version = delete_and_vacuum(grown, name)
    result = repair(str(grown.lake), drop=True)
    assert (result.left, result.restored) == ([], {})
    assert missing(grown, name, version) == []
    assert verify(str(grown.lake)) == []
    assert run(grown, cluster=client).ok
    assert rows_by_table(grown) == before
    assert verify(str(grown.lake)) == []
    assert not make_plan(grown).has_work()


def test_rows_of_a_vacuumed_file_whose_input_is_gone_are_dropped_and_reported(
    client: Client, grown: Recipe
) -> None:
    version = delete_and_vacuum(grown, "documents")
    (at(grown.source.path) / "a.parquet").unlink()
    result = repair(str(grown.lake), drop=True)
    assert {left.problem.what for left in result.left} == {"the file is missing"}
    assert all("input file no longer exists" in left.why for left in result.left)
    assert missing(grown, "documents", version) == []
    assert verify(str(grown.lake)) == []
    assert repair(str(grown.lake), drop=True).left == []
    assert run(grown, cluster=client).ok
    sources = {Path(row["source"]).name for row in rows_by_table(grown)["documents"]}
    assert sources == {"b.parquet"}
    assert verify(str(grown.lake)) == []


def test_files_that_still_exist_are_added_again_beside_vacuumed_ones(
    client: Client, grown: Recipe
) -> None:
    """One file of each table is lost; the others keep their rows."""
    before = rows_by_table(grown)
    for name, spec in SPECS.items():
        if not spec.is_index and Table.exists(grown.table_url(name)):
            deltalake.DeltaTable(grown.table_url(name)).delete()
    lost = min(at(grown.table_url("documents")).glob("verdict=kept/*.parquet"))
    lost.unlink()
    result = repair(str(grown.lake), drop=True)
    assert result.left == []
    assert len(result.sources) == 1
    assert all(result.restored[name] for name in ("documents", "tokens"))
    assert f"verdict=kept/{lost.name}" not in result.restored["documents"]
    assert run(grown, cluster=client).ok
    assert rows_by_table(grown) == before
    assert verify(str(grown.lake)) == []
