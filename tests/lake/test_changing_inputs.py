"""Whatever happens to the files of a source between runs that die, each content is in the lake once."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.audit.verify.verify import verify
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.lake.ledger import Ledger
from tests.helpers.lake_rows import addresses, rows
from tests.helpers.paths import at
from tests.helpers.source_folder import SourceFolder

CONTENTS = [[f"{letter} {number}" for number in range(9)] for letter in "abc"] + [
    [f"{letter} long {number}" for number in range(20)] for letter in "de"
]
"""Texts of files, among them files of equal size."""

_NAMES = st.sampled_from(["one", "two", "three", "four"])
_CHANGES = st.one_of(
    st.tuples(st.just("write"), _NAMES, st.integers(0, len(CONTENTS) - 1)),
    st.tuples(st.sampled_from(["move", "copy", "link"]), _NAMES, _NAMES),
    st.tuples(st.sampled_from(["touch", "delete"]), _NAMES),
)
_RUNS = st.tuples(
    st.just("run"),
    st.sampled_from([8, 60, 1 << 20]),  # bytes per split
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 4)),  # commits before it dies
)


class _Death(BaseException):
    """The end of a driver."""


class _Files:
    """A source folder, the contents that its files have, and the lake."""

    def __init__(self, folder: SourceFolder, tmp: Path) -> None:
        self._source, self._folder = folder, tmp / "in"
        self._folder.mkdir()
        self._contents: dict[str, int] = {}

    def write(self, name: str, content: int) -> None:
        (self._folder / f"{name}.jsonl").unlink(missing_ok=True)
        self._source.write(f"{name}.jsonl", CONTENTS[content])
        self._contents[name] = content

    def move(self, name: str, target: str) -> None:
        if name in self._contents and name != target:
            self._path(name).replace(self._path(target))
            self._contents[target] = self._contents.pop(name)

    def copy(self, name: str, target: str) -> None:
        if name in self._contents and name != target:
            self.write(target, self._contents[name])

    def link(self, name: str, target: str) -> None:
        """Move a file out of the folder, and leave a link to it under another name."""
        if name in self._contents and name != target:
            outside = self._folder.parent / f"outside-{len([*self._folder.parent.iterdir()])}"
            outside.write_bytes(self._path(name).read_bytes())
            self._path(name).unlink()
            self._path(target).unlink(missing_ok=True)
            self._path(target).symlink_to(outside)
            self._contents[target] = self._contents.pop(name)

    def touch(self, name: str) -> None:
        if name in self._contents:
            self._path(name).touch()

    def delete(self, name: str) -> None:
        if name in self._contents:
            self._path(name).unlink()
            del self._contents[name]

    def run(
        self,
        split_bytes: int,
        replace_changed: bool,
        drop_missing: bool,
        deaths: int | None = None,
    ) -> None:
        if not self._contents:
            return
        self._source.source["split_bytes"] = split_bytes
        commit, commits = Ledger._commit, list[Ledger]()

        def die(ledger: Ledger, *args: object, **options: object) -> None:
            if deaths is not None and len(commits) == deaths:
                raise _Death
            commits.append(ledger)
            commit(ledger, *args, **options)

        with pytest.MonkeyPatch.context() as patch, suppress(_Death, MismatchError):
            patch.setattr(Ledger, "_commit", die)
            self._source.run(replace_changed=replace_changed, drop_missing=drop_missing)

    def check(self) -> None:
        if not self._contents:
            self.write("one", 0)
        self.run(60, replace_changed=True, drop_missing=False)
        self._check_reports()
        self.run(60, replace_changed=True, drop_missing=True)
        self._source.check(*(CONTENTS[number] for number in {*self._contents.values()}))
        assert not make_plan(self._source.recipe).has_work()

    def _check_reports(self) -> None:
        """Check that documents without texts are those that a plan and a verification report."""
        lake, plan = str(self._source.lake), make_plan(self._source.recipe)
        texts = {*addresses(rows(lake, "texts"))}
        lacking = [a for a in addresses(rows(lake, "documents")) if a not in texts]
        assert plan.missing.without_texts == len(lacking)
        assert plan.missing.incomplete == sorted({str(source) for source, _ in lacking})
        problems = verify(lake)
        assert all("without texts" in problem.what for problem in problems)
        assert sum(int(problem.what.split()[0]) for problem in problems) == len(lacking)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


_STEPS = st.lists(st.one_of(_CHANGES, _CHANGES, _RUNS), min_size=4, max_size=14)


@pytest.mark.local_only
@settings(max_examples=6)
@given(_STEPS)
# A run dies between the commits of documents and texts, and the file is deleted, moved or changed.
@example([("write", "one", 0), ("write", "two", 3), ("run", 8, False, False, 1), ("delete", "one")])
@example([("write", "one", 3), ("run", 1 << 20, False, False, 1), ("delete", "one")])
# A run dies between the commits of documents and texts of a file that has a copy.
@example([("write", "one", 0), ("write", "two", 0), ("run", 8, False, False, 1)])
@example(
    [
        ("write", "one", 0),
        ("write", "four", 0),
        ("run", 8, False, False, 1),
        ("move", "four", "one"),
    ]
)
def test_each_content_is_in_the_lake_once(
    tmp_path_factory: pytest.TempPathFactory,
    make_folder: Callable[..., SourceFolder],
    steps: list[tuple[object, ...]],
) -> None:
    _replay(tmp_path_factory.mktemp("changes"), make_folder, steps)


@pytest.mark.slow
@pytest.mark.local_only
@given(_STEPS)
def test_each_content_is_in_the_lake_once_after_many_changes(
    tmp_path_factory: pytest.TempPathFactory,
    make_folder: Callable[..., SourceFolder],
    steps: list[tuple[object, ...]],
) -> None:
    _replay(tmp_path_factory.mktemp("changes"), make_folder, steps)


def _replay(
    tmp: Path, make_folder: Callable[..., SourceFolder], steps: list[tuple[object, ...]]
) -> None:
    files = _Files(make_folder(at(str(tmp))), tmp)
    for name, *arguments in steps:
        getattr(files, str(name))(*arguments)
    files.check()
