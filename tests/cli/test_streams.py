"""Closed standard streams, pipes whose reader has ended, and encodings without most characters."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.cli.json_text import json_text
from etl.recipe.recipe import Recipe
from etl.visible_text import VisibleStream
from tests.helpers.cli import ROOT, etl, start

MAIN = [sys.executable, "-c", "from etl.cli import main; main()"]
BROKEN_PIPE = 141  # as git and other programs that SIGPIPE ends
COMMANDS = [
    "--help",
    "--version",
    "run --help",
    "stages --json",
    "recipes demo",
    "schema",
    "report LAKE",
    "report LAKE --json",
    "show LAKE/tokens --limit 1",
    "lineage LAKE/tokens --openlineage",
    "verify LAKE",
    "tune LAKE --set gopher_quality.min_words=2",
]


def shell(line: str, lake: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, in which ``etl`` is the command and LAKE the lake; the exit code is of ``etl``."""
    script = f'etl() {{ "${{MAIN[@]}}" "$@"; }}; MAIN=("${{@}}"); {line}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", script.replace("LAKE", str(lake)), "bash", *MAIN],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.local_only
@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_whose_reader_has_ended_ends_quietly(words: str, made: Recipe) -> None:
    done = shell(f"etl {words} | true", made.lake)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


@pytest.mark.local_only
@pytest.mark.parametrize("words", COMMANDS)
def test_closed_streams_are_as_the_null_device(words: str, made: Recipe) -> None:
    done = shell(f"etl {words} <&- >&-", made.lake)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["report /no/lake", "report --no-such-option"])
def test_an_error_that_nobody_reads_has_its_exit_code(words: str) -> None:
    expected = etl(*words.split())
    done = shell(f"etl {words} 2>&- >&-", "")
    assert done.returncode == expected.exit_code != 0
    assert shell(f"etl {words} 2>&1 >/dev/null | true", "").returncode == BROKEN_PIPE


def error_of_a_run(made: Recipe, folder: Path, lake: object) -> str:
    """Return the error of a run whose cluster does not exist, which is another error, and found later.

    It runs in a new process: fsspec keeps the credentials with which this one first opened a store.
    """
    (folder / "recipe.yaml").write_text(made.model_dump_json(exclude_unset=True))
    nowhere = ("--cluster", "tcp://127.0.0.1:1")
    process = start("run", folder / "recipe.yaml", "--lake", lake, *nowhere)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    return error


@pytest.mark.local_only
def test_a_lake_that_cannot_be_written_is_found_before_workers_start(
    made: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "leases").touch()  # a file where a folder is needed: refused for root, too
    assert "the lake cannot be written" in error_of_a_run(made, tmp_path, tmp_path / "lake")


def test_a_bucket_that_cannot_be_written_is_found_before_workers_start(
    made: Recipe, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reader-secret")
    assert "cannot be written (Access Denied.)" in error_of_a_run(made, tmp_path, f"{s3}/lake")


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = (
        "from etl.cli.streams import open_streams\n"
        "open_streams()\n"
        "data = open('data', 'wb')\n"
        "import os\n"
        "os.write(1, b'written by a library'); os.write(2, b'another'); os.read(0, 1)\n"
        "data.write(b'rows')\n"
    )
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
    assert (tmp_path / "data").read_bytes() == b"rows"


@given(text=st.text(), encoding=st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_json_keeps_its_meaning_in_every_encoding(text: str, encoding: str) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    VisibleStream(stream).write(json_text({"text": text}))
    stream.flush()
    assert json.loads(written.getvalue().decode(encoding)) == {"text": text}


@pytest.mark.local_only
def test_a_tree_has_branches_of_ascii_where_others_cannot_be_written(made: Recipe) -> None:
    plain = shell("etl lineage LAKE/tokens", made.lake, PYTHONIOENCODING="ascii").stdout
    assert "\n|- " in plain
    assert "\n`- " in plain
    assert "\\u" not in plain
    assert "├─ " in shell("etl lineage LAKE/tokens", made.lake, PYTHONIOENCODING="utf-8").stdout
