"""Judge the stored documents of units of work by another recipe, and write what it makes of them.

Units are judged in batches: most operations on a column of a few thousand rows cost more to begin than to
run.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from etl import schemas
from etl.change.changed_units import UnitFiles
from etl.change.judge import Judge
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.table_specs import DOCUMENTS
from etl.parquet.data_file import DataFile, DataFileWriter

_BATCH_ROWS: Final = 1 << 16  # chosen here: larger batches are not faster
_BATCH_BYTES: Final = 32 << 20  # of data files; rows may have long metadata
_NONE: Final[Mapping[str, pa.Table]] = MappingProxyType({})

_Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class UnitChange:
    """What a change of the recipe does to the documents of a unit, by their row numbers.

    The documents in ``by_text`` and ``by_input`` must be judged again: documents in ``by_text`` have a
    stored text, the others are read from the input.
    """

    leave: int  # kept now, and rejected by stored columns
    come: int  # rejected now, and kept by stored columns
    others: int  # rejected for another reason, or with other values
    by_text: frozenset[int]
    by_input: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether no document changes."""
        return not (self.leave or self.come or self.others or self.is_open)

    @property
    def is_open(self) -> bool:
        """Whether documents must be judged again."""
        return bool(self.by_text or self.by_input)


@dataclass(frozen=True, kw_only=True)
class JudgedUnits:
    """The stored documents of units, in any order, and what another recipe makes of them."""

    changes: Mapping[str, UnitChange]  # by the key of the unit
    numbers: NDArray[np.int64]  # for each row, the number of its unit in ``changes``
    stored: pa.Table
    judged: pl.DataFrame  # see ``Judge.judge``

    @property
    def filled(self) -> set[str]:
        """The new columns that some document has a value in."""
        return {each.name for each in self.judged if each.null_count() < len(each)}


def batch_units(files: Mapping[str, UnitFiles]) -> Iterator[dict[str, UnitFiles]]:
    """Yield the data files of units in batches, each of a bounded size or of one unit."""
    batch: dict[str, UnitFiles] = {}
    rows = size = 0
    for unit, each in files.items():
        rows += sum(file["rows"] for file in each)
        size += sum(file["size"] for file in each)
        if batch and (rows > _BATCH_ROWS or size > _BATCH_BYTES):
            yield batch
            batch = {}
            rows, size = (sum(file[name] for file in each) for name in ("rows", "size"))
        batch[unit] = each
    if batch:
        yield batch


def judge_units(
    judge: Judge,
    table: Table,
    files: Mapping[str, UnitFiles],
    columns: Sequence[str] | None = None,
    *,
    with_texts: Collection[str],
) -> JudgedUnits:
    """Judge the documents of units by the new recipe.

    ``columns`` are read, at least ``judge.reads``; None: all, which ``write_units`` needs. ``with_texts`` are
    the units whose stored texts are as in the input. Raises TableError if the old recipe does not give the
    stored reasons.
    """
    names = None if columns is None else [*columns]
    entries = [(number, file) for number, each in enumerate(files.values()) for file in each]
    parts = [read_live_rows(table.url, file, names) for _, file in entries]
    numbers = np.repeat([number for number, _ in entries], [part.num_rows for part in parts])
    stored = pa.concat_tables(parts).combine_chunks()
    frame = pl.DataFrame(stored.select(judge.reads))
    judged = judge.judge(frame)
    has_texts = np.array([unit in with_texts for unit in files], np.bool_)
    changes = _changes(frame, judged, numbers, has_texts)
    return JudgedUnits(
        changes=dict(zip(files, changes, strict=True)),
        numbers=numbers,
        stored=stored,
        judged=judged,
    )


