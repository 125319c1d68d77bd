"""One case: damage a copy of a lake, and follow what `etl verify` and `etl repair` say until it is sound.

The expected outcome of each case:

1. ``etl verify`` finds the damage, or the lake has the content and the past of the undamaged one, or only
   the newest versions are missing, as if a run had been stopped: that is unfinished work, not a problem.
2. ``etl repair --yes`` repairs it, or its output or that of ``etl verify`` names one command that does.
3. After a run, ``etl verify`` finds nothing, and the rows equal the rows of the undisturbed lake, or after
   a rebuild the rows of a single run over all input files. A release has its rows, or its loss was
   reported. If rows of the compacted Delta table or of a moved file are read again, they have other
   addresses and another arrival: then the documents are the same, and the decisions are those that ``etl
   verify`` accepts. ``tokens_shuffled`` has these rows after a shuffle, which follows each run.
4. Another run has nothing to do.

No command raises anything but our own errors.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from distributed import Client
from typer.testing import Result

from etl.delta.table import Table
from etl.errors import TokenlakeError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.job.run_report import RunReport
from etl.job.shuffle import shuffle
from etl.job.units_to_do import UnitsToDo
from etl.lake.table_specs import SPECS
from etl.recipe.recipe import Recipe
from tests.damage.content import Content, Past, read_content, read_past
from tests.damage.history import UNREADABLE, Lakes
from tests.helpers.cli import etl
from tests.helpers.lake_rows import rows

Outcome = Literal["harmless", "unfinished", "repaired", "command", "wrong", "none"]

_COMMAND = re.compile(r"`(etl (?!repair|verify)[a-z]+[^`]*)`")
_READERS = (("report",), ("releases",), ("vacuum",))


def readers_of(kind: str) -> Sequence[tuple[str, ...]]:
    """Return commands that read files of a kind, each with its table; they must not fail with a traceback."""
    table = kind.partition(" ")[0]
    if kind.endswith(" data"):
        return [("duplicates",)] if table in ("documents", "texts", "duplicates") else []
    return [*_READERS, ("history", table)] if table in SPECS else _READERS


class WrongError(Exception):
    """A case has a wrong outcome: the reason."""


@dataclass
class Case:
    """A damaged copy of a lake."""

    recipe: Recipe
    client: Client
    lake: Path
    was_killed: bool  # in its first run, so that a single run may read everything again
    undamaged: Callable[[], tuple[Content, Past]]
    expected: Callable[[], Content]  # after a run
    at_once: Callable[[], Content]  # of a single run
    readers: Sequence[tuple[str, ...]]
    is_moved: bool  # files are read again that have other addresses by now
    said: list[str] = field(default_factory=list)  # what the commands printed

    def check(self, *, is_quick: bool) -> Outcome:
        """Repair the lake as its commands say; ``is_quick``: whether ``verify --quick`` must find it."""
        found = self._etl("verify", self.lake)
        for command, *table in self.readers:
            self._etl(command, self.lake.joinpath(*table), is_said=False)
        if found.exit_code == 0:
            is_unfinished = self._check_harmless()
            if self._has_work():
                self._run()
                self._check_sound(may_be_at_once=False)
            return "unfinished" if is_unfinished else "harmless"
        if is_quick and self._etl("verify", self.lake, "--quick").exit_code == 0:
            raise WrongError(f"verify --quick finds nothing; verify: {_first_line(found)}")
        repaired = self._etl("repair", self.lake, "--yes")
        if repaired.exit_code:
            self._follow(repaired, found)
        if self._has_work():
            self._run()
        self._check_sound(may_be_at_once=repaired.exit_code != 0)
        if self._has_work():
            raise WrongError("another run has something to do")
        return "command" if repaired.exit_code else "repaired"

    def _etl(self, *words: object, is_said: bool = True) -> Result:
        """Run a command; raise WrongError if it raises another error than ours."""
        result = etl(*words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise WrongError(
                f"etl {words[0]} raises {_describe(result.exception)}"
            ) from result.exception
        if is_said:
            self.said.append(result.output)
        return result

    def _check_harmless(self) -> bool:
        """Check that nothing is lost but the newest versions; return whether any are."""
        try:
            content, past = read_content(self.lake), read_past(self.lake)
        except Exception as error:
            raise WrongError(
                f"verify finds nothing, but reading raises {_describe(error)}"
            ) from error
        content_before, past_before = self.undamaged()
        different = [*content.differences(content_before), *past.differences(past_before)]
        if content.releases != content_before.releases:
            different.append("releases")
        is_unfinished = content.is_part_of(content_before) and past.is_part_of(past_before)
        if different and not is_unfinished:
            shown = ", ".join(different[:6])
            raise WrongError(f"verify finds nothing, but {len(different)} parts differ: {shown}")
        return bool(different)

    def _follow(self, repaired: Result, found: Result) -> None:
        """Run the one command that the output of repair, or else of verify, names."""
        for output in (repaired.output, found.output):
            named = set(_COMMAND.findall(output))
            # A plain run follows each repair, and is itself the command if there is no other.
            if commands := {command for command in named if "--" in command} or named:
                break
        if len(commands) != 1:
            what = f"names {len(commands)} commands" if commands else "names no command"
            raise WrongError(f"repair fails and {what}; verify: {_first_line(found)}")
        (command,) = commands
        words = shlex.split(command)[1:]
        if words[0] == "run":
            self._run(rebuild="--rebuild" in words, replace_changed="--replace-changed" in words)
            return
        places = {"LAKE": str(self.lake)}
        result = self._etl(*(places.get(word, word) for word in words))
        if result.exit_code:
            raise WrongError(f"{command} fails: {_first_line(result)}")

    def _run(self, *, rebuild: bool = False, replace_changed: bool = False) -> RunReport:
        name = "run --rebuild" if rebuild else "run"
        try:
            report = run(
                self.recipe, cluster=self.client, rebuild=rebuild, replace_changed=replace_changed
            )
            name = "shuffle"
            shuffle(str(self.lake), cluster=self.client)
        except TokenlakeError as error:
            raise WrongError(f"{name} fails: {_one_line(str(error))}") from error
        except Exception as error:
            raise WrongError(f"{name} raises {_describe(error)}") from error
        return report

    def _check_sound(self, *, may_be_at_once: bool) -> None:
        """Check that the lake has the expected rows, and that ``etl verify`` finds nothing."""
        wrong: list[str] = []
        found = self._etl("verify", self.lake, is_said=False)
        content = self._read()
        different = content.differences(self.expected())
        may_be_at_once |= self.was_killed
        is_same = not different or (may_be_at_once and not content.differences(self.at_once()))
        if not is_same and not (self.is_moved and content.has_documents_of(self.expected())):
            wrong.append(f"other rows in {', '.join(different)}")
        for name, tables in self.expected().releases.items():
            if content.releases.get(name) != tables and not any(name in text for text in self.said):
                wrong.append(f"the release {name} has other rows, which nothing reports")
        if found.exit_code:
            wrong.append(f"after the run, verify says: {_first_line(found)}")
        if wrong:
            raise WrongError("; ".join(wrong))

    def _read(self) -> Content:
        try:
            return read_content(self.lake)
        except Exception as error:
            raise WrongError(f"after the run, reading raises {_describe(error)}") from error

    def _has_work(self) -> bool:
        """Return whether a run or a shuffle would change more than the note of the unreadable file."""
        try:
            plan = make_plan(self.recipe)
        except TokenlakeError:
            return True  # a run fails with the error
        files = {split.uri.rpartition("/")[2] for split in plan.splits}
        if not any(self.lake.glob("quarantine/*.json")):
            return True  # its note was lost
        if (
            plan.begin
            or plan.changed
            or plan.doubts
            or files - {UNREADABLE}
            or plan.units != UnitsToDo()
        ):
            return True
        shuffled = ("tokens", "tokens_shuffled")
        if not all(Table.exists(str(self.lake / name)) for name in shuffled):
            return True
        first, second = (rows(str(self.lake), name) for name in shuffled)
        return first != second


@contextmanager
def copied(lakes: Lakes, name: str, folder: Path) -> Iterator[Path]:
    """Copy a lake with the times of its files; its live leases are renewed."""
    lake = shutil.copytree(lakes.folder_of(name), folder / "lake")
    for path in lake.glob("leases/*"):
        if path.name in lakes.live_leases:
            os.utime(path)
    yield lake
    shutil.rmtree(lake)


def _describe(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    code = None if frame is None else frame.tb_frame.f_code
    where = "" if code is None else f" in {Path(code.co_filename).name}:{code.co_name}"
    return f"{type(error).__name__}{where}: {_one_line(str(error))}"


def _first_line(result: Result) -> str:
    lines = [line for line in result.output.splitlines() if line]
    lines.sort(key=lambda line: not line.startswith(("not repaired", "error")))
    more = f" (and {len(lines) - 1} lines)" if len(lines) > 1 else ""
    return _one_line(lines[0] if lines else "nothing") + more


def _one_line(text: str, limit: int = 240) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}..."
