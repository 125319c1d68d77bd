"""Counts of what is kept now and would be kept then: documents, those that are no duplicates, tokens."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

NOW: Final = "now"
_MIN_SAMPLE: Final = (
    30  # documents with tokens that give a language a ratio of its own; chosen here
)
_GROUP: Final = ("source", "lang")


@dataclass(frozen=True, kw_only=True)
class Amount:
    """What is kept of some documents: before deduplication, after it, and the tokens of the latter."""

    kept: int
    unique: int | None  # None: the recipe does not deduplicate
    tokens: int | None  # None: the lake has no tokens
    estimated: int = 0  # how many of the tokens are estimated, by language


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Some documents (all, those of a language, of an input file), now and then."""

    name: str
    rows: int
    now: Amount
    then: Amount
    unknown: int  # documents of which nobody knows whether they would be kept; not in ``then``


_Outcome = tuple[int, str, str | None, str | None, str | None, int | None]
"""Case, input file, language, reason now, reason then, place of the stage that has not judged."""


@dataclass(frozen=True)
class Tallies:
    """What was counted of some data files, for several cases (lists of settings, numbered from 0).

    With ``is_unique`` a row of every kept document is remembered, to leave out the exact duplicates.
    """

    is_unique: bool
    rows: Counter[_Outcome] = field(default_factory=Counter)
    kept: list[pl.DataFrame] = field(default_factory=list)

    def add(self, source: str, frame: pl.DataFrame, cases: Sequence[pl.DataFrame]) -> None:
        """Count documents of an input file: columns ``row``, ``lang``, ``reason``, ``size``, ``num_tokens``
        (null: none yet), ``content_hash`` where that is asked for; for each case ``then`` and ``unknown``.
        """
        sides = {NOW: frame["reason"].is_null()}
        for case, judged in enumerate(cases):
            outcome = frame.select("lang", pl.col("reason").alias(NOW)).hstack(judged)
            rule = (
                pl.col(NOW, "then").str.split(": ").list.first()
            )  # what comes after tells of one text
            # As tuples: a string of a frame would hold the memory of all of the batch.
            for *found, rows in outcome.group_by("lang", rule, "unknown").len().iter_rows():
                self.rows[case, source, *found] += rows
            sides[str(case)] = judged["then"].is_null() & judged["unknown"].is_null()
        lang = pl.col("lang").cast(pl.Categorical)
        hashes = [_half(0), _half(8)] if self.is_unique else []
        kept = frame.select(lang, "row", "size", "num_tokens", *hashes)
        kept = kept.with_columns(source=pl.lit(source, pl.Categorical), **sides)
        if self.is_unique:
            self.kept.append(kept.filter(pl.any_horizontal(*sides)))
        else:
            sums = [_sums(kept.filter(side)).with_columns(side=pl.lit(side)) for side in sides]
            self.kept.extend(sums)

    def extend(self, other: "Tallies") -> None:
        """Take in what another one counted."""
        self.rows.update(other.rows)
        self.kept.extend(other.kept)

    def outcomes(self, case: int) -> pl.DataFrame:
        """``rows`` by ``source``, ``lang``, ``now``, ``then``, ``unknown``."""
        found = [(*key[1:], rows) for key, rows in self.rows.items() if key[0] == case]
        text = dict.fromkeys((*_GROUP, NOW, "then"), pl.String)
        return pl.DataFrame(found, {**text, "unknown": pl.Int32, "rows": pl.Int64}, orient="row")

    def sums(self, side: str) -> pl.DataFrame:
        """Sums over the documents kept on a side (``NOW``, or a case's number) that are no duplicates."""
        kept = pl.concat(self.kept).with_columns(pl.col(_GROUP).cast(pl.String))
        if not self.is_unique:
            return kept.filter(side=side).drop("side").group_by(_GROUP).sum()
        first = [pl.col("num_tokens").is_null()] if side == NOW else []  # what is in tokens stays
        ordered = kept.filter(side).sort(*first, "source", "row")
        return _sums(ordered.unique(["hash_0", "hash_8"], keep="first", maintain_order=True))


