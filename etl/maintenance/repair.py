"""Repair a lake: restore logs, undo changes by other programs, drop damaged data for the next run to rebuild.

First the logs are restored from their sound files (``restore_logs``). Then changes of data by other
programs are undone: data files that they added are removed, and those that they removed are added again if
they exist.

`etl verify` names the damaged data files. Repair undoes the units of work behind them and all that was
derived from these units (``undo_units``). The next run reads, deduplicates and tokenizes only these units.
The table ``keys`` is rebuilt. A repair starts an epoch of the lake: see ``etl.lake.lake_epochs``.

The next run restores the same rows and decisions if the recipe's libraries have not changed: documents keep
their arrival.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from etl import storage
from etl.audit.verify.log_checks import check_logs
from etl.audit.verify.small_file_checks import REMOVABLE, check_removable_files
from etl.audit.verify.verify import Problem, verify
from etl.delta import vacuum_records
from etl.delta.table import Table
from etl.html.card import Shown
from etl.lake import releases
from etl.lake.finished_versions import FOLDER as FINISHED
from etl.lake.finished_versions import restore_finished
from etl.lake.jobs import Job, JobIdentity, hold_job
from etl.lake.vacuums import refuse_during_vacuum
from etl.maintenance.restore_logs import restore_logs
from etl.maintenance.undo_units import Undo, UnrepairedProblem, unrepaired
from etl.maintenance.vacuumed_versions import restore_record

__all__ = ["Problem", "Repair", "UnrepairedProblem", "repair"]

_MAX_ROUNDS = 10  # each repairs what the one before has uncovered


@dataclass(kw_only=True, repr=False)
class Repair(Shown):
    """What a repair changes, or would change, and the problems that it cannot repair."""

    lake: str
    done: bool
    problems: list[Problem] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)  # tables whose logs are restored
    files: list[str] = field(default_factory=list)  # small files that are removed or written again
    restored: dict[str, list[str]] = field(default_factory=dict)  # table -> data files
    dropped: dict[str, list[str]] = field(default_factory=dict)  # table -> data files
    sources: list[str] = field(default_factory=list)  # input files to read again, in part or whole
    left: list[UnrepairedProblem] = field(default_factory=list)
    lost: list[UnrepairedProblem] = field(
        default_factory=list
    )  # of these, what is dropped for good

    @property
    def has_changes(self) -> bool:
        """Whether the repair changes anything."""
        return bool(self.logs or self.files or self.restored or self.dropped)


def repair(lake: str, *, drop: bool = False) -> Repair:
    """Find what can be repaired, and repair it if ``drop`` is set.

    Without ``drop``, damage of logs and changes by other programs hide what may be behind them. Raises
    TableError for a URL without a lake, ConflictError if another process commits concurrently.
    """
    url = storage.normalize(lake)
    result = Repair(lake=url, done=drop)
    with hold_job(JobIdentity(lake=url, kind="repair")) if drop else nullcontext() as job:
        for _ in range(_MAX_ROUNDS):
            if not _repair_once(url, job, result) or job is None:
                break
    return result


def _repair_once(lake: str, job: Job | None, result: Repair) -> bool:
    """Repair what can be repaired at once; return whether there may be more to repair."""
    logs = check_logs(lake)
    is_empty = not logs.tables and bool(result.logs)  # no log had a sound entry
    is_readable = not (logs.damage or is_empty)
    problems = verify(lake) if is_readable else [*logs.problems, *check_removable_files(lake)]
    result.problems += [problem for problem in problems if problem not in result.problems]
    small = [problem for problem in problems if _is_small(problem)]
    if job is not None and (logs.damage or any(map(_is_vacuumed, small))):
        refuse_during_vacuum(lake, job.lease, "files of the versions that the logs still have")
    _repair_small_files(lake, small, result)
    if logs.damage:
        result.logs += [name for name in logs.damage if name not in result.logs]
        if job is not None:
            restore_logs(lake, logs, job)
        if logs.newest_record is None:  # no log had a sound entry: only releases name versions
            names = [release.name for release in releases.read_releases(lake)[0]]
            result.left = [unrepaired(lake, _lost_release(name)) for name in names]
            return not names
        return True
    if is_empty:
        return False
    is_foreign = any(problem.is_foreign for problem in problems)
    others = [problem for problem in problems if not (problem in small or problem.is_foreign)]
    undo = Undo(lake, others, is_foreign=is_foreign)
    result.left = [*result.lost, *undo.left]
    if undo.has_any and job is not None:
        undo.commit(job)
    _extend(result.restored, {name: table.restored for name, table in undo.tables.items()})
    _extend(result.dropped, {name: table.dropped for name, table in undo.tables.items()})
    result.sources = sorted({*result.sources, *undo.sources})
    if is_foreign:
        result.lost += undo.left
    # Foreign changes hide other problems, and lost rows may have hidden what depends on them.
    return is_foreign or (undo.has_any and bool(result.logs))


def _is_small(problem: Problem) -> bool:
    """Return whether a problem is one of a small file that can be removed or written again."""
    is_restored = problem.table == releases.FOLDER and problem.release is None
    is_removable = problem.table in (*REMOVABLE, FINISHED)
    return is_removable or _is_vacuumed(problem) or is_restored


def _is_vacuumed(problem: Problem) -> bool:
    """Return whether a problem is one of a record of a vacuum, or of its copy."""
    return (problem.file or "").startswith(f"{vacuum_records.FOLDER}/")


def _repair_small_files(lake: str, problems: Iterable[Problem], result: Repair) -> None:
    for problem in problems:
        name = f"{problem.table}/{problem.file}"
        result.files += [name] if name not in result.files else []
        if not result.done:
            continue
        if _is_vacuumed(problem):
            key = PurePosixPath(str(problem.file)).stem.rpartition("-")[2]
            restore_record(Table.open(storage.join(lake, problem.table)), key)
        elif problem.table == FINISHED:
            restore_finished(lake)
        elif problem.table == releases.FOLDER:
            releases.restore_release(lake, PurePosixPath(name).stem)
        else:
            storage.remove(storage.join(lake, name))


def _extend(files: dict[str, list[str]], more: Mapping[str, Iterable[str]]) -> None:
    """Add paths by table, each once and in order."""
    for name, paths in more.items():
        if merged := sorted({*files.get(name, ()), *paths}):
            files[name] = merged


def _lost_release(name: str) -> Problem:
    return Problem(releases.FOLDER, f"{name}.json", "its versions are lost", release=name)
