"""Input files with unusual names are read once, traced, verified and printed like any other."""

import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from distributed import Client
from typer.main import get_command
from typer.testing import CliRunner
from upath import UPath

from etl import storage
from etl.audit.lineage_graph import graph, trace
from etl.audit.openlineage import run_events
from etl.audit.verify.verify import verify
from etl.cli.app import app
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.visible_text import one_line
from tests.helpers.corpus import prose
from tests.helpers.paths import NewPlace, copy

NAMES = (
    "plain",
    "two..dots",
    "%41 is not A",
    "A is not %41",
    "per%2Fcent",
    " spaces  here ",
    "hash#1",
    "question?a=b&c",
    "star*[1]{2,3}",
    "plus+and=equals",
    "'single' \"double\" `back`",
    "new\nline",
    "tab\tand\x1b[31mred",
    unicodedata.normalize("NFC", "é東京"),
    unicodedata.normalize("NFD", "é東京"),
    "-dash",
    "~tilde",
    "key=value",
    "x" * 194,
)


def write(folder: str, name: str, number: int) -> str:
    """Write a file with a unique, a duplicate and a too short record; return its URI."""
    texts = (prose(number), prose(1000), "too short")
    lines = [json.dumps({"id": f"{number}-{k}", "text": text}) for k, text in enumerate(texts)]
    uri = storage.normalize(f"{folder}/{name}.jsonl")
    storage.write_bytes(uri, "\n".join(lines).encode())
    return uri


@pytest.fixture(scope="module")
def place(new_place: NewPlace) -> UPath:
    return new_place("names")


@pytest.fixture(scope="module")
def uris(place: UPath) -> list[str]:
    return [write(f"{place}/in=1", name, k) for k, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def recipe(client: Client, place: UPath, uris: list[str], tiny_tokenizer: Path) -> Recipe:
    recipe = Recipe(
        name="names",
        source={"path": f"{place}/in=1", "columns": {"id": "id"}},
        lake=f"{place}/lake",
        stages=["gopher_quality", "dedup_exact", {"tokenize": str(tiny_tokenizer)}],
    )
    report = run(recipe, cluster=client)
    assert report.ok, report.quarantined
    return recipe


def sources(recipe: Recipe, name: str) -> Counter[str]:
    table = Table.open(recipe.table_url(name)).dataset().to_table(columns=["source"])
    return Counter(table["source"].to_pylist())


def etl(*words: object) -> str:
    """Return everything that a command prints."""
    return str(CliRunner().invoke(app, [str(word) for word in words]).output)


def test_every_file_is_read_once(recipe: Recipe, uris: list[str]) -> None:
    assert len(set(uris)) == len(NAMES)
    assert sources(recipe, "documents") == dict.fromkeys(uris, 3)
    first = min(uris)  # the shared text is kept in the first file
    assert sources(recipe, "tokens") == {uri: 1 + (uri == first) for uri in uris}
    assert sources(recipe, "duplicates") == {uri: 1 for uri in uris if uri != first}
    assert {
        file.uri: file.rows
        for node in graph(recipe.table_url("tokens")).walk()
        for file in node.files
    } == dict.fromkeys(uris, 3)
    assert not make_plan(recipe).has_work()
    assert verify(str(recipe.lake)) == []


def test_every_record_is_traced(recipe: Recipe, uris: list[str]) -> None:
    for number, uri in enumerate(uris):
        traces = [trace(str(recipe.lake), source=uri, row=row)[0] for row in range(3)]
        assert [(each.source, each.row, each.id) for each in traces] == [
            (uri, row, f"{number}-{row}") for row in range(3)
        ]
        assert traces[0].tokens
        assert traces[2].reason == "gopher_quality.short"
        lines = etl("trace", recipe.lake, "--source", uri, "--row", 0).split("\n")
        assert lines[0] == f"{one_line(uri)} row 0"
        assert all(line.startswith("  ") for line in lines[1:-1])


COMMANDS = {
    name: str(parameter.metavar)
    for name, command in get_command(app).commands.items()
    for parameter in command.params
    if parameter.metavar in ("LAKE", "TABLE")
}
"""The commands that read a lake or a table, and which of the two."""

MORE_WORDS = {
    "diff": ["0", "1"],
    "drop": ["tokens"],
    "export": ["--to", "exported"],
    "release": ["first"],
    "sample": ["-n", "1000"],
    "trace": ["--id", "11-0"],
    "tune": ["--set", "gopher_quality.min_words=1"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_printed_line_is_one_line(
    recipe: Recipe, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake = copy(recipe.lake, UPath(tmp_path / "lake"))
    url = str(lake / "documents") if COMMANDS[command] == "TABLE" else str(lake)
    result = CliRunner().invoke(app, [command, url, *MORE_WORDS.get(command, [])])
    assert result.exit_code == 0, result.output
    letters = set(result.stdout) - {"\n"}
    assert [letter for letter in letters if one_line(letter) != letter] == []
    if command in ("diff", "duplicates", "lineage", "report", "sample", "trace", "tune"):
        assert "new\\nline" in result.stdout


def test_events_name_every_file(recipe: Recipe, uris: list[str], place: UPath) -> None:
    events = run_events(graph(recipe.table_url("documents")))
    names = [dataset["name"] for event in events for dataset in event.get("inputs", [])]
    assert {name.rpartition("/in=1/")[2] for name in names} == {f"{name}.jsonl" for name in NAMES}


def test_nothing_is_written_outside_the_lake(recipe: Recipe, place: UPath) -> None:
    files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    others = {file for file in files if not file.startswith("lake/")}
    assert others == {f"in=1/{name}.jsonl" for name in NAMES}
    tables = ("documents/", "duplicates/", "finished/", "keys/", "texts/", "tokens/")
    assert files > others
    assert all(file.removeprefix("lake/").startswith(tables) for file in files - others)


def test_new_changed_and_damaged_files_are_reported_in_one_line(
    client: Client, recipe: Recipe, new_place: NewPlace
) -> None:
    place = new_place("grows")
    source = recipe.source.model_copy(update={"path": f"{place}/in"})
    recipe = recipe.model_copy(update={"source": source, "lake": f"{place}/lake"})
    name = "new\nline?#%41"
    uri = write(f"{place}/in", name, 1)
    assert run(recipe, cluster=client).rows == 3
    write(f"{place}/in", f"{name}2", 2)
    assert run(recipe, cluster=client).rows == 3
    write(f"{place}/in", name, 33)
    with pytest.raises(MismatchError) as caught:
        run(recipe, cluster=client)
    assert str(caught.value).split("\n")[0].startswith(f"{one_line(uri)}: 1 input file changed")
    assert len(str(caught.value).split("\n")) == 2
    run(recipe, cluster=client, replace_changed=True)
    assert sorted(sources(recipe, "documents").values()) == [3, 3]
    assert trace(str(recipe.lake), source=uri, row=0)[0].id == "33-0"
    broken = storage.normalize(f"{place}/in/bro\nken.parquet")
    storage.write_bytes(broken, b"PAR1 not a Parquet file PAR1")
    report = run(recipe, cluster=client)
    assert [note.source for note in report.quarantined] == [broken]
    (line,) = [x for x in etl("report", recipe.lake).split("\n") if x.startswith("quarantined")]
    assert one_line(broken) in line
    lines = etl("trace", recipe.lake, "--source", broken, "--row", 0).split("\n")
    assert f"{one_line(broken)} could not be read" in lines[0]
    assert [line for line in lines if line.startswith("ken")] == []
    assert verify(str(recipe.lake)) == []
