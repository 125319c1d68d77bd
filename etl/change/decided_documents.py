"""The documents that deduplication has decided on, and how new decisions change the tables.

The units of work are numbered by arrival, then in the order of addresses, so that documents have addresses as
in the passes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from etl import schemas, storage
from etl.dedup.affected import Affected, DocumentSource, Links
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_index import KeyIndex
from etl.dedup.new_keys import NewKeys
from etl.dedup.numbered_files import FilesInMemory, NumberedFile, address
from etl.dedup.pair_rows import PAIRS, write_pairs
from etl.delta.deletion_vectors import read_struck
from etl.delta.live_rows import live_rows
from etl.delta.table import Table
from etl.kernels.hashing.sorted_sets import among
from etl.lake.input_log import int63
from etl.lake.keys_table import list_key_files
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.unit_files import unit_files
from etl.lake.work_units import WorkUnit
from etl.parquet.data_file import DataFile
from etl.parquet.data_file_reader import Positions
from etl.recipe.recipe import Recipe

_COLUMNS = ("unit", "row", "keeper_source", "keeper_row", "kind", "similarity")
_PLACE = {"file": pl.Int64, "position": pl.Int64}
_DECISION = {
    "document": pl.Int64,
    "keeper": pl.Int64,
    "similarity": pl.Float64,
    "is_estimate": pl.Boolean,
    "kind": pl.Int64,
    **_PLACE,
}


class TableChange(NamedTuple):
    """The rows of a table that are struck from now on, by data file, and the units with new rows."""

    ledger: Ledger
    struck: Mapping[str, Positions]
    add: Sequence[LedgerEntry]


@dataclass(frozen=True, eq=False, kw_only=True)
class DecidedDocuments:
    """The documents of some units of work, and the decisions on them before a change."""

    units: Sequence[WorkUnit]
    duplicates: Ledger
    keys: Ledger
    source: DocumentSource
    index: KeyIndex
    live: NDArray[np.int64]  # (n,) addresses of all documents, ascending
    decisions: pl.DataFrame  # rows of ``duplicates``: the columns of ``PAIRS``, and their places

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        ledgers: Mapping[str, Ledger],
        units: Sequence[WorkUnit],
        kept: Mapping[str, pa.Table],
    ) -> Self:
        """Read which documents there are; the arguments are as for ``decide_affected``."""
        duplicates, keys = ledgers["duplicates"], ledgers["keys"]
        reader = DocumentReader(storage.normalize(str(recipe.lake)), recipe.dedup_stages)
        numbers = {unit.key: number for number, unit in enumerate(units)}
        live = [
            address(np.int64(number), np.asarray(kept[unit]["row"].combine_chunks()))
            for unit, number in numbers.items()
            if unit in kept
        ]
        # Units of which no document is kept any more have decisions and keys, too.
        for file in unit_files(table_of(ledgers["documents"])):
            numbers.setdefault(file["unit"], len(numbers))
        ids = sorted((int63(key), number) for key, number in numbers.items())
        return cls(
            units=units,
            duplicates=duplicates,
            keys=keys,
            source=DocumentSource(FilesInMemory(_numbered(units)), reader),
            index=KeyIndex(list_key_files(table_of(keys)), *np.array(ids, np.int64).T),
            live=np.sort(np.concatenate(live)),
            decisions=_read_decisions(table_of(duplicates), units, numbers),
        )

    @property
    def links(self) -> Links:
        """The duplicates and their keepers."""
        return Links(self.decisions["document"].to_numpy(), self.decisions["keeper"].to_numpy())

    def change_duplicates(self, affected: Affected, pairs: pd.DataFrame) -> TableChange:
        """Write the decisions that were others before; ``pairs`` are all duplicates among the affected."""
        documents = self.decisions["document"].to_numpy()
        before = self.decisions.filter(pl.Series(among(documents, affected.addresses)))
        after = pl.DataFrame({name: pairs[name].to_numpy() for name in PAIRS.columns})
        same = before.join(after, on=after.columns, how="semi")["document"].to_numpy()
        struck = before.filter(pl.Series(~among(before["document"].to_numpy(), same)))
        new = pairs[~among(pairs["document"].to_numpy(), same)]
        name = self.duplicates.key(self.units[0].key)
        written = write_pairs(new, self.source.files, self.source.reader, name)
        files = [*table_of(self.duplicates).files("vector")]
        return self._change(self.duplicates, written, files, *struck.select([*_PLACE]))

    def change_keys(self, affected: Affected, pairs: pd.DataFrame) -> TableChange:
        """Write the keys of documents that stay, or are near duplicates, and were not before."""
        rows, keys = affected.rows, NewKeys.of(affected.documents, pairs)
        before, after = (
            pl.DataFrame({"document": each.documents, "kind": each.kinds}).unique()
            for each in (rows, keys)
        )
        others = [
            before.join(after, on=before.columns, how="anti"),
            after.join(before, on=before.columns, how="anti"),
        ]
        changed = pl.concat(others)["document"].to_numpy()
        struck = rows.take(among(rows.documents, changed))
        new = keys.take(among(keys.documents, changed))
        ids = np.array([int63(unit.key) for unit in self.units], np.int64)
        written = new.write(self.keys.url, self.keys.key(self.units[0].key), ids)
        files = [file.file._asdict() for file in self.index.files]
        return self._change(self.keys, written, files, struck.files, struck.positions)

    def _change(
        self,
        ledger: Ledger,
        written: Iterable[DataFile],
        files: Sequence[Mapping[str, Any]],
        numbers: Iterable[int],
        positions: Iterable[int],
    ) -> TableChange:
        """Return the change of a table; ``numbers`` and ``positions`` are the files and places to strike."""
        by_file: dict[int, list[int]] = defaultdict(list)
        for number, position in zip(numbers, positions, strict=True):
            by_file[number].append(position)
        struck = {
            files[number]["path"]: np.union1d(read_struck(ledger.url, files[number]), each)
            for number, each in by_file.items()
        }
        first, *others = (
            LedgerEntry(key, arrival=ledger.arrival_of(key) or unit.arrival)
            for unit in self.units
            for key in [ledger.key(unit.key)]
        )
        add = [replace(first, data_files=[*written])]
        return TableChange(
            ledger, struck, add + [each for each in others if not ledger.is_done(each.key)]
        )


def table_of(ledger: Ledger) -> Table:
    """Return the table of a ledger that has one."""
    assert ledger.table is not None
    return ledger.table


def _numbered(units: Sequence[WorkUnit]) -> list[NumberedFile]:
    """Return units with their numbers, as documents are read from them."""
    return [
        NumberedFile(
            number=number,
            source=unit.source,
            unit=unit.key,
            files=unit.files,
            rows=unit.rows,
            decided=True,
            earlier=False,
            duplicates=(),
        )
        for number, unit in enumerate(units)
    ]


def _addresses(rows: pl.DataFrame, numbers: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the addresses of rows of ``unit`` and ``row``, -1 for units without a number."""
    number = rows["unit"].replace_strict(numbers, default=-1, return_dtype=pl.Int64).to_numpy()
    return np.where(number < 0, -1, address(number, rows["row"].to_numpy()))