def _changes(
    frame: pl.DataFrame, judged: pl.DataFrame, numbers: NDArray[np.int64], has_texts: _Mask
) -> list[UnitChange]:
    """Return what changes in each unit; ``has_texts`` says which have texts as in the input."""
    now, then, is_known = frame["reason"], judged["then"], judged["is_known"]
    leave = is_known & now.is_null() & then.is_not_null()
    come = is_known & now.is_not_null() & then.is_null()
    is_other = ~now.eq_missing(then)
    for name in judged.columns:
        if name in frame.columns:  # otherwise the schema changes, and with it all units
            is_other |= ~judged[name].eq_missing(frame[name])
    others = is_known & ~leave & ~come & is_other
    is_open, has_text = ~_mask(is_known), _mask(now.is_null()) & has_texts[numbers]
    rows, count = frame["row"].to_numpy(), len(has_texts)
    counts = (
        np.bincount(numbers[_mask(each)], minlength=count).tolist()
        for each in (leave, come, others)
    )
    by_text, by_input = (
        _rows_by_unit(rows[mask], numbers[mask], count)
        for mask in (is_open & has_text, is_open & ~has_text)
    )
    return [
        UnitChange(leave=leave, come=come, others=others, by_text=text, by_input=given)
        for leave, come, others, text, given in zip(*counts, by_text, by_input, strict=True)
    ]


def _mask(series: pl.Series) -> _Mask:
    return series.to_numpy()


def _rows_by_unit(
    rows: NDArray[np.int64], numbers: NDArray[np.int64], count: int
) -> list[frozenset[int]]:
    found: list[set[int]] = [set() for _ in range(count)]
    for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
        found[number].add(row)
    return [frozenset(each) for each in found]


def write_units(
    url: str,
    schema: pa.Schema,
    judged: JudgedUnits,
    units: Collection[str],
    read: Mapping[str, pa.Table] = _NONE,
) -> dict[str, list[DataFile]]:
    """Write all documents of some of the units as the new recipe judges them; return the data files by unit.

    ``schema`` is the new one of ``documents``. ``read`` has the documents of units that were judged again.
    """
    written: dict[str, list[DataFile]] = {unit: [] for unit in units}
    for unit, verdict, rows in _new_rows(judged, written, schema, read):
        partition = {"verdict": verdict}
        writer = DataFileWriter(url, schema, DOCUMENTS.layout, name=unit, partition=partition)
        writer.append(rows)
        written[unit] += writer.close()
    return written


def _new_rows(
    judged: JudgedUnits, units: Collection[str], schema: pa.Schema, read: Mapping[str, pa.Table]
) -> Iterator[tuple[str, str, pa.Table]]:
    """Yield the new rows of units by verdict, each in the order of ``row``."""
    names = [*judged.changes]
    is_chosen = np.array([name in units for name in names], np.bool_)[judged.numbers]
    known = np.flatnonzero(is_chosen & judged.judged["is_known"].to_numpy())
    fields = pa.schema([field for field in schema if field.name != "verdict"])
    rows = pa.Table.from_arrays([_new_column(judged, field) for field in fields], schema=fields)
    others = [each.select(fields.names).cast(fields) for each in read.values()]
    numbers = np.concatenate(
        [judged.numbers]
        + [
            np.full(each.num_rows, names.index(unit))
            for unit, each in zip(read, others, strict=True)
        ]
    )
    chosen = np.append(known, np.arange(rows.num_rows, len(numbers)))
    rows = pa.concat_tables([rows, *others])
    is_kept = rows["reason"].is_null().to_numpy()
    verdicts = np.where(is_kept, *map(schemas.VERDICTS.index, ("kept", "rejected")))
    files = (numbers * len(schemas.VERDICTS) + verdicts)[chosen]
    order = np.lexsort((rows["row"].to_numpy()[chosen], files))
    assert len(order) == is_chosen.sum(), "rows were lost or doubled"
    sorted_rows, files = rows.take(chosen[order]), files[order]
    for file in np.unique(files).tolist():
        start, stop = np.searchsorted(files, [file, file + 1]).tolist()
        number, verdict = divmod(file, len(schemas.VERDICTS))
        yield names[number], schemas.VERDICTS[verdict], sorted_rows.slice(start, stop - start)


def _new_column(judged: JudgedUnits, field: pa.Field) -> pa.ChunkedArray:
    """Return the new values of a column, which mean nothing for documents that are not known."""
    name = "then" if field.name == "reason" else field.name
    if name not in judged.judged.columns:
        return judged.stored[field.name].cast(field.type)
    return pa.chunked_array([judged.judged[name].to_arrow().cast(field.type)])
