"""No command prints a hidden character of the input, and its JSON parses to the same strings."""

import io
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import example, given
from hypothesis import strategies as st
from typer.main import get_command
from upath import UPath

from etl.audit.trace import trace
from etl.cli.app import app
from etl.cli.json_text import json_text
from etl.cli.run_lines import JsonLines, show_quarantined
from etl.compute.print_listener import PrintListener
from etl.errors import SourceError, nearest_names
from etl.html.card import Card, cards_html
from etl.html.grid import Grid
from etl.job.run import run
from etl.lake.quarantine import Quarantined
from etl.recipe.recipe import Recipe
from etl.visible_text import VisibleStream, escape_hidden, one_line
from tests.helpers.cli import ROOT, etl
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.paths import NewPlace, copy

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\u2066\u200b\u2028\U000e0041\ufeff\x7f\r\u061c\u00ad"
ANY = st.text(st.characters())
"""Texts with characters of all categories, lone surrogates included."""

SHOWN_FORMATS = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD]
SHOWN_FORMATS += range(0x13430, 0x13440)
"""Format characters that have a shape: signs of Arabic, Kaithi and Egyptian."""


def is_hidden(character: str) -> bool:
    """Return whether a terminal obeys a character or does not show it, by its category."""
    code = ord(character)
    is_variant = 0xFE00 <= code < 0xFE10 or 0xE0100 <= code < 0xE01F0
    is_noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0
    return (
        (unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in "\t\n")
        or (unicodedata.category(character) == "Cf" and code not in SHOWN_FORMATS)
        or is_variant
        or is_noncharacter
    )


def test_all_hidden_characters_are_escaped() -> None:
    every = [chr(code) for code in range(0x110000)]
    assert [c for c in every if is_hidden(c) and escape_hidden(c) == c] == []
    others = [c for c in every if not is_hidden(c) and escape_hidden(c) != c]
    assert all(unicodedata.category(c) in ("Cn", "Lo", "Mn") for c in others)
    assert len([c for c in others if unicodedata.category(c) != "Cn"]) < 20  # fillers without width


@example("\udcff")
@given(ANY)
def test_json_keeps_its_meaning(text: str) -> None:
    for written in (json.dumps({text: text}, ensure_ascii=False), json_text({text: text})):
        assert json.loads(escape_hidden(written)) == {text: text}
        assert not any(map(is_hidden, escape_hidden(written)))


@given(ANY)
def test_a_line_stays_one_line(text: str) -> None:
    line = one_line(text)
    assert not any(is_hidden(c) or c in "\t\n" for c in line)
    assert one_line(line) == escape_hidden(line) == line


class Terminal(io.StringIO):
    """A buffer that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@given(ANY, ANY)
def test_progress_and_errors_are_escaped(name: str, text: str) -> None:
    note = Quarantined("documents", f"file:///{name}", "", text, "")
    for kind in (io.StringIO, Terminal):
        stream = kind()
        for lines in (PrintListener(stream), JsonLines(stream)):
            with lines:
                lines.status(text)
                lines.note(text)
                lines.warning(name)
                show_quarantined(lines, [note])
                lines.waiting(name, 3.0)
        own = re.sub(r"\r|\x1b\[K", "", stream.getvalue())
        assert not any(map(is_hidden, own))
    error = SourceError(text, where=name, hint=nearest_names(name, [text, "a"]))
    assert not any(map(is_hidden, str(error)))
    assert (error.what, error.where) == (text, name)


@given(ANY)
def test_pages_and_notebooks_use_the_same_characters(text: str) -> None:
    grid = Grid(caption=text, header=[text], rows=[[text]], note=text)
    html = cards_html(Card(title=text, facts={text: text}, grids=[grid], text=text))
    assert not any(map(is_hidden, html))


def test_a_notebook_shows_a_status_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    PrintListener().status(f"{EVIL}\n")
    assert not any(is_hidden(c) or c == "\n" for c in capsys.readouterr().out.strip("\r"))


@pytest.fixture(scope="module")
def hostile(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake with hostile names of files, ids, URLs, metadata, texts and reasons."""
    place = new_place("hostile")
    for number, name in enumerate((EVIL, f"b{EVIL}", "plain")):
        rows = [
            {"id": f"{EVIL}{number}-{k}", "url": f"http://a/{EVIL}", "text": text, "more": EVIL}
            for k, text in enumerate([f"{EVIL}\x00 {prose(number)} {EVIL}", prose(9), f"{EVIL}"])
        ]
        write_jsonl(place / "in" / f"{name}.jsonl", rows)
    (place / "in" / f"bad{EVIL}.parquet").write_bytes(b"PAR1 no PAR1")
    recipe = Recipe(
        name=f"evil{EVIL}",
        source={
            "path": str(place / "in"),
            "columns": {"id": "id", "url": "url"},
            "metadata": ["more"],
        },
        lake=str(place / "lake"),
        rejected={"text": True},
        stages=[
            "gopher_quality",
            {"where": {"name": EVIL, "keep": "num_words <> 93"}},
            "dedup_exact",
            {"tokenize": str(tiny_tokenizer)},
        ],
    )
    assert run(recipe, cluster=client).num_quarantined == 1
    return recipe


