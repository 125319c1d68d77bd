"""Bring the tables after ``documents`` to what it says, after a change of the recipe.

Each table gets, by strikes and new data files, the rows of the documents that are kept now. What to do is
found by comparing the tables, so that after a kill between two commits the next run does the rest.

If the same documents are kept, and compared by the same values, each table only gets a commit that says so.

Of the decisions in ``duplicates``, some depend on documents that come or leave: these are decided again
(``etl.change.new_decisions``). If that may be many, ``duplicates`` is emptied, and the run that follows
compares all documents again, arrival by arrival, by their stored hashes and signatures. The tokens then wait
for these decisions. If passages are cut out of documents, all are tokenized again, from their stored texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import polars as pl
import pyarrow as pa

from etl import schemas
from etl.change.changed_units import files_by_unit
from etl.change.kept_documents import kept_documents, rows_by_unit
from etl.change.missing_rows import RowsByUnit, write_texts, write_tokens
from etl.change.refusals import changes_tokens
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.lake.commit_info import find_record
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.drop_units import drop_units
from etl.lake.jobs import Job
from etl.lake.lake_epochs import drop_all
from etl.lake.ledger import Describe, Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.lineage_record import Change, Origin, OriginOf
from etl.lake.row_difference import RowDifference, find_difference
from etl.lake.table_specs import SPECS, spec_of
from etl.lake.unit_files import unit_files
from etl.lake.work_units import kept_units
from etl.recipe.recipe import Recipe
from etl.stages.dedup_base import find_cutting_stage
from etl.stages.tokenize import Tokenize

_ADDRESS = [*schemas.ADDRESS]
_NONE = pl.DataFrame(schema={"source": pl.String, "row": pl.Int64})


@dataclass(frozen=True, kw_only=True)
class Follower:
    """Follows a change: the recipe, its ledgers by table, and the job that commits."""

    recipe: Recipe
    ledgers: Mapping[str, Ledger]  # of all tables of the lake, just opened
    origin: OriginOf
    job: Job

    @property
    def _documents(self) -> Ledger:
        return self.ledgers["documents"]

    def follow(self) -> None:
        """Bring all tables to what ``documents`` says; raise ConflictError if another commit comes between.

        Raises SourceError if a text to add cannot be read from the input.
        """
        for name, ledger in self.ledgers.items():
            if name == "documents" or ledger.change == self._documents.change:
                continue
            if changes_tokens(ledger, self.recipe):
                raise MismatchError(
                    "the table does not follow the last change yet, and another tokenizer made it",
                    where=ledger.url,
                    hint="run the recipe with the earlier `tokenize` first, or pass --rebuild",
                )
            # Since then, only columns of ``documents`` have changed.
            is_current = ledger.change >= self._documents.rows_change
            if is_current and name in self.recipe.steps:
                ledger.strike({}, self._describe(name), follows=self._documents)
            elif is_current:
                self._drop(ledger, Drop(), "epoch")
            elif name == "texts":
                self._follow_texts(ledger)
            elif schemas.is_tokens(name) and ledger.fingerprint:  # else no recipe has filled it
                self._follow_tokens(ledger)
            elif name == "duplicates":
                self._follow_duplicates(ledger)
            else:
                drop = drop_all(ledger) if spec_of(name).is_index else Drop()
                self._drop(ledger, drop, "strike")

    def _drop(self, ledger: Ledger, drop: Drop, action: schemas.Action) -> None:
        describe = self._describe(ledger.url.rpartition("/")[2], action)
        drop = replace(drop, change=self._documents.change)
        ledger.drop(drop, describe, lake_epoch=self._documents.lake_epoch)

    def _follow_texts(self, ledger: Ledger) -> None:
        difference, missing = self._difference(ledger, ["source", "row", "content_hash"])
        self._commit(ledger, difference, write_texts(self.recipe, self._documents, ledger, missing))

    def _follow_duplicates(self, ledger: Ledger) -> None:
        """Bring ``duplicates`` and ``keys`` to the new decisions, or leave all decisions to the run."""
        # Loads pandas, which changes without deduplication need not wait for.
        from etl.change.new_decisions import decide_affected

        changes = decide_affected(self.recipe, self.ledgers, self._kept)
        if changes is None:
            spec = SPECS["duplicates"]
            self._drop(ledger, Drop(rebuild=(spec.schema(self.recipe), spec.layout)), "rebuild")
            return
        for change in changes:
            describe = self._describe(change.ledger.url.rpartition("/")[2])
            change.ledger.strike(change.struck, describe, add=change.add, follows=self._documents)

    def _follow_tokens(self, ledger: Ledger) -> None:
        table, texts = ledger.table, self.ledgers["texts"].table
        assert table is not None
        assert texts is not None
        waits, cuts = self._waits(ledger, texts), find_cutting_stage(self.recipe.dedup_stages)
        if cuts is not None:
            self._tokenizer(table)
        if waits or cuts is not None:
            self._adopt(ledger, table)
        if waits:
            return
        if cuts is not None:  # the table does not say what was cut out of documents
            self._drop(ledger, drop_units(ledger, self._done(ledger)), "drop")
            return
        difference, missing = self._difference(ledger, ["source", "row"], self._left_out())
        entries = write_tokens(self._tokenizer(table), ledger, texts, missing) if missing else []
        self._commit(ledger, difference, entries)

    def _tokenizer(self, table: Table) -> Tokenize:
        """Return the tokenizer of a table that gets rows; raise MismatchError if the recipe has none."""
        name = table.url.rpartition("/")[2]
        if name in self.recipe.tokenizers:
            return self.recipe.tokenizers[name]
        raise MismatchError(
            "a change of the recipe adds rows, and the recipe does not name the table's tokenizer",
            where=table.url,
            hint=f"add its `tokenize`, or remove the table: `etl drop {self.recipe.lake} {name} --yes`",
        )

    def _adopt(self, ledger: Ledger, table: Table) -> None:
        """Commit that a table belongs to the recipe, so that runs planned before the change fail."""
        if ledger.is_other_recipe or ledger.lake_epoch != self._documents.lake_epoch:
            describe = partial(_describe_epoch, self.job, table)
            ledger.strike({}, describe, follows=self._documents, waits=True)

    def _done(self, ledger: Ledger) -> list[str]:
        """Return the keys of the units that a table has done."""
        assert self._documents.table is not None
        keys = map(ledger.key, files_by_unit(self._documents.table))
        return [key for key in keys if ledger.is_done(key)]

    def _waits(self, tokens: Ledger, texts: Table) -> bool:
        """Return whether documents that may have tokens are not deduplicated again yet."""
        decisions = DedupDecisions(self.ledgers.get("duplicates"))
        return any(
            tokens.is_done(tokens.key(unit.key)) and not decisions.include(unit)
            for unit in kept_units(texts)
        )

    def _left_out(self) -> pl.DataFrame:
        """Return the addresses of kept documents that are left out as duplicates."""
        parts = [_NONE]
        duplicates = self.ledgers.get("duplicates")
        if duplicates is not None and duplicates.table is not None:
            for file in duplicates.table.files("path", "vector"):
                rows = read_live_rows(duplicates.url, file, [*_ADDRESS, "kind"])
                left_out = pl.DataFrame(rows).filter(pl.col("kind") != schemas.CUT)
                parts.append(left_out.select(_ADDRESS))
        return pl.concat(parts)

    def _difference(
        self, ledger: Ledger, columns: Sequence[str], left_out: pl.DataFrame = _NONE
    ) -> tuple[RowDifference, RowsByUnit]:
        """Return how a table differs from the kept documents in some columns, and which rows it lacks."""
        table = ledger.table
        assert table is not None
        done = {u: rows for u, rows in self._kept.items() if ledger.is_done(ledger.key(u))}
        schema = pa.schema([table.schema.field(name) for name in columns])
        parts = (rows.select(columns).cast(schema) for rows in done.values())
        wanted = pa.concat_tables([schema.empty_table(), *parts])
        if left_out.height:
            rows = pl.DataFrame(wanted).join(left_out, on=_ADDRESS, how="anti")
            wanted = rows.to_arrow().cast(schema)
        difference = find_difference(table, wanted, self._sources())
        return difference, rows_by_unit(done, difference.missing)

    def _sources(self) -> set[str]:
        """Return the input files of all documents."""
        assert self._documents.table is not None
        return {file["min.source"] for file in unit_files(self._documents.table) if file["rows"]}

    @cached_property
    def _kept(self) -> dict[str, pa.Table]:
        assert self._documents.table is not None
        return kept_documents(self._documents.table)

    def _commit(
        self, ledger: Ledger, difference: RowDifference, add: Sequence[LedgerEntry]
    ) -> None:
        name = ledger.url.rpartition("/")[2]
        describe = self._describe(name)
        ledger.strike(difference.struck, describe, add=add, follows=self._documents)

    def _describe(self, name: str, action: schemas.Action = "strike") -> Describe:
        """Return a function that describes the commit of a table that follows."""
        spec, ledger = spec_of(name), self.ledgers[name]
        tables = [self.ledgers[n].table for n in spec.made_from if n in self.ledgers]
        read = [
            schemas.InputTable(name=t.url.rpartition("/")[2], url=t.url, version=t.version)
            for t in tables
            if t is not None
        ]

        def describe(entries: Sequence[LedgerEntry], generation: int) -> schemas.Lineage | None:
            count = sum(len(entry.data_files) for entry in entries)
            change = Change(
                action=action, generation=generation, input_tables=read, num_data_files=count
            )
            assert ledger.table is not None
            if name in self.recipe.steps:
                record = find_record(ledger.table)  # by the same tokenizer: see ``follow``
                known = None if record is None else record.tokenizer
                return self.job.record(self.origin(spec.name, tokenizer=known), change)
            if (record := find_record(ledger.table)) is None or not schemas.is_tokens(name):
                return self.job.record_on(ledger.table, change)
            return self.job.record(
                replace(Origin.of(record), fingerprint=ledger.fingerprint), change
            )

        return describe


def _describe_epoch(
    job: Job, table: Table, _entries: Sequence[LedgerEntry], generation: int
) -> schemas.Lineage | None:
    """Return the record of a commit that changes no rows."""
    return job.record_on(table, Change(action="epoch", generation=generation))
