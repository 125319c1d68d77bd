"""Commands that are stopped, or cannot start, print a message, leave no process, and show no traceback."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.helpers.cli import ROOT, etl
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.paths import at

CODE = """
import fcntl, signal, termios
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from etl.cli import main
main()
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    """Return a recipe over one file."""
    write_jsonl(at(tmp_path / "in" / "a.jsonl"), records(0, 10))
    file = tmp_path / "web.yaml"
    file.write_text(
        "name: web\nsource: {path: in, columns: {text: body}}\nlake: lake\nstages: []\n"
    )
    return file


@pytest.mark.parametrize(
    ("limit", "message"), [("lots", "is not a number of bytes"), ("50MB", "at least 512MiB")]
)
def test_a_wrong_memory_limit_is_an_error(recipe_file: Path, limit: str, message: str) -> None:
    result = etl("run", recipe_file, "--memory-limit", limit)
    assert result.exit_code == 1
    assert f"the memory limit '{limit}'" in result.stderr
    assert message in result.stderr
    assert "hint: write, for example, 2GiB" in result.stderr


def test_a_dashboard_that_cannot_listen_is_an_error(recipe_file: Path) -> None:
    result = etl("run", recipe_file, "--dashboard", "nowhere.invalid:0")
    assert result.exit_code == 1
    assert "error: the workers on this machine did not start" in result.stderr
    assert "check --dashboard" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["input ", "workers ", "dashboard "])
def test_ctrl_c_ends_a_run_and_its_workers(recipe_file: Path, moment: str) -> None:
    with Terminal("run", str(recipe_file), "--workers", "2") as terminal:
        terminal.read_until(moment)
        terminal.write(b"\x03")
        code, output = terminal.wait()
    assert code == 128 + signal.SIGINT, output
    assert "interrupted: commits are kept; run the same command to continue" in output
    assert "Traceback" not in output
    assert "Error" not in output
    _wait_for_end_of(terminal.session)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["workers ", "dashboard "])
def test_sigterm_ends_a_run_and_its_workers(recipe_file: Path, moment: str) -> None:
    with Terminal("run", str(recipe_file), "--workers", "2") as terminal:
        terminal.read_until(moment)
        os.kill(terminal.session, signal.SIGTERM)
        code, output = terminal.wait()
    assert code == 128 + signal.SIGTERM, output
    assert "terminated: commits are kept; run the same command to continue" in output
    assert "Traceback" not in output
    _wait_for_end_of(terminal.session)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_whose_workers_compile(
    recipe_file: Path, number: signal.Signals, tmp_path: Path
) -> None:
    words = ("run", str(recipe_file), "--workers", "1", "--set", 'stages=["gopher_quality"]')
    with Terminal(*words, NUMBA_CACHE_DIR=str(tmp_path / "cache")) as terminal:
        terminal.read_until("compiling kernels")
        terminal.signal(number)
        code, output = terminal.wait()
    assert code == 128 + number, output
    assert "Traceback" not in output
    _wait_for_end_of(terminal.session)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_compilation_of_all_kernels(
    number: signal.Signals, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with Terminal("warm", "--workers", "1", NUMBA_CACHE_DIR=str(cache)) as terminal:
        while not [*cache.glob("*/*.lock")]:
            time.sleep(0.1)
        terminal.signal(number)
        code, output = terminal.wait()
    assert code == 128 + number, output
    assert "Traceback" not in output
    assert "Compiling kernels" not in output, "it has not waited for a part of the work"
    _wait_for_end_of(terminal.session)


def test_ctrl_c_ends_a_wait_although_polars_handles_it() -> None:
    code = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from etl.cli.stops import stoppable
with stoppable():
    import polars
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_a_script_needs_no_main_guard(recipe_file: Path) -> None:
    script = recipe_file.with_name("script.py")
    script.write_text(
        textwrap.dedent(
            f"""
            import etl

            print("started")
            recipe = etl.Recipe.load({str(recipe_file)!r})
            print(etl.run(recipe, cluster=etl.Cluster(workers=1)).rows, "rows")
            """
        )
    )
    result = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.stderr == ""
    assert result.stdout == "started\n10 rows\n"


class Terminal:
    """A command in its own session, with a terminal that turns Ctrl-C into a signal."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CODE, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.session = self._process.pid
        self._output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def write(self, data: bytes) -> None:
        """Type something."""
        os.write(self._master, data)

    def signal(self, number: signal.Signals) -> None:
        """Type Ctrl-C, which reaches all processes, or send another signal to the command."""
        if number == signal.SIGINT:
            self.write(b"\x03")
        else:
            os.kill(self.session, number)

    def read_until(self, text: str) -> None:
        """Read until the command has written a text."""
        for _ in self._chunks():
            if text in self._output:
                return
        raise AssertionError(f"{text!r} was not written: {self._output}")

    def wait(self) -> tuple[int, str]:
        """Return the exit code, and all that was written."""
        for _ in self._chunks():
            pass
        return self._process.wait(timeout=120), self._output

    def _chunks(self) -> Iterator[None]:
        while True:
            try:
                chunk = os.read(self._master, 1 << 16)
            except OSError:  # all processes have closed it
                return
            self._output += chunk.decode(errors="replace")
            yield


def _wait_for_end_of(session: int) -> None:
    """Wait until no process of a session runs, apart from those that no parent has waited for."""
    for _ in range(600):
        if not _running_in(session):
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {_running_in(session)}")


def _running_in(session: int) -> list[str]:
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, in_session, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            command = (process / "cmdline").read_text()
        except OSError:  # it has just ended
            continue
        if int(in_session) == session and state != "Z":
            running.append(command)
    return running
