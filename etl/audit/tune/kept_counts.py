"""Count kept documents, unique documents and tokens before and after a change of settings."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

NOW: Final = "now"
_MIN_SAMPLE: Final = 30  # tokenized documents for a separate ratio per language; chosen here
_GROUP: Final = ("source", "lang")


@dataclass(frozen=True, kw_only=True)
class Amount:
    """The documents kept before and after deduplication, and the tokens of the latter."""

    kept: int
    unique: int | None  # None: the recipe does not deduplicate
    tokens: int | None  # None: the lake has no tokens
    estimated: int = 0  # the tokens that are estimated, by language


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counts of all documents, a language or an input file, with present and with new settings."""

    name: str
    rows: int
    now: Amount
    then: Amount
    unknown: int  # documents whose new verdict is unknown; not in ``then``


_Outcome = tuple[int, str, str | None, str | None, str | None, int | None]
"""Case, input file, language, present reason, new reason, position of the stage without a verdict."""


@dataclass(frozen=True)
class KeptCounts:
    """Counts over some data files, for several cases (lists of settings, numbered from 0).

    With ``is_unique``, a row per kept document is stored, to leave out exact duplicates.
    """

    is_unique: bool
    rows: Counter[_Outcome] = field(default_factory=Counter)
    kept: list[pl.DataFrame] = field(default_factory=list)

    def add(self, source: str, frame: pl.DataFrame, cases: Sequence[pl.DataFrame]) -> None:
        """Count documents of an input file.

        ``frame`` has the columns ``row``, ``lang``, ``reason``, ``size``, ``num_tokens`` (null if not
        tokenized) and, with ``is_unique``, ``content_hash``; each case has ``then`` and ``unknown``.
        """
        sides = {NOW: frame["reason"].is_null()}
        for case, verdicts in enumerate(cases):
            outcome = frame.select("lang", pl.col("reason").alias(NOW)).hstack(verdicts)
            # Details of a reason follow ": " and differ from document to document.
            rule = pl.col(NOW, "then").str.split(": ").list.first()
            # Stored as tuples: a string in a frame would keep the memory of the whole batch alive.
            for *key, rows in outcome.group_by("lang", rule, "unknown").len().iter_rows():
                self.rows[case, source, *key] += rows
            sides[str(case)] = verdicts["then"].is_null() & verdicts["unknown"].is_null()
        lang = pl.col("lang").cast(pl.Categorical)
        hashes = [_half(0), _half(8)] if self.is_unique else []
        kept = frame.select(lang, "row", "size", "num_tokens", *hashes)
        kept = kept.with_columns(source=pl.lit(source, pl.Categorical), **sides)
        if self.is_unique:
            self.kept.append(kept.filter(pl.any_horizontal(*sides)))
        else:
            sums = [_sums(kept.filter(side)).with_columns(side=pl.lit(side)) for side in sides]
            self.kept.extend(sums)

    def extend(self, other: "KeptCounts") -> None:
        """Add the counts of another instance."""
        self.rows.update(other.rows)
        self.kept.extend(other.kept)

    def outcomes(self, case: int) -> pl.DataFrame:
        """Return ``rows`` by ``source``, ``lang``, ``now``, ``then`` and ``unknown``."""
        counts = [(*key[1:], rows) for key, rows in self.rows.items() if key[0] == case]
        text = dict.fromkeys((*_GROUP, NOW, "then"), pl.String)
        return pl.DataFrame(counts, {**text, "unknown": pl.Int32, "rows": pl.Int64}, orient="row")

    def sums(self, side: str) -> pl.DataFrame:
        """Sum over the unique documents kept on a side (``NOW``, or the number of a case)."""
        as_text = pl.col(_GROUP).cast(pl.String)
        if not self.is_unique:
            kept = pl.concat(self.kept).with_columns(as_text)
            return kept.filter(side=side).drop("side").group_by(_GROUP).sum()
        kept = pl.concat(each.filter(side) for each in self.kept)
        # Sorting takes longest, so only documents that may have a copy are sorted.
        is_repeated = kept["hash_0"].is_duplicated()
        # The keepers that a lake has tokenized stay the keepers.
        first = [pl.col("num_tokens").is_null()] if side == NOW else []
        ordered = kept.filter(is_repeated).sort(*first, pl.col("source").cast(pl.String), "row")
        keepers = ordered.unique(["hash_0", "hash_8"], keep="first", maintain_order=True)
        return _sums(pl.concat([kept.filter(~is_repeated), keepers])).with_columns(as_text)


