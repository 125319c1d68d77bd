"""Each query engine, in a separate environment, finds every row of a table, and no struck ones."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etl import storage
from etl.delta.table import Table
from tests.helpers import delta_engines, delta_queries
from tests.helpers.hostile_strings import comparisons, find_wrong_counts, write_hostile_table
from tests.helpers.paths import at
from tests.helpers.struck_chain import (
    CHECKPOINT,
    PLAIN,
    Chain,
    link_versions,
    write_struck_lake,
)

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".engines"
REQUIREMENTS = Path(__file__).parent / "engines"
PAGE = ROOT / "docs" / "reference" / "tables.md"

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


def run_in(environment: str, program: str, request: Mapping[str, Any], folder: Path) -> Any:
    """Return what a program returns for a request in an engine's environment."""
    python = ENVIRONMENTS / environment / "bin" / "python"
    if not python.exists():
        pytest.skip("`make test-engines` installs the engine")
    result = subprocess.run(
        [python, program],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,  # ClickHouse only reads files below its folder
        env={"PYTHONPATH": str(ROOT)},
        timeout=600,  # a server of Sail that stops leaves its client waiting
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_an_engine_finds_every_row(table: Path, reader: str) -> None:
    asked = comparisons("=<>")
    request = {"reader": reader, "table": str(table), "comparisons": asked}
    counts = run_in(READERS[reader], delta_engines.__file__, request, table)
    assert find_wrong_counts(asked, counts) == []


class Documented(NamedTuple):
    """A line of the page's list of readers."""

    package: str
    version: str
    reader: str
    result: str


def documented_readers() -> list[Documented]:
    """Return the lines of the list of readers: `| package version | reader | result | remark |`."""
    lines = re.findall(
        r"^\| (\S+) (\d\S+) \| (.+?) \| \**(right|refuses|wrong)\b", PAGE.read_text(), re.MULTILINE
    )
    return [Documented(*line) for line in lines]


def readers_that_are(result: str) -> pytest.MarkDecorator:
    """Run a test for each reader with a result on the page."""
    readers = [each for each in documented_readers() if each.result == result]
    return pytest.mark.parametrize("reader", readers, ids=lambda each: f"{each[0]} {each[2]}")


ENGINES = {
    "deltalake": "deltalake",
    "polars": "polars",
    "duckdb": "duckdb",
    "chdb": "clickhouse",
    "pysail": "sail",
    "delta-kernel-rust-sharing-wrapper": "kernel",
    "daft": "daft",
}
"""Package -> the environment with it."""

WITHOUT_VERSIONS = {
    "`ScanBuilder`",
    '`format("delta")`',  # not every version, see below
    "`read_parquet`",
    "`deltaLakeLocal` with `allow_experimental_delta_kernel_rs = 0`",
}
"""Readers of the newest version only."""


def test_the_page_names_all_readers_and_the_versions_that_are_tested() -> None:
    readers = documented_readers()
    assert {each.reader for each in readers} == set(delta_queries.READERS)
    assert {each.package for each in readers} == set(ENGINES)
    for each in readers:
        pinned = (REQUIREMENTS / f"{ENGINES[each.package]}.txt").read_text().splitlines()
        assert f"{each.package}=={each.version}" in pinned


@pytest.fixture(scope="module", params=[1, 2])
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    chain = Chain(at(tmp_path_factory.mktemp("chain") / "t"), seed=request.param)
    chain.change_twenty_times()
    return chain


def ask(chain: Chain, reader: Documented, versions: Sequence[int], folder: Path) -> list[Any]:
    """Return the answers of a reader for versions of a table: by their number, or as the newest ones."""
    table = Path(storage.local_path(chain.table.url))
    places: list[tuple[str, int | None]] = [(str(table), version) for version in versions]
    if reader.reader in WITHOUT_VERSIONS:
        places = [(str(path), None) for path in link_versions(table, versions, folder)]
    request = {"reader": reader.reader, "versions": places}
    parent = folder if reader.reader in WITHOUT_VERSIONS else table.parent
    answers = run_in(ENGINES[reader.package], delta_queries.__file__, request, parent)
    assert len(answers) == len(versions)
    return list(answers)


@pytest.mark.slow
@readers_that_are("right")
def test_a_reader_is_right_at_every_version(
    chain: Chain, reader: Documented, tmp_path: Path
) -> None:
    answers = ask(chain, reader, [*chain.versions], tmp_path)
    assert answers == [version.live for version in chain.versions.values()]


@pytest.mark.slow
@readers_that_are("refuses")
def test_a_reader_refuses_versions_with_struck_rows(
    chain: Chain, reader: Documented, tmp_path: Path
) -> None:
    plain, *struck = ask(
        chain, reader, [PLAIN, PLAIN + 1, CHECKPOINT, chain.table.version], tmp_path
    )
    assert plain == chain.versions[PLAIN].live
    for answer in struck:
        hint = f"{reader.reader} reads struck tables now: correct {PAGE.name}"
        assert isinstance(answer, str), hint
        assert re.search("deletion.?vectors?", answer, re.IGNORECASE), answer


@pytest.mark.slow
@readers_that_are("wrong")
def test_a_reader_still_counts_struck_rows(
    chain: Chain, reader: Documented, tmp_path: Path
) -> None:
    versions = [PLAIN + 1, CHECKPOINT, chain.table.version]
    for number, answer in zip(versions, ask(chain, reader, versions, tmp_path), strict=True):
        assert not isinstance(answer, str), f"{reader.reader} refuses now: correct {PAGE.name}"
        right = chain.versions[number].live
        assert answer[0] != right[0], f"{reader.reader} is right now: correct {PAGE.name}"


@pytest.mark.slow
def test_sail_does_not_read_versions_before_a_checkpoint_by_their_number(chain: Chain) -> None:
    table = str(storage.local_path(chain.table.url))
    places = [(table, version) for version in chain.versions]
    request = {"reader": '`format("delta")`', "versions": places}
    answers = run_in("sail", delta_queries.__file__, request, Path(table))
    for (number, version), answer in zip(chain.versions.items(), answers, strict=True):
        if PLAIN <= number < CHECKPOINT:
            assert "Missing commit file" in answer, f"Sail reads them now: correct {PAGE.name}"
        else:
            assert answer == version.live


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables ``texts`` and ``documents``, with other texts struck in version 3 than in version 4."""
    folder = tmp_path_factory.mktemp("data") / "lake"
    write_struck_lake(at(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("example", delta_queries.EXAMPLES)
def test_the_example_of_an_engine_finds_the_kept_texts(lake: Path, example: str) -> None:
    code = (ROOT / "docs" / "engines" / example).read_text()
    assert "/data/lake" in code
    request = {"example": example, "code": code.replace("/data/lake", str(lake))}
    environment = {"delta-rs.py": "deltalake"}.get(example, example.partition(".")[0])
    head, old, joined, *counts = run_in(environment, delta_queries.__file__, request, lake)
    assert sorted(head) == ["a0", "a2"]
    assert sorted(old) == ["a1", "a2"]
    assert joined == ["a2"]
    assert counts in ([], [[5]])  # ClickHouse counts rejected texts, too
