"""A release names versions that belong together; of concurrent creators of a name, one succeeds."""

import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lineage_graph import graph
from etl.audit.verify.verify import verify
from etl.dataframe import read_table
from etl.delta.table import Table
from etl.delta.vacuum_records import write_record
from etl.errors import ConflictError, TableError
from etl.job.run import run
from etl.lake import leases, releases
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.paths import at, copy
from tests.helpers.vacuums import announce


def test_a_release_names_the_versions_that_belong_together(recipe: Recipe) -> None:
    now = releases.create_release(recipe.lake, "all")
    heads = {kind: Table.open(recipe.table_url(kind)).version for kind in recipe.steps}
    assert now.versions == heads
    first = releases.create_release(recipe.lake, "first.run", version=1)
    read = {node.name: node.version for node in graph(recipe.table_url("tokens"), 1).walk()}
    assert first.versions == read
    assert first.versions["documents"] < heads["documents"]
    assert releases.list_releases(recipe.lake) == [now, first]
    assert releases.version_of(recipe.table_url("tokens"), "first.run") == 1
    assert len(read_table(recipe.lake, "tokens", "first.run")) < len(
        read_table(recipe.lake, "tokens", "all")
    )


def test_a_release_excludes_documents_without_tokens(client: Client, changing: Recipe) -> None:
    run(changing, cluster=client)
    before = {kind: Table.open(changing.table_url(kind)).version for kind in changing.steps}
    write_jsonl(at(changing.source.path) / "d.jsonl", records(200, 210))
    run(changing.model_copy(update={"stages": changing.stages[:2]}), cluster=client)
    assert Table.open(changing.table_url("documents")).version > before["documents"]
    assert releases.create_release(changing.lake, "whole").versions == before


def test_one_of_many_concurrent_creators_gets_the_name(recipe: Recipe) -> None:
    def create(_: int) -> releases.Release | TableError:
        try:
            return releases.create_release(recipe.lake, "mine")
        except TableError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(create, range(8)))
    errors = [result.what for result in results if isinstance(result, TableError)]
    assert errors == ["release 'mine' already exists"] * 7
    created = [result for result in results if not isinstance(result, TableError)]
    assert created == releases.list_releases(recipe.lake)


def test_releases_and_leases_work_on_s3(recipe: Recipe, s3: str) -> None:
    copy(recipe.lake, at(f"{s3}/lake"))
    release = releases.create_release(f"{s3}/lake", "one")
    with pytest.raises(TableError, match="already"):
        releases.create_release(f"{s3}/lake", "one")
    assert releases.list_releases(f"{s3}/lake") == [release]
    with leases.hold_lease(f"{s3}/lake", "run") as held:
        now = held.now()
        assert [lease.key for lease in leases.active_leases(f"{s3}/lake", now)] == [held.key]
    assert leases.active_leases(f"{s3}/lake", now) == []
    assert releases.remove_release(f"{s3}/lake", "one") == release
    assert releases.list_releases(f"{s3}/lake") == []


def test_the_name_of_a_removed_release_is_free_again(recipe: Recipe) -> None:
    first = releases.create_release(recipe.lake, "one")
    assert releases.remove_release(recipe.lake, "one") == first
    with pytest.raises(TableError, match=r"no release 'one'(.|\n)*existing releases: none"):
        releases.version_of(recipe.table_url("tokens"), "one")
    assert releases.create_release(recipe.lake, "one").key != first.key


@pytest.mark.parametrize("path", ["one.json", "_copies/one.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_release_is_restored_from_its_copy(
    recipe: Recipe, path: str, content: bytes | None
) -> None:
    release = releases.create_release(recipe.lake, "one")
    file = at(recipe.lake) / "releases" / path
    before = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert releases.list_releases(recipe.lake) == [release]
    (problem,) = verify(recipe.lake, quick=True)
    assert (problem.table, problem.file) == ("releases", path)
    assert repair(recipe.lake, drop=True).files == [f"releases/{path}"]
    assert file.read_bytes() == before
    assert verify(recipe.lake) == []


def test_a_copy_of_the_file_of_a_release_is_removed_by_the_named_command(recipe: Recipe) -> None:
    release = releases.create_release(recipe.lake, "one")
    folder = at(recipe.lake) / "releases"
    (folder / "one (copy).json").write_bytes((folder / "one.json").read_bytes())
    with pytest.raises(TableError, match="removes it") as caught:
        releases.list_releases(recipe.lake)
    command = str(caught.value.hint).split("`")[1]
    assert etl(*shlex.split(command)[1:]).exit_code == 0
    assert releases.list_releases(recipe.lake) == [release]


@pytest.mark.parametrize("name", ["", "12", "a/b", "../up", ".hidden", "x" * 101])
def test_an_invalid_name_is_refused(recipe: Recipe, name: str) -> None:
    with pytest.raises(TableError, match="not a valid release name"):
        releases.create_release(recipe.lake, name)
    with pytest.raises(TableError, match="no release"):
        releases.read_release(recipe.lake, name)


def test_a_missing_version_or_lake_is_refused(recipe: Recipe, place: UPath) -> None:
    with pytest.raises(TableError, match="has no version 99"):
        releases.create_release(recipe.lake, "later", version=99)
    with pytest.raises(TableError, match="no lake at this URL"):
        releases.create_release(str(place / "none"), "one")
    assert releases.list_releases(recipe.lake) == []


def test_a_version_that_a_vacuum_has_announced_is_not_released(recipe: Recipe) -> None:
    """The vacuum may have listed the releases before; what a dead one has announced is void."""
    lake, tokens = recipe.lake, recipe.table_url("tokens")
    with leases.hold_lease(lake, "vacuum") as lease:
        record = announce(tokens, lease, last=1)
        with pytest.raises(ConflictError, match="about to delete data files of version 1"):
            releases.create_release(lake, "late", version=1)
        assert releases.list_releases(lake) == []
        assert releases.create_release(lake, "newest").versions
        releases.remove_release(lake, "newest")
    assert releases.create_release(lake, "later", version=1).versions
    releases.remove_release(lake, "later")
    write_record(tokens, replace(record, is_decided=True))
    with pytest.raises(TableError, match="data files of version 1 were deleted by a vacuum"):
        releases.create_release(lake, "too.late", version=1)
