"""Sample documents of a lake by verdict, reason and language, with their texts.

Cost: data files of `documents` are read in random order until ten times as many documents match as are
wanted; then the texts of the chosen ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas, storage
from etl.audit.sampled_rows import (
    FILE,
    KEY,
    read_at,
    read_documents,
    read_keyed,
    shuffled_files,
)
from etl.audit.shown_documents import Documents, ShownDocument
from etl.audit.trace_records import Cut, cut_of, recorded_cutting_stage
from etl.audit.value_counts import with_verdict
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import TableError, nearest_names
from etl.html.card import CardList
from etl.lake.open_table import find_table, open_table
from etl.lake.row_ranges import Address, RangeIndex

_CANDIDATES: Final = 10  # matches to choose from, per document wanted; chosen here


def sample(
    lake: str,
    *,
    n: int = 20,
    verdict: str | None = None,
    reason: str | None = None,
    lang: str | None = None,
    seed: int = 0,
) -> CardList[ShownDocument]:
    """Return ``n`` random documents of a lake, or all that match if there are fewer.

    ``verdict`` is kept or rejected. ``reason`` is a stage or a rule, as in ``gopher_quality`` or
    ``gopher_quality.short``, and ``lang`` a language. The text of a rejected document is read again from the
    input if it is not stored. Of a kept one, ``cut`` says what deduplication cuts out of its text. Another
    ``seed`` gives other documents.

    Raises TableError if the lake does not exist, or if no document matches.
    """
    url = storage.normalize(lake)
    if verdict not in (None, *schemas.VERDICTS):
        raise TableError(f"{verdict!r} is not a verdict", hint="write kept or rejected")
    table = open_table(storage.join(url, "documents"))
    documents = Documents(table, find_table(storage.join(url, "texts")))
    chosen = _choose(table, _candidate_files(table, verdict, reason), n, reason, lang, seed)
    if chosen.is_empty() and n:
        raise _no_match(documents, url, verdict=verdict, reason=reason, lang=lang)
    unread = {schemas.CONTENT_HASH.name, *table.partition_columns}
    columns = [name for name in table.schema.names if name not in unread]
    rows = read_documents(table, chosen, columns)
    verdicts = ["kept" if row["reason"] is None else "rejected" for row in rows]
    shown = documents.show(
        [{**row, "verdict": each} for row, each in zip(rows, verdicts, strict=True)]
    )
    cuts = _cuts(find_table(storage.join(url, "duplicates")), shown)
    return CardList(replace(each, cut=cuts.get((each.source, each.row))) for each in shown)


def _cuts(table: Table | None, documents: Sequence[ShownDocument]) -> Mapping[Address, Cut]:
    """Return what deduplication has cut out of kept documents whose texts are known, by address."""
    texts = {(d.source, d.row): d.text for d in documents if d.text and d.verdict == "kept"}
    if table is None or not texts or "cut" not in table.schema.names:
        return {}
    columns = [name for name in table.schema.names if name not in table.partition_columns]
    found = read_at(table, RangeIndex.of(table), texts, columns)
    rows = {(row["source"], row["row"]): row for row in found if row["kind"] not in schemas.WHOLE}
    stage = recorded_cutting_stage(table)
    return {address: cut_of(row, texts[address], table, stage) for address, row in rows.items()}


def _candidate_files(table: Table, verdict: str | None, reason: str | None) -> pa.Table:
    """Return the data files that may hold such documents, by the log."""
    files = table.data_files([*FILE, "rows", "partition.verdict", "min.reason", "max.reason"])
    wanted = "rejected" if reason is not None and verdict is None else verdict
    if wanted is not None:
        files = with_verdict(files, wanted)
    if reason is not None:
        # A reason may continue after the rule: all begin with the text, and sort before its last successor.
        low, high = files["min.reason"], files["max.reason"]
        inside = pc.and_(pc.less_equal(low, f"{reason}\U0010ffff"), pc.greater_equal(high, reason))
        files = files.filter(pc.fill_null(inside, True))
    return files


def _choose(
    table: Table, files: pa.Table, n: int, reason: str | None, lang: str | None, seed: int
) -> pl.DataFrame:
    """Return the addresses of ``n`` matching rows, in random order."""
    matches: list[pl.DataFrame] = []
    for file in shuffled_files(files, seed):
        rows = read_keyed(table, LogicalFile.of(file), ["reason", "lang"], seed)
        if reason is not None:
            is_rule = pl.col("reason") == reason
            rows = rows.filter(is_rule | pl.col("reason").str.starts_with(_detailed(reason)))
        rows = rows if lang is None else rows.filter(lang=lang)
        matches.append(rows.select(*FILE, "source", "row", KEY))
        if sum(part.height for part in matches) >= _CANDIDATES * n:
            break
    return pl.concat(matches).sort(KEY).head(n) if matches else pl.DataFrame()


def _detailed(reason: str) -> str:
    """Return how the reasons of a stage begin, or the reasons of a rule with details.

    >>> _detailed("gopher_quality"), _detailed("decontaminate.gsm8k")
    ('gopher_quality.', 'decontaminate.gsm8k: ')
    """
    return f"{reason}: " if "." in reason else f"{reason}."


def _no_match(
    documents: Documents, url: str, *, verdict: str | None, reason: str | None, lang: str | None
) -> TableError:
    wanted = {"verdict": verdict, "reason": reason, "language": lang}
    shown = ", ".join(f"{name} {value!r}" for name, value in wanted.items() if value is not None)
    what = f"the lake has no documents with {shown}" if shown else "the lake has no documents"
    hint = "`etl report` counts them by reason and language"
    if reason is not None and documents.filters:
        known = _labels(documents)
        if reason not in known:
            hint = nearest_names(reason, known) or hint
    return TableError(what, where=url, hint=hint)


def _labels(documents: Documents) -> Sequence[str]:
    kinds = dict.fromkeys(judge.stage.kind for judge in documents.filters)
    return [*kinds, *(label for judge in documents.filters for label in judge.labels)]
