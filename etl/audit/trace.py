"""Trace one document through a lake: from its input file to its tokens, or why it has none."""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from etl import schemas, storage
from etl.audit.recipe_changes import count_changes, find_strike
from etl.audit.row_lookup import FoundRow, find_rows
from etl.audit.shown_documents import Documents
from etl.audit.token_rows import TokenRows
from etl.audit.trace_records import (
    Cut,
    RowLocation,
    Trace,
    TracedCommit,
    TracedDuplicate,
    TracedTable,
    TracedTokens,
    commit_of,
    cut_of,
    recorded_cutting_stage,
)
from etl.delta.table import Table
from etl.delta.vacuum_records import is_vacuumed
from etl.errors import StorageError, TableError
from etl.html.card import CardList
from etl.lake.quarantine import Quarantine
from etl.lake.random_keys import random_keys
from etl.lake.shuffled_table import buckets_of, seed_of
from etl.lake.table_names import token_tables
from etl.lake.table_specs import open_tables
from etl.lake.table_versions import (
    added_in,
    current_versions,
    live_inputs,
    read_versions,
)
from etl.lake.unit_files import unit_at
from etl.plural import many
from etl.schemas.shuffled_files import Bucket
from etl.visible_text import one_line

_PREVIEW_CHARS = 500


def trace(
    lake: str,
    *,
    id: str | None = None,
    source: str | None = None,
    row: int | None = None,
) -> CardList[Trace]:
    """Trace a document by its id or by its address (``source`` and ``row``).

    Several documents may share an id; ``source`` is a URL or a path. Raises TableError if no document
    matches, or if neither an id nor a complete address is given.
    """
    if (id is None) == (source is None) or (source is None) != (row is None):
        raise TableError(
            "a document is identified by its id, or by its source and row",
            where=lake,
            hint="give --id ID, or --source URI and --row N",
        )
    wanted: dict[str, str | int] = {"id": id} if id is not None else {}
    if source is not None and row is not None:
        wanted = {"source": storage.normalize(source), "row": row}
    tables = _TraceableLake(storage.normalize(lake))
    traces = CardList(tables.trace(match) for match in find_rows(tables.documents, wanted))
    if not traces:
        raise tables.missing(wanted)
    traces.sort(key=lambda t: (t.source, t.row))
    return traces


