"""Put small data files together, in commits that change no row.

Many small files cost a reader a request and a footer each. Neighbours by address, in ``keys`` by their least
key, become one file of about the size that is asked for. Old versions keep their files until a vacuum, so
that a training run that is pinned to one goes on as it was; a run of the recipe may go on meanwhile. What
another commit took away first is left as it is. ``documents`` is not touched: its files are named by the
table of duplicates, and are as large as the splits of the input.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from etl import lease, storage
from etl.audit.versions import table_of
from etl.care.record import ledger_of, record
from etl.errors import TableError
from etl.fragment import DUPLICATES, KEYS, TOKENS, Layout
from etl.job.merged import Group, put_together
from etl.key_table import KeyTable
from etl.ledger import Ledger
from etl.plan import kept_units
from etl.table import Table

TARGET_BYTES: Final = 256 << 20
"""The size of a data file that small ones are put together to, on disk; chosen here: half of what a run
writes at most, so that a file that a run has filled is left alone."""

_KEYS_BYTES = 16 << 20  # of keys, two millions of which a thread sorts in memory (200 MB)
_THREADS = 4  # each holds a row group or two
_PER_COMMIT = 64


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """What became of one table: its data files and their bytes before and after."""

    table: str
    version: int
    files_before: int
    files: int
    size_before: int
    size: int


def optimize(lake: str, *, target_bytes: int = TARGET_BYTES) -> list[Optimized]:
    """Put small files of ``duplicates``, ``keys`` and ``tokens`` together.

    Raises TableError if the lake has none of these, if no recipe made them, or if a file is damaged.
    """
    url = storage.normalize(lake)
    with lease.hold(url, "optimize"):
        found = []
        if (duplicates := table_of(url, "duplicates")) is not None:
            decisions = ledger_of(duplicates)
            groups = list(_groups(_blocks(url, "duplicates", decisions), target_bytes))
            found.append(_optimized(decisions, groups, DUPLICATES))
            if (keys := KeyTable(decisions)).fits:  # or else the next run makes it anew
                target = min(target_bytes, _KEYS_BYTES)
                found.append(_optimized(keys.ledger, _key_groups(keys.ledger, target), KEYS))
        if (tokens := table_of(url, "tokens")) is not None:
            ledger = ledger_of(tokens)
            groups = list(_groups(_blocks(url, "tokens", ledger), target_bytes))
            found.append(_optimized(ledger, groups, TOKENS))
    if not found:
        raise TableError("there is nothing to put together", where=url, hint="check the URL")
    return found


@dataclass(frozen=True)
class _Block:
    """Data files that stay together, since a unit of work has rows in each."""

    address: tuple[str, int]  # source and row; of keys the kind and the least one
    size: int
    rows: int
    paths: tuple[str, ...]
    units: tuple[str, ...]


def _blocks(lake: str, kind: str, ledger: Ledger) -> list[_Block]:
    """The data files of a table as blocks, in the order of their addresses."""
    assert ledger.table is not None
    fragments = ledger.table.fragments()
    if not fragments.num_rows:
        return []
    columns = ["path", "size", "rows", "min.source", "min.row"]
    files = fragments.select(columns).to_pylist()
    groups: dict[str, list[Mapping[str, Any]]] = {}
    units: dict[str, list[str]] = {}
    if kind == "duplicates":  # nobody asks which unit a file is of
        for file in files:
            groups[file["path"]], units[file["path"]] = [file], []
    else:
        documents = Table.open(storage.join(lake, "documents"))
        live = {ledger.key(unit.key) for unit in kept_units(documents)}
        for file, keys in zip(files, ledger.units_of(f["path"] for f in files), strict=True):
            if live.issuperset(keys):  # others wait for a run, which replaces them
                groups.setdefault(keys[0], []).append(file)
                units[keys[0]] = keys
    return sorted((_block(groups[n], units[n]) for n in groups), key=lambda block: block.address)


def _block(files: list[Mapping[str, Any]], units: list[str]) -> _Block:
    files = sorted(files, key=lambda file: (file["min.source"], file["min.row"]))
    return _Block(
        address=(files[0]["min.source"], files[0]["min.row"]),
        size=sum(file["size"] for file in files),
        rows=sum(file["rows"] for file in files),
        paths=tuple(file["path"] for file in files),
        units=tuple(units),
    )


def _key_groups(ledger: Ledger, target_bytes: int) -> list[Group]:
    """The same of ``keys``: files of one kind, neighbours by their least key."""
    assert ledger.table is not None
    found: list[Group] = []
    files = ledger.table.fragments().to_pylist()
    for kind in sorted({file["partition.kind"] for file in files}):
        blocks = [
            _Block((kind, file["min.key"]), file["size"], file["rows"], (file["path"],), ())
            for file in files
            if file["partition.kind"] == kind
        ]
        blocks.sort(key=lambda block: block.address)
        groups = _groups(blocks, target_bytes)
        found.extend(replace(group, partition={"kind": kind}) for group in groups)
    return found


def _groups(blocks: Sequence[_Block], target_bytes: int) -> Iterator[Group]:
    """Neighbours that make a file of at most the target; what would stay one file is left out."""
    pending: list[_Block] = []
    for block in [*blocks, None]:
        if block is None or sum(b.size for b in pending) + block.size > target_bytes:
            paths = tuple(path for b in pending for path in b.paths)
            if len(paths) > 1 and sum(b.size for b in pending) <= target_bytes:
                yield Group(
                    paths=paths,
                    units=tuple(unit for b in pending for unit in b.units),
                    rows=sum(b.rows for b in pending),
                )
            pending = []
        if block is not None:
            pending.append(block)


def _optimized(ledger: Ledger, groups: Sequence[Group], layout: Layout) -> Optimized:
    """Write the groups side by side, and commit them some at a time."""
    assert ledger.table is not None
    before = ledger.table.fragments()
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(groups), _PER_COMMIT):
            some = groups[start : start + _PER_COMMIT]
            rewrites = list(pool.map(lambda group: put_together(ledger, group, layout), some))
            ledger.rewrite(rewrites, partial(_record, ledger.table))
    after = ledger.table.fragments()
    return Optimized(
        table=ledger.url.rsplit("/", 1)[-1],
        version=ledger.table.version,
        files_before=before.num_rows,
        files=after.num_rows,
        size_before=sum(before["size"].to_pylist()),
        size=sum(after["size"].to_pylist()),
    )


def _record(table: Table, files: int) -> dict[str, Any]:
    return record(table, "optimize", num_fragments=files)
