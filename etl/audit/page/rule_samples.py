"""Documents that each rule rejects, beside those that it just keeps, with their texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from etl import schemas
from etl.audit.page.page_sample import PageSample
from etl.audit.rule_limits import Limit
from etl.audit.sampled_rows import FILE, KEY, read_documents
from etl.audit.shown_documents import Documents, ShownDocument

PER_SIDE: Final = 3
_MAX_RULES: Final = 30
_UNREAD: Final = "source."  # reasons of records that could not be read
_FILES: Final = 12  # data files whose texts are read first; chosen here


@dataclass(frozen=True, kw_only=True)
class RuleSamples:
    """Documents on both sides of a rule: nearest to its limit, or random if it has none."""

    rule: str
    documents: int  # that it rejects
    limit: str | None  # as in ``num_words < 50``
    rejected: list[ShownDocument]
    kept: list[ShownDocument]


def rule_samples(
    documents: Documents, sample: PageSample, rejected: Mapping[str, int]
) -> list[RuleSamples]:
    """Return samples for the rules that reject most documents, as far as the sample has them."""
    limits = {limit.rule: limit for limit in documents.limits}
    languages = sample.frame["lang"].unique().to_list()
    chosen: dict[str, tuple[pl.DataFrame, pl.DataFrame]] = {}
    for rule in [*rejected][:_MAX_RULES]:
        limit = limits.get(rule)
        is_own = pl.col("rule") == rule
        sides = sample.frame.filter(is_own), sample.frame.filter(pl.col("rule").is_null())
        is_read = not rule.startswith(_UNREAD)  # otherwise no document is comparable
        chosen[rule] = _nearest(sides[0], limit), _nearest(sides[1], limit).head(PER_SIDE * is_read)
    shown = _read(documents, [frame for pair in chosen.values() for frame in pair])
    return [
        RuleSamples(
            rule=rule,
            documents=rejected[rule],
            limit=None if rule not in limits else _shown(limits[rule], languages),
            rejected=[shown[address] for address in _addresses(out)],
            kept=[shown[address] for address in _addresses(kept)],
        )
        for rule, (out, kept) in chosen.items()
    ]


def _nearest(rows: pl.DataFrame, limit: Limit | None) -> pl.DataFrame:
    """Return the rows whose signal is nearest to a limit, or random ones; a few files come first."""
    few = rows["path"].unique(maintain_order=True).head(_FILES)
    in_few = rows.filter(pl.col("path").is_in(few.implode()))
    rows = in_few if in_few.height >= PER_SIDE else rows
    if limit is None:
        return rows.sort(KEY).head(PER_SIDE)
    distance = (pl.col(limit.column) - limit.value).abs().fill_nan(None)
    return rows.sort(distance, pl.col(KEY), nulls_last=True).head(PER_SIDE)


def _shown(limit: Limit, languages: Sequence[str | None]) -> str:
    values = {*limit.values(languages).values()} - {None}
    shown = f"{values.pop():,.6g}" if len(values) == 1 else "a limit by language"
    return f"{limit.column} {limit.comparison} {shown}"


def _addresses(rows: pl.DataFrame) -> list[tuple[str, int]]:
    return [*rows.select("source", "row").iter_rows()]


def _read(documents: Documents, parts: list[pl.DataFrame]) -> dict[tuple[str, int], ShownDocument]:
    """Read rows with their texts, each once."""
    if not parts:
        return {}
    columns = [*FILE, "source", "row"]
    rows = pl.concat([part.select(columns) for part in parts]).unique(maintain_order=True)
    table = documents.table
    unread = {schemas.CONTENT_HASH.name, *table.partition_columns}
    names = [name for name in table.schema.names if name not in unread]
    values: list[Mapping[str, Any]] = [
        {**row, "verdict": "kept" if row["reason"] is None else "rejected"}
        for row in read_documents(table, rows, names)
    ]
    return {(each.source, each.row): each for each in documents.show(values)}