def rules(tallies: Tallies, case: int) -> dict[str, tuple[int, int]]:
    """Reason -> the documents that it rejects now, and those that it would; the most frequent first."""
    found = tallies.outcomes(case)
    sides = [
        found.group_by(pl.col(side).alias("reason")).agg(pl.col("rows").sum().alias(f"n_{side}"))
        for side in (NOW, "then")
    ]
    both = sides[0].join(sides[1], on="reason", how="full", coalesce=True).fill_null(0)
    both = both.filter(pl.col("reason").is_not_null())
    both = both.sort(pl.max_horizontal("n_now", "n_then"), "reason", descending=[True, False])
    return {reason: (now, then) for reason, now, then in both.iter_rows()}


def unknown(tallies: Tallies, case: int) -> dict[int, int]:
    """Place of a stage -> the documents that would come to it, and that it has not judged."""
    found = tallies.outcomes(case).filter(pl.col("unknown").is_not_null())
    counts = found.group_by("unknown").agg(pl.col("rows").sum()).sort("unknown")
    return dict(counts.iter_rows())


def counted(tallies: Tallies, case: int, *, by: str | None) -> list[Counted]:
    """The documents by ``lang`` or ``source``, or all together; the largest change first."""
    now, then = tallies.sums(NOW), tallies.sums(str(case))
    has_tokens = bool(now["told"].sum())
    group = (pl.lit("all") if by is None else pl.col(by).fill_null("none")).alias("name")
    rows, is_unknown = pl.col("rows"), pl.col("unknown").is_not_null()
    found = tallies.outcomes(case).group_by(group).agg(
        rows=rows.sum(),
        now=rows.filter(pl.col(NOW).is_null()).sum(),
        then=rows.filter(pl.col("then").is_null() & ~is_unknown).sum(),
        unknown=rows.filter(is_unknown).sum(),
    )  # fmt: skip
    for side, sums in ((NOW, now), ("then", then)):
        amounts = _with_estimate(sums, now).group_by(group).agg(
            pl.col("documents").sum().alias(f"{side}_unique"),
            pl.col("tokens").sum().alias(f"{side}_tokens"),
            pl.col("estimate").sum().round().cast(pl.Int64).alias(f"{side}_estimate"),
        )  # fmt: skip
        found = found.join(amounts, on="name", how="left")
    change = (pl.col("then") - pl.col(NOW)).abs()
    found = found.fill_null(0).sort(change, "name", descending=[True, False])

    def amount(row: dict[str, int], side: str) -> Amount:
        estimated = row[f"{side}_estimate"] if has_tokens and side != NOW else 0
        return Amount(
            kept=row[side],
            unique=row[f"{side}_unique"] if tallies.is_unique else None,
            tokens=row[f"{side}_tokens"] + estimated if has_tokens else None,
            estimated=estimated,
        )

    return [
        Counted(
            name=str(row["name"]),
            rows=row["rows"],
            now=amount(row, NOW),
            then=amount(row, "then"),
            unknown=row["unknown"],
        )
        for row in found.iter_rows(named=True)
    ]


def _half(start: int) -> pl.Expr:
    """Eight bytes of the content hash as a number, which holds no memory of the batch it came from."""
    part = pl.col("content_hash").bin.slice(start, 8)
    return part.bin.reinterpret(dtype=pl.UInt64, endianness="little").alias(f"hash_{start}")


def _sums(kept: pl.DataFrame) -> pl.DataFrame:
    """By input file and language: documents and tokens; ``told`` are those whose tokens are known."""
    told = pl.col("num_tokens").is_not_null()
    return kept.group_by(_GROUP).agg(
        documents=pl.len().cast(pl.Int64),
        tokens=pl.col("num_tokens").cast(pl.Int64).sum(),
        told=told.cast(pl.Int64).sum(),
        told_size=pl.col("size").filter(told).sum(),
        open_size=pl.col("size").filter(~told).sum(),
    )


def _with_estimate(sums: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """The sums with ``estimate``: the tokens of documents that have none yet, by tokens per size now.

    A language with few documents takes the ratio of all.
    """
    whole = now.select("tokens", "told_size").sum()
    overall = whole["tokens"][0] / max(whole["told_size"][0], 1.0)
    by_language = now.group_by("lang").agg(pl.col("tokens", "told", "told_size").sum())
    enough = (pl.col("told") >= _MIN_SAMPLE) & (pl.col("told_size") > 0)
    ratio = pl.when(enough).then(pl.col("tokens") / pl.col("told_size")).otherwise(overall)
    ratios = by_language.select("lang", ratio=ratio)
    joined = sums.join(ratios, on="lang", how="left", nulls_equal=True)
    return joined.with_columns(estimate=pl.col("open_size") * pl.col("ratio").fill_null(overall))
