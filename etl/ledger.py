"""Exactly once: which units of work are done in a table, and the commit of more.

The Delta log is the progress store. Each commit carries one application transaction (``txn``) per unit
of work, named by the unit's key, so that the rows of a unit and the note that it is done become visible
together. A key hashes all that decides the rows: the table's generation, the recipe's fingerprint, and
the identity of the input. These kinds of ``txn`` stand in the log:

- ``generation``          how often the table was begun anew
- ``recipe``              the fingerprint of the recipe that made the rows (its first 63 bits)
- ``file:<hash>``         the fingerprint of an input file (its first 63 bits), by generation and URI
- ``edition:<hash>``      how often the rows of that file were replaced
- ``<key>``               a unit of work that is done; 0: its rows were dropped, it is to be done again
- ``merged:<key>``        which data file holds a unit's rows since files were put together: the first 63
                          bits of that file's own key
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from etl.errors import ConflictError, MismatchError
from etl.fragment import Fragment, Layout
from etl.table import Table
from etl.transactions import Transactions

_MAX_ATTEMPTS = 50  # each failed one means that somebody else's commit succeeded


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished unit of work: its key, its new files, and the files that these replace."""

    key: str
    fragments: Sequence[Fragment] = ()
    remove: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # input URI -> fingerprint


@dataclass(frozen=True)
class Part:
    """New data files with rows that stood in others, and the units whose rows these are, where looked up."""

    key: str
    fragments: Sequence[Fragment]
    units: Sequence[str] = ()


@dataclass(frozen=True)
class Rewrite:
    """The same rows in other files: those that go, and what comes in their place."""

    remove: Sequence[str]
    parts: Sequence[Part]


Describe = Callable[[Sequence[Entry], int], Mapping[str, Any]]
"""Entries of one commit and the generation -> its lineage record."""