def _read_decisions(
    table: Table, units: Sequence[WorkUnit], numbers: Mapping[str, int]
) -> pl.DataFrame:
    """Return the rows of ``duplicates`` as pairs with their places: a data file and the position in it.

    A keeper in no unit is -1. So is a document, whose row is left out.
    """
    has_estimates = schemas.IS_ESTIMATE in table.schema
    columns = [*_COLUMNS, *([schemas.IS_ESTIMATE.name] if has_estimates else [])]
    kinds = {kind: number for number, kind in enumerate(schemas.WHOLE)}
    sources = pl.DataFrame(
        {
            "keeper_source": [unit.source for unit in units],
            "keeper_row": [unit.first_row for unit in units],
            "keeper_number": range(len(units)),
        },
        {"keeper_source": pl.String, "keeper_row": pl.Int64, "keeper_number": pl.Int64},
    ).sort("keeper_row")
    parts = [pl.DataFrame(schema=_DECISION)]
    for number, file in enumerate(table.files("vector")):
        with live_rows(table.url, file, columns) as opened:
            for group in opened.groups:
                rows = pl.DataFrame(opened.row_group(group)).with_columns(
                    file=pl.lit(number, pl.Int64),
                    position=pl.Series(opened.positions(group), dtype=pl.Int64),
                    kind=pl.col("kind").replace_strict(kinds, return_dtype=pl.Int64),
                    is_estimate=pl.col("is_estimate") if has_estimates else pl.lit(value=False),
                )
                # Units of an input file do not overlap: a row is in the last unit that begins before it.
                rows = rows.sort("keeper_row").join_asof(
                    sources, on="keeper_row", by="keeper_source", check_sortedness=False
                )
                of_keeper = rows["keeper_number"].fill_null(-1).to_numpy()
                keeper = address(of_keeper, rows["keeper_row"].to_numpy())
                decisions = rows.with_columns(
                    document=pl.Series(_addresses(rows, numbers), dtype=pl.Int64),
                    keeper=pl.Series(np.where(of_keeper < 0, -1, keeper), dtype=pl.Int64),
                )
                parts.append(decisions.select([*_DECISION]).filter(pl.col("document") >= 0))
    return pl.concat(parts)
