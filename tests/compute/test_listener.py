"""One listener follows whatever takes time; a terminal and a notebook show the same lines of it."""

import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

import etl
from etl.compute import missing_workers, print_listener
from etl.compute.listener import Listener, Progress
from etl.compute.print_listener import PrintListener, progress_line
from etl.recipe.recipe import Recipe
from etl.text_width import text_width
from tests.helpers.listeners import Calls, Recorder


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A scheduler that no worker has joined."""
    monkeypatch.setattr(missing_workers, "_PATIENCE", 0.5)
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.mark.parametrize("connects", [lambda cluster: cluster.scheduler_address, Client])
def test_a_run_without_workers_says_so_and_continues_when_one_joins(
    scheduler: LocalCluster, recipe: Recipe, connects: Callable[[LocalCluster], Any]
) -> None:
    notes: list[str] = []

    def add_worker(text: str) -> None:
        if text.startswith("workers "):
            notes.append(text)
            scheduler.scale(1)

    assert etl.run(recipe, cluster=connects(scheduler), listener=Calls(note=add_worker)).ok
    assert re.fullmatch(r"workers    none yet after \d+ s", notes[0])


def test_a_run_and_a_shuffle_pass_everything_to_their_listener(
    process_client: Client, recipe: Recipe, place: UPath
) -> None:
    assert process_client.scheduler is not None
    address = process_client.scheduler.address
    addresses: list[str] = []

    class Both(Recorder):
        def connected(self, client: Client) -> None:
            assert client.scheduler is not None
            addresses.append(client.scheduler.address)

    for compute in (
        lambda each: etl.run(recipe, cluster=address, listener=each),
        lambda each: etl.shuffle(str(recipe.lake), cluster=address, listener=each),
    ):
        listener = Both()
        compute(listener)
        assert any(line.startswith("dashboard  http://") for line in listener.lines)
        assert listener.seen[-1].done == listener.seen[-1].total
    assert addresses == [address] * 2


def test_an_error_of_a_listener_ends_the_run(process_client: Client, recipe: Recipe) -> None:
    class Broken(Listener):
        def progress(self, progress: Progress) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        etl.run(recipe, cluster=process_client, listener=Broken())
    assert etl.run(recipe, cluster=process_client).ok


def test_a_listener_that_has_one_method_gets_every_line() -> None:
    listener = Recorder()
    listener.status("a")
    listener.note("b")
    listener.warning("c")
    listener.waiting("https://s3", 5.0)
    listener.compiling("words", 1, 2)
    assert listener.lines == [
        *("a", "b", "warning: c", "waiting for https://s3: no answer for 5s"),
        "kernel 1 of 2: words",
    ]


def test_a_terminal_shows_about_how_long_kernels_take() -> None:
    stream = io.StringIO()
    listener = PrintListener(stream)
    for number in (3, 4, 5):
        listener.compiling("words", number, 28)
    first, *rest = stream.getvalue().splitlines()
    assert first == "kernel 3 of 28: words"
    assert rest == [f"kernel {number} of 28, about 0s left: words" for number in (4, 5)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(written: str) -> list[str]:
    """Return the lines that are visible after a text was written, as a terminal and a notebook do it."""
    lines: list[list[str]] = [[]]
    column = 0
    for code in re.findall(r"\x1b\[K|.", written, re.DOTALL):
        cells = lines[-1]
        if code == "\n":
            lines.append([])
            column = 0
        elif code == "\r":
            column = 0
        elif code == "\x1b[K":
            del cells[column:]
        else:
            wide = text_width(code)
            cells.extend(" " * (column + wide - len(cells)))
            cells[column : column + wide] = [code, ""][:wide]
            column += wide
    return ["".join(cells).rstrip() for cells in lines]


def shown(events: Sequence[tuple[str, Any]], *, in_notebook: bool) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "500")
        patch.setattr(print_listener, "_NOTEBOOK_SECONDS", 0.0)
        patch.setattr(print_listener, "_TERMINAL_SECONDS", 0.0)
        stream = io.StringIO() if in_notebook else Terminal()
        if in_notebook:
            patch.setitem(sys.modules, "ipykernel", sys)
            patch.setattr(sys, "stdout", stream)
        with PrintListener(None if in_notebook else stream) as listener:
            for name, value in events:
                getattr(listener, name)(value)
    return screen(stream.getvalue())


LINES = st.text("ab  語\t\n", min_size=1)
COUNTS = st.integers(0, 10**6)
STEPS = st.builds(
    Progress,
    st.sampled_from(["documents", "duplicates", "tokens"]),
    done=COUNTS,
    total=COUNTS,
    rows=COUNTS,
    kept=COUNTS,
    text_bytes=COUNTS,
    failed=st.integers(0, 3),
    seconds=st.just(0.0) | st.floats(0.001, 1e6),
    compile_seconds=st.just(0.0) | st.floats(0.001, 1e6),
)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["status", "note", "warning"]), LINES),
    st.tuples(st.just("progress"), STEPS),
)


@given(st.lists(EVENTS))
def test_a_notebook_shows_what_a_terminal_shows(events: list[tuple[str, Any]]) -> None:
    visible = shown(events, in_notebook=True)
    assert visible == shown(events, in_notebook=False)
    notes = [value for name, value in events if name == "note"]
    assert len(visible) > len(notes)


def test_the_rate_leaves_out_the_time_in_which_kernels_were_compiled() -> None:
    progress = Progress(
        "documents", 4, 4, rows=3000, kept=9, text_bytes=10**7, seconds=62.0, compile_seconds=60.0
    )
    line = "documents   4/4 splits  kept 9 of 3,000  1,500 docs/s  5.0 MB/s"
    assert progress_line(progress) == line
    assert shown([("progress", progress)], in_notebook=True) == [line, ""]


def test_a_notebook_shows_a_run_by_default_and_a_script_does_not(
    process_client: Client,
    recipe: Recipe,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etl.run(recipe, cluster=process_client)
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    etl.run(recipe, cluster=process_client, rebuild=True)
    etl.shuffle(str(recipe.lake), cluster=process_client)
    printed = capsys.readouterr().out
    assert "workers    starting" in printed
    steps = [line.split()[0] for line in screen(printed) if line]
    assert {"documents", "tokens", "tokens_shuffled"} <= {*steps}


def test_progress_is_rewritten_at_intervals_and_its_end_always_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    listener = PrintListener()
    for done in (1, 2, 3):  # the second is too soon
        listener.progress(Progress("documents", done, 3, rows=1000 * done, kept=900))
    printed = capsys.readouterr().out
    assert "2/3" not in printed
    assert "1/3" in printed
    assert screen(printed) == ["documents   3/3 splits  kept 900 of 3,000", ""]