class Ledger:
    """The state of one table for one recipe: what is done, and the way to commit more.

    >>> Ledger("file:///nowhere/documents", fingerprint="f" * 64).table is None
    True
    """

    def __init__(self, url: str, *, fingerprint: str) -> None:
        self.url = url
        self.fingerprint = fingerprint
        self.table: Table | None = None
        self.generation = 1
        self._transactions = Transactions()
        self.refresh()

    def refresh(self) -> None:
        """Look at the head of the table again."""
        if self.table is None and not Table.exists(self.url):
            return
        self.table = Table.open(self.url)
        self._transactions = self.table.transactions()
        self.generation = self._transactions.get("generation") or 1

    @property
    def is_other_recipe(self) -> bool:
        """Whether the rows of the table were made by a recipe with another fingerprint."""
        return self.table is not None and self._transactions.get("recipe") != _int63(
            self.fingerprint
        )

    def key(self, *identity: object) -> str:
        """The key of a unit of work in this generation of the table (32 hex digits)."""
        return _digest(self.generation, self.fingerprint, *identity)[:32]

    def is_done(self, key: str) -> bool:
        """Whether a unit of work stands in the log."""
        return (self._transactions.get(key) or 0) > 0

    def foreign_files(self) -> list[str]:
        """Live data files that no unit of work in the log has written: another program's."""
        if self.table is None:
            return []
        paths = (file["path"] for file in self.table.files("path"))
        return [path for path in paths if not self.is_done(key_of(path))]

    def units_of(self, paths: Iterable[str]) -> Iterator[list[str]]:
        """The keys of the units of work whose rows stand in each of these data files."""
        merged: dict[int, list[str]] = {}
        for key, number in self._transactions.of_kind("merged"):
            merged.setdefault(number, []).append(key)
        for key in map(key_of, paths):
            yield merged.get(_int63(key), [key]) if merged else [key]

    @property
    def has_merged(self) -> bool:
        """Whether rows of several units of work may stand in one data file."""
        return any(True for _ in self._transactions.of_kind("merged"))

    def has_changed(self, uri: str, fingerprint: str) -> bool:
        """Whether rows of an earlier content of this input file stand in the table."""
        known = self._transactions.get(self._name("file", uri))
        return known is not None and known != _int63(_digest(fingerprint))

    def edition(self, uri: str, fingerprint: str) -> int:
        """How often a file's rows were replaced before this content's came: 0 for its first.

        It belongs into the keys, since a file may go back to an earlier content.
        """
        count = self._transactions.get(self._name("edition", uri)) or 0
        return count + self.has_changed(uri, fingerprint)

    def begin(
        self, schema: pa.Schema, layout: Layout, lineage: Callable[[int], Mapping[str, Any]]
    ) -> None:
        """Create the table, or begin a new generation of it as a new, empty version.

        Older versions stay readable by their numbers.
        """
        state = {"generation": 1, "recipe": _int63(self.fingerprint)}
        if self.table is None:
            self.table = Table.create(self.url, schema, layout, transactions=state)
            self.refresh()
            if self.is_other_recipe:  # another run was quicker
                raise MismatchError("another recipe has just begun this table", where=self.url)
            return
        generation = self.generation + 1
        self.table.commit(
            [],
            transactions={**state, "generation": generation},
            lineage=lineage(generation),
            overwrite=(schema, layout),
        )
        self.refresh()

    def commit(
        self, entries: Sequence[Entry], describe: Describe, *, retry: bool = True
    ) -> list[Entry]:
        """Commit entries in one step and return those that are now done by this commit.

        An entry whose key another run has committed meanwhile is left out: its files stay orphans.
        Raises MismatchError if the table was begun anew meanwhile, StorageError as ``Table.commit``,
        and, without ``retry``, ConflictError if any other commit came first.
        """
        for attempt in range(_MAX_ATTEMPTS):
            todo = [entry for entry in entries if not self.is_done(entry.key)]
            if not todo:
                return []
            if attempt:
                self._check_contents(todo)
            try:
                self._commit_on_head(todo, describe)
                return todo
            except ConflictError:
                if not retry:
                    raise
                self._wait(attempt)
        raise ConflictError(f"lost {_MAX_ATTEMPTS} commits to others in a row", where=self.url)

    def rewrite(
        self, rewrites: Sequence[Rewrite], describe: Callable[[int], Mapping[str, Any]]
    ) -> list[Rewrite]:
        """Commit the same rows in other files in one step, and return what was rewritten by it.

        What names a file that is no longer live is left out, its new files stay orphans: another commit
        came first. ``describe`` gets the number of new files. Raises as ``commit`` does.
        """
        for attempt in range(_MAX_ATTEMPTS):
            assert self.table is not None
            live = {file["path"] for file in self.table.files("path")}
            todo = [rewrite for rewrite in rewrites if live.issuperset(rewrite.remove)]
            if not todo:
                return []
            parts = [part for rewrite in todo for part in rewrite.parts]
            fragments = [fragment for part in parts for fragment in part.fragments]
            transactions = {part.key: 1 for part in parts}
            for part in parts:
                transactions |= {f"merged:{unit}": _int63(part.key) for unit in part.units}
            try:
                self.table = self.table.commit(
                    fragments,
                    remove=[path for rewrite in todo for path in rewrite.remove],
                    transactions=transactions,
                    lineage=describe(len(fragments)),
                    data_change=False,
                )
            except ConflictError:
                self._wait(attempt)
            else:
                self._transactions.update(transactions)
                return todo
        raise ConflictError(f"lost {_MAX_ATTEMPTS} commits to others in a row", where=self.url)

    def _wait(self, attempt: int) -> None:
        """Look again after a lost commit; the more were lost, the later."""
        generation = self.generation
        time.sleep(min(0.01 * 2**attempt, 1.0))
        self.refresh()
        if self.generation != generation or self.is_other_recipe:
            raise MismatchError("the table was begun anew by another run", where=self.url)

    def _commit_on_head(self, entries: Sequence[Entry], describe: Describe) -> None:
        assert self.table is not None
        transactions = {entry.key: 1 for entry in entries}
        for entry in entries:
            for uri, fingerprint in entry.files.items():
                transactions[self._name("edition", uri)] = self.edition(uri, fingerprint)
                transactions[self._name("file", uri)] = _int63(_digest(fingerprint))
        remove = {path for entry in entries for path in entry.remove}
        if remove:  # what is live now: another run may have come since the entries were made
            files = {uri for entry in entries if entry.remove for uri in entry.files}
            live = {
                file["path"]: file["min.source"] for file in self.table.files("path", "min.source")
            }
            self._check_removed(entries, live)
            remove = {path for path, source in live.items() if path in remove or source in files}
        self.table = self.table.commit(
            [fragment for entry in entries for fragment in entry.fragments],
            remove=sorted(remove),
            transactions=transactions,
            lineage=describe(entries, self.generation),
        )
        self._transactions.update(transactions)

    def _check_removed(self, entries: Sequence[Entry], live: Collection[str]) -> None:
        """Refuse to replace rows of which nobody knows where they stand now: they would stand twice."""
        for entry in entries:
            if not entry.files and not set(entry.remove).issubset(live):
                raise MismatchError(
                    "data files that this run replaces were taken away meanwhile (`etl optimize`?)",
                    where=self.url,
                    hint="run again: what is committed stays",
                )

    def _check_contents(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for uri, fingerprint in entry.files.items():
                if not entry.remove and self.has_changed(uri, fingerprint):
                    raise MismatchError(
                        "another run has committed another content of this input file",
                        where=uri,
                        hint="run again when nobody writes to it",
                    )

    def _name(self, kind: str, uri: str) -> str:
        return f"{kind}:{_digest(self.generation, uri)[:32]}"


def _digest(*parts: object) -> str:
    return hashlib.sha256("\x00".join(str(part) for part in parts).encode()).hexdigest()


def _int63(hexdigest: str) -> int:
    return int(hexdigest[:16], 16) >> 1


def key_of(path: str) -> str:
    """The key of the unit of work that wrote a data file, which its name begins with.

    >>> key_of("verdict=kept/" + "a" * 32 + "-0123456789ab-0.parquet") == "a" * 32
    True
    """
    return path.rsplit("/", 1)[-1][:32]
