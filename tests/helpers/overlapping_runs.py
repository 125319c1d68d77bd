"""Runs that are killed at a commit, or begin and end right before a commit of another run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pytest
from hypothesis import strategies as st

from etl.delta import table as delta_table
from etl.errors import ConflictError, MismatchError

Run = Callable[[], object]

LOST = (
    "another process has dropped or rebuilt rows",
    "another run has changed the recipe of this lake",
    "another run has just created this table",
    "different recipe",
)
"""What the errors of runs say that have lost against another run."""


Job = Literal["old recipe", "change back", "new recipe", "same change"]
"""A run of the recipe before or after a change; the second and the last are changes themselves."""


@dataclass(frozen=True)
class Overlap:
    """A run beside a change: the inner one of both begins and ends before a commit of the outer one."""

    job: Job
    commit: int  # of the outer run, from 1
    is_outer: bool  # whether the job is the outer run, not the change
    adds_file: bool  # before the job
    kill: int  # the commits that the inner run makes


def overlaps(commits: int) -> st.SearchStrategy[Overlap]:
    """Return overlaps at one of some first commits, with kills among twice as many."""
    kills = st.just(10 * commits) | st.integers(0, 2 * commits)
    inner = st.builds(
        Overlap,
        job=st.sampled_from(get_args(Job)),
        commit=st.integers(1, commits),
        is_outer=st.just(value=False),
        adds_file=st.booleans(),
        kill=kills,
    )
    # A run of a recipe that the lake does not have yet is refused before it commits.
    outer = st.builds(
        Overlap,
        job=st.sampled_from(["old recipe", "change back"]),
        commit=st.integers(1, (commits + 1) // 2),
        is_outer=st.just(value=True),
        adds_file=st.just(value=True),
        kill=kills,
    )
    return inner | outer


class KilledError(Exception):
    """What kills a run at a commit."""


@contextmanager
def before_commits(
    call: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Call a function with the number of each commit, right before it; it may run what commits, too."""
    write, count = delta_table.write_commit, 0

    def write_after(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        with monkeypatch.context() as patch:
            patch.setattr(delta_table, "write_commit", write)
            call(count)
        return write(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(delta_table, "write_commit", write_after)
        yield


@contextmanager
def killed_at(commit: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commits fail from a number on, as if the process had been killed before them."""

    def kill(number: int) -> None:
        if number > commit:
            raise KilledError

    with before_commits(kill, monkeypatch):
        yield


def run_overlapping(
    outer: Run, inner: Run, overlap: Overlap, kill: int, monkeypatch: pytest.MonkeyPatch
) -> Sequence[str]:
    """Run two runs as an overlap says, and return the errors of the losers.

    The outer one is killed when it has made ``kill`` commits since the inner one.
    """
    errors: list[str] = []

    def begin(number: int) -> None:
        if number > overlap.commit + kill:
            raise KilledError
        if number == overlap.commit:
            with killed_at(overlap.kill, monkeypatch):
                errors.extend(_errors(inner))

    with before_commits(begin, monkeypatch):
        errors.extend(_errors(outer))
    return errors


def _errors(one: Run) -> Iterator[str]:
    """Run, and yield the error if the run has lost against another."""
    try:
        with suppress(KilledError):
            one()
    except (MismatchError, ConflictError) as error:
        yield str(error)