COMMANDS = {
    name: [
        str(p.metavar)
        for p in command.params
        if p.metavar in ("LAKE", "TABLE", "RECIPE", "LAKE...")
    ]
    for name, command in get_command(app).commands.items()
}
MORE: dict[str, list[str]] = {
    "diff": ["0", "1"],
    "drop": ["tokens"],
    "export": ["--to", "exported"],
    "init": ["--source", "SOURCE"],
    "release": ["first"],
    "replay": ["--seq-len", "16"],
    "run": ["--workers", "1"],
    "sample": ["-n", "1000"],
    "trace": ["--id", f"{EVIL}0-0"],
    "tune": ["--set", "gopher_quality.min_words=1"],
}
SKIPPED = ("certificates", "cluster", "dashboard", "logs", "submit", "warm")
"""Commands that read no input: the log of a driver has been escaped, and is again."""


def variants(name: str) -> Iterator[list[str]]:
    """Yield the options to try of a command: as text, and as JSON if it has that."""
    yield []
    options = [o for p in get_command(app).commands[name].params for o in p.opts]
    if "--json" in options:
        yield ["--json"]
    if "--log-format" in options:
        yield ["--log-format", "json"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SKIPPED])
def test_no_command_prints_a_hidden_character(
    hostile: Recipe, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake = copy(hostile.lake, UPath(tmp_path / f"lake{EVIL}"))
    recipe = hostile.model_copy(update={"lake": str(lake)})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), "utf-8")
    arguments = {"LAKE": str(lake), "LAKE...": str(lake), "TABLE": f"{lake}/documents"}
    words = [arguments.get(metavar, "recipe.yaml") for metavar in COMMANDS[name]]
    words += [word.replace("SOURCE", str(hostile.source.path)) for word in MORE.get(name, [])]
    shown: list[Any] = []
    for options in variants(name):
        result = etl(name, *words, *options)
        assert result.exit_code in (0, 1, 3), result.output
        assert not isinstance(result.exception, AttributeError | TypeError | UnicodeError)
        assert [c for c in result.output + result.stderr if is_hidden(c)] == []
        if options == ["--json"] and result.stdout:
            shown.append(json.loads(result.stdout))
    if name in ("sample", "trace"):
        assert any(EVIL in text for text in strings(shown))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (each for pair in value.items() for item in pair for each in strings(item))
    elif isinstance(value, list):
        yield from (each for item in value for each in strings(item))
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("encoding", ["utf-8", pytest.param("ascii", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "words",
    [
        ("trace", "LAKE", "--id", EVIL),
        ("show", f"LAKE/{EVIL}"),
        (EVIL,),
        ("run", f"{EVIL}.yaml"),
        ("run", "demo", "--lake", "l", "--set", f"{EVIL}=1"),
        ("run", "demo", f"--{EVIL}"),
        ("run", "demo", "--workers", EVIL),
        ("plan", "demo", "--lake", "l", "--source", f"near/{EVIL[:-2]}"),
        ("--debug", "run", f"{EVIL}.yaml"),
    ],
)
def test_errors_and_tracebacks_are_escaped(
    hostile: Recipe, words: tuple[str, ...], encoding: str, tmp_path: Path
) -> None:
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / f"{EVIL}.jsonl").touch()
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from etl.cli import main; main()"),
            *(word.replace("LAKE", str(hostile.lake)) for word in words),
        ],
        capture_output=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": f"{encoding}:backslashreplace"},
        check=False,
    )
    output = (done.stdout + done.stderr).decode("utf-8")
    assert done.returncode != 0
    assert done.stderr
    assert [c for c in output if is_hidden(c)] == []


def test_a_stream_writes_the_codes_of_the_program_only() -> None:
    plain = io.StringIO()
    stream = VisibleStream.of(VisibleStream.of(plain))
    stream.write_code("\x1b[1m")
    stream.write(EVIL)
    assert plain.getvalue().startswith("\x1b[1m\\u001b]0;owned")
    assert stream.getvalue() == plain.getvalue()  # type: ignore[operator]


def test_a_trace_of_a_hostile_id_has_the_id(hostile: Recipe) -> None:
    assert trace(str(hostile.lake), id=f"{EVIL}0-0")[0].id == f"{EVIL}0-0"
