"""What commands print on a real terminal: folded to its width and with bold labels; plain in pipes."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from etl.compute.listener import Progress
from etl.compute.print_listener import PrintListener
from etl.recipe.recipe import Recipe
from tests.helpers.cli import ROOT, etl

CODE = "from etl.cli import main; main()"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*words: object, width: int, **environment: str) -> list[str]:
    """Run a command on a terminal of some width, and return the lines of stdout and stderr."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    known = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, words)],
        env={**known, "PYTHONPATH": str(ROOT), **environment},
        stdout=slave,
        stderr=slave,
        stdin=slave,
    )
    os.close(slave)
    output = b""
    while chunk := _read(master):
        output += chunk
    process.wait()
    os.close(master)
    return output.decode().replace("\r\n", "\n").splitlines()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # Linux: the process has ended
        return b""


@pytest.mark.parametrize(
    "words", [("report",), ("sample", "--reason", "gopher_quality", "-n", "2")]
)
def test_lines_fit_a_narrow_terminal(made: Recipe, words: tuple[str, ...]) -> None:
    command, *options = words
    lines = [STYLE.sub("", line) for line in on_terminal(command, made.lake, *options, width=60)]
    long = [line for line in lines if len(line) > 60]
    assert [line for line in long if len(line.split()) > 1] == []  # long words can be copied


def test_help_and_errors_fit_a_terminal_of_40_columns(made: Recipe) -> None:
    for words in (
        ("--help",),
        ("vacuum", "--help"),
        ("trace", made.lake, "--id", "no-such-document"),
        ("run", "demo", "--lake", "lake", "--set", "gopher_quality.min_wods=3"),
    ):
        lines = [STYLE.sub("", line) for line in on_terminal(*words, width=40)]
        assert len(lines) > 2
        assert [line for line in lines if len(line) > 40 and len(line.split()) > 1] == []


def test_tables_are_folded_and_labels_are_bold(made: Recipe) -> None:
    lines = on_terminal("report", made.lake, width=60)
    assert "\x1b[1mkept\x1b[0m        " in "\n".join(lines)
    sources = [number for number, line in enumerate(lines) if line.endswith("crawl/a.parquet")]
    assert lines[sources[0] + 1].split()[0] == "100"
    plain = on_terminal("report", made.lake, width=200, NO_COLOR="1")
    assert not any("\x1b" in line for line in plain)
    assert any(re.search(r"crawl/a.parquet +100 ", line) for line in plain)


def test_a_table_that_is_too_wide_has_a_line_for_each_cell(made: Recipe) -> None:
    lines = [
        STYLE.sub("", each) for each in on_terminal("history", f"{made.lake}/tokens", width=60)
    ]
    assert lines[0].startswith("version  ")
    assert re.fullmatch(r"  time \(UTC\)  \d{4}-.*", lines[1])
    assert max(map(len, lines)) <= 60


def test_the_progress_leaves_out_what_does_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with PrintListener(sys.stderr) as line:
        line.progress(Progress("documents", 1, 4, rows=3000, kept=2000, text_bytes=10, seconds=2.0))
    (shown,) = re.findall(r"\r\x1b\[K(.*)", capsys.readouterr().err)
    assert shown == "documents   1/4 splits  6s left  kept 2,000 of 3,000"


def test_an_error_is_coloured_on_a_terminal_only() -> None:
    [first, *_] = on_terminal("report", "/no/lake", width=80)
    assert first.startswith("\x1b[31m\x1b[1merror:\x1b[0m ")
    assert etl("report", "/no/lake").stderr.startswith("error: ")
    [first, *_] = on_terminal("report", "/no/lake", width=80, NO_COLOR="1")
    assert first.startswith("error: ")