class _TraceableLake:
    """The current tables of a lake, with the contents of their logs."""

    def __init__(self, url: str) -> None:
        self.url = url
        tables = open_tables(url)
        self.documents = tables["documents"]
        self._texts = tables.get("texts")
        self._shown = Documents(self.documents, self._texts)
        self.duplicates = tables.get("duplicates")
        self._tokens = {name: TokenRows(tables[name]) for name in token_tables(tables)}
        self._shuffled = {name: tables.get(schemas.shuffled_of(name)) for name in self._tokens}
        self._versions = read_versions(self.documents)
        inputs = live_inputs(self._versions)
        self._inputs, self._names = inputs.files(), inputs.names

    def trace(self, match: FoundRow) -> Trace:
        """Trace one row of ``documents``."""
        values = match.values
        key = unit_at(match.file, values["source"], values["row"])
        address = {"source": values["source"], "row": values["row"]}
        kept = values["verdict"] == "kept"
        decision = self._decision(address, key) if kept else None
        [shown] = self._shown.show([values])
        duplicate = cut = None
        if decision is not None and decision[0]["kind"] in schemas.WHOLE:
            duplicate = self._duplicate(*decision)
        elif decision is not None:
            row, table = decision
            cut = cut_of(row, shown.text or "", table, recorded_cutting_stage(table))
        found = {name: table.find(address) for name, table in self._tokens.items() if kept}
        tokens = {name: each for name, each in found.items() if each is not None}
        return Trace(
            id=values["id"],
            source=values["source"],
            row=values["row"],
            verdict=values["verdict"],
            reason=values["reason"],
            url=values["url"],
            lang=values["lang"],
            limits=shown.limits,
            signals=shown.signals,
            text=shown.text[:_PREVIEW_CHARS] if shown.text is not None else None,
            missing_text=shown.missing_text,
            outcome=self._outcome(values, duplicate or cut, tokens, unit=key),
            document=RowLocation(
                file=match.path, row=match.number, commit=self._commit(match.path, values["source"])
            ),
            duplicate=duplicate,
            cut=cut,
            tokens=tokens,
            shuffled=self._shuffled_rows(address, tokens),
            input=self._inputs.get(values["source"]),
            table=self._source_table(values["source"]),
            names=sorted(
                {f.uri for f in self._names.get(values["source"], ())} - {values["source"]}
            ),
        )

    def missing(self, wanted: dict[str, str | int]) -> TableError:
        """Return the error for a document that is not in the lake, with a hint at the nearest match."""
        if "id" in wanted:
            hint = "ids come from the id column of the recipe; without one, use --source and --row"
            return TableError(f"no document has the id {wanted['id']!r}", where=self.url, hint=hint)
        source = str(wanted["source"])
        shown = one_line(source)
        notes = [note for note in Quarantine(self.url).notes() if note.source == source]
        if notes:
            part = f" (part {notes[0].part})" if notes[0].part else ""
            what = f"{shown}{part} could not be read: {' '.join(notes[0].error.split())}"
            return TableError(what, where=self.url, hint="repair the file and run the recipe again")
        if source in self._inputs:
            hint = f"it has {many(self._inputs[source].rows, 'record')}; rows are numbered from 0"
            return TableError(
                f"the lake has no row {wanted['row']} of {shown}", where=self.url, hint=hint
            )
        near = difflib.get_close_matches(source, self._inputs, n=1)
        hint = f"`etl lineage {self.documents.url}` lists the input files"
        if near:
            hint = f"did you mean {one_line(near[0])}?"
        return TableError(f"the lake has no rows of {shown}", where=self.url, hint=hint)

    def _commit(self, path: str, source: str) -> TracedCommit | None:
        """Return the commit that added a data file of ``documents``."""
        candidates = [
            version
            for version in current_versions(self._versions)
            if (record := version.lineage)
            and (
                record.action == "change" or any(file.uri == source for file in record.input_files)
            )
        ]
        return commit_of(added_in(self.documents, path, candidates or self._versions[::-1]))

    def _source_table(self, source: str) -> TracedTable | None:
        """Return the Delta table that an input file belongs to, by the recipe that read it."""
        file = self._inputs.get(source)
        if file is None or file.version is None:
            return None
        try:
            is_stored = storage.file_size(source) == file.size
        except StorageError:
            is_stored = None
        records = (version.lineage for version in self._versions if version.lineage is not None)
        paths = (record.canonical["source"]["path"] for record in records)
        urls = (storage.normalize(url) for each in paths for url in _as_list(each))
        url = next((url for url in urls if source.startswith(f"{url}/")), source)
        return TracedTable(url=url, version=file.version, is_stored=is_stored)

    def _decision(self, address: dict[str, Any], unit: str) -> tuple[dict[str, Any], Table] | None:
        """Return a document's row of ``duplicates``, at the version that its first tokens were made from."""
        table = self.duplicates
        if table is None:
            return None
        done = next((tokens for tokens in self._tokens.values() if tokens.is_done(unit)), None)
        if done is not None and done.read.get("duplicates", table.version) != table.version:
            old = Table.open(table.url, done.read["duplicates"])
            table = table if is_vacuumed(old.url, old.version) else old
        row = next(find_rows(table, address), None)
        return None if row is None else (row.values, table)

    def _duplicate(self, values: dict[str, Any], table: Table) -> TracedDuplicate:
        keeper = {"source": values["keeper_source"], "row": values["keeper_row"]}
        other_lake = values.get("keeper_lake")
        rows = find_rows(self.documents, keeper, ["id"]) if other_lake is None else ()
        ids = [row.values["id"] for row in rows]
        return TracedDuplicate(
            keeper_source=values["keeper_source"],
            keeper_row=values["keeper_row"],
            keeper_id=ids[0] if ids else None,
            keeper_lake=other_lake,
            kind=values["kind"],
            similarity=values["similarity"],
            is_estimate=bool(values.get("is_estimate")),
            version=table.version,
        )

    def _shuffled_rows(
        self, address: dict[str, Any], tokens: Iterable[str]
    ) -> dict[str, RowLocation]:
        """Return the locations of a row in the shuffled tables of some tables of tokens."""
        tables = (table for name in tokens if (table := self._shuffled[name]) is not None)
        found = {table.url.rpartition("/")[2]: _shuffled_row(table, address) for table in tables}
        return {name: location for name, location in found.items() if location is not None}

    def _outcome(
        self,
        values: dict[str, Any],
        replaced: TracedDuplicate | Cut | None,
        tokens: dict[str, TracedTokens],
        *,
        unit: str,
    ) -> str:
        if values["verdict"] != "kept":
            return f"rejected by {values['reason']}{self._strike(values['source'], values['row'])}"
        if tokens:
            cut = f"; {replaced.outcome}" if isinstance(replaced, Cut) else ""
            return f"kept; {self._counts(tokens)}{cut}"
        if isinstance(replaced, TracedDuplicate):
            keeper = f"{replaced.keeper_source} row {replaced.keeper_row}"
            where = f" in {replaced.keeper_lake}" if replaced.keeper_lake is not None else ""
            return f"left out: {replaced.kind} duplicate of {keeper}{where}"
        if replaced is not None and replaced.left_out:
            return replaced.outcome
        return self._untokenized(values["source"], values["row"], unit)

    def _counts(self, tokens: dict[str, TracedTokens]) -> str:
        """Return the number of tokens, by table if the lake has several tokenizers."""
        if len(self._tokens) == 1:
            return "".join(many(each.num_tokens, "token") for each in tokens.values())
        counts = {name: many(each.num_tokens, "token") for name, each in tokens.items()}
        return ", ".join(f"{counts.get(name, 'none')} in {name}" for name in self._tokens)

    def _untokenized(self, source: str, row: int, unit: str) -> str:
        first = next(iter(self._tokens.values()), None)
        if first is None:
            return "kept; the lake has no tokens: its recipe does not tokenize"
        if first.is_done(unit):
            number = count_changes(self._versions)
            if first.change is not None and first.change < number:
                return f"kept by change {number} of the recipe, not tokenized yet: run it again"
            if first.is_struck({"source": source, "row": row}):
                return "kept, but its tokens are struck"
            return "kept, but its tokens are missing: run `etl verify`"
        error = next(self._quarantined(source), None)
        return f"kept, not tokenized{': ' + error if error else ' yet: run the recipe again'}"

    def _strike(self, source: str, row: int) -> str:
        if self._texts is None:
            return ""
        number = find_strike(self._texts, {"source": source, "row": row}, self._versions)
        return "" if number is None else f"; struck by change {number} of the recipe"

    def _quarantined(self, source: str) -> Iterator[str]:
        for note in Quarantine(self.url).notes():
            if note.step in self._tokens and note.source == source:
                yield note.error


def _as_list(path: str | list[str]) -> list[str]:
    return [path] if isinstance(path, str) else path


def _shuffled_row(table: Table, address: dict[str, Any]) -> RowLocation | None:
    """Return the location of a row in a shuffled table: its key says which file of a part has it."""
    if (seed := seed_of(table)) is None:
        return None
    key = random_keys(pa.table({name: [value] for name, value in address.items()}), seed)
    files = table.data_files()
    buckets = map(Bucket.of_file, files["path"].to_pylist())
    may_hold = [b is not None and int(buckets_of(key, b.count)[0]) == b.number for b in buckets]
    files = files.filter(pa.array(may_hold, pa.bool_()))
    row = next(find_rows(table, address, ["num_tokens"], files=files), None)
    if row is None:
        return None
    commit = added_in(table, row.path, read_versions(table)[::-1])
    return RowLocation(file=row.path, row=row.number, commit=commit_of(commit))