def count_by_rule(kept: KeptCounts, case: int) -> dict[str, tuple[int, int]]:
    """Map each reason to the documents it rejects now and would reject then, most frequent first."""
    outcomes = kept.outcomes(case)
    sides = [
        outcomes.group_by(pl.col(side).alias("reason")).agg(pl.col("rows").sum().alias(f"n_{side}"))
        for side in (NOW, "then")
    ]
    both = sides[0].join(sides[1], on="reason", how="full", coalesce=True).fill_null(0)
    both = both.filter(pl.col("reason").is_not_null())
    both = both.sort(pl.max_horizontal("n_now", "n_then"), "reason", descending=[True, False])
    return {reason: (now, then) for reason, now, then in both.iter_rows()}


def count_unknown(kept: KeptCounts, case: int) -> dict[int, int]:
    """Map the position of a stage to the documents that would reach it and that it has not judged."""
    outcomes = kept.outcomes(case).filter(pl.col("unknown").is_not_null())
    counts = outcomes.group_by("unknown").agg(pl.col("rows").sum()).sort("unknown")
    return dict(counts.iter_rows())


def count_kept(
    kept: KeptCounts, case: int, now: pl.DataFrame, then: pl.DataFrame, *, by: str | None
) -> list[Counted]:
    """Count the documents by ``lang`` or ``source``, or in total; the largest change comes first.

    ``now`` and ``then`` are the sums over the documents that are kept with present and with new settings.
    """
    has_tokens = bool(now["tokenized"].sum())
    group = (pl.lit("all") if by is None else pl.col(by).fill_null("none")).alias("name")
    rows, is_unknown = pl.col("rows"), pl.col("unknown").is_not_null()
    counts = kept.outcomes(case).group_by(group).agg(
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
        counts = counts.join(amounts, on="name", how="left")
    change = (pl.col("then") - pl.col(NOW)).abs()
    counts = counts.fill_null(0).sort(change, "name", descending=[True, False])

    def amount(row: dict[str, int], side: str) -> Amount:
        estimated = row[f"{side}_estimate"] if has_tokens and side != NOW else 0
        return Amount(
            kept=row[side],
            unique=row[f"{side}_unique"] if kept.is_unique else None,
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
        for row in counts.iter_rows(named=True)
    ]


def _half(start: int) -> pl.Expr:
    """Return eight bytes of the content hash as a number, which does not keep the batch in memory."""
    part = pl.col("content_hash").bin.slice(start, 8)
    return part.bin.reinterpret(dtype=pl.UInt64, endianness="little").alias(f"hash_{start}")


def _sums(kept: pl.DataFrame) -> pl.DataFrame:
    """Sum documents, tokens and sizes by input file and language."""
    is_tokenized = pl.col("num_tokens").is_not_null()
    return kept.group_by(_GROUP).agg(
        documents=pl.len().cast(pl.Int64),
        tokens=pl.col("num_tokens").cast(pl.Int64).sum(),
        tokenized=is_tokenized.cast(pl.Int64).sum(),
        tokenized_size=pl.col("size").filter(is_tokenized).sum(),
        other_size=pl.col("size").filter(~is_tokenized).sum(),
    )


def _with_estimate(sums: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Add ``estimate``: the tokens of documents not tokenized yet, by the present tokens per size.

    A language with few tokenized documents gets the ratio of all documents.
    """
    total = now.select("tokens", "tokenized_size").sum()
    overall = total["tokens"][0] / max(total["tokenized_size"][0], 1.0)
    names = ("tokens", "tokenized", "tokenized_size")
    by_language = now.group_by("lang").agg(pl.col(names).sum())
    is_enough = (pl.col("tokenized") >= _MIN_SAMPLE) & (pl.col("tokenized_size") > 0)
    own = pl.col("tokens") / pl.col("tokenized_size")
    ratio = pl.when(is_enough).then(own).otherwise(overall)
    ratios = by_language.select("lang", ratio=ratio)
    joined = sums.join(ratios, on="lang", how="left", nulls_equal=True)
    return joined.with_columns(estimate=pl.col("other_size") * pl.col("ratio").fill_null(overall))
