"""Report the duplicates of a lake: clusters, pairs of input files, and the tokens saved.

A cluster is a kept document with the documents that were left out for it as a whole. Cost: two passes over
the numeric columns of ``duplicates``, one more per eight million duplicates, and the languages and token
counts of the input files with keepers. Memory: 16 bytes per keeper of eight million duplicates, the counts of
one input file, and the texts of the largest clusters' keepers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from etl import storage
from etl.audit.duplicates import clusters
from etl.audit.duplicates.clusters import Ints
from etl.audit.duplicates.removed_passages import CutTotals, cut_totals
from etl.audit.duplicates.rows_by_source import RowsBySource
from etl.audit.row_lookup import text_of
from etl.delta.table import Table
from etl.errors import TableError
from etl.html.card import Card, Shown
from etl.html.grid import make_grid
from etl.lake.releases import tables_at
from etl.lake.table_names import token_tables
from etl.plural import many

_MAX_FILES: Final = 32  # beyond that, pairs are reported by folder
_MEMBERS: Final = 5
_TEXT_CHARS: Final = 300
_SAVED: Final = {
    "lang": pl.String,
    "documents": pl.Int64,
    "tokens": pl.Int64,
    "unknown": pl.Int64,
}

_Sized = tuple[int, str, int]  # number of documents; the keeper's input file and row


@dataclass(frozen=True, kw_only=True)
class Member:
    """A document that was left out for a keeper."""

    source: str
    row: int
    kind: str
    similarity: float
    is_estimate: bool  # of the similarity, from the signatures


@dataclass(frozen=True, kw_only=True)
class DuplicateCluster:
    """A keeper and the documents left out for it: ``size`` documents in all."""

    size: int
    source: str
    row: int
    id: str | None
    text: str  # its first 300 characters
    members: list[Member]  # the first five by address


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The documents of one input file or folder left out for documents of another, or of the same."""

    source: str
    keeper_source: str
    documents: int


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Documents left out, and the tokens they would have had: as many as their keepers.

    For near-duplicates, and for keepers that are cut, this is an estimate.
    """

    documents: int
    tokens: int
    unknown: int  # documents whose keepers have no tokens


@dataclass(frozen=True, kw_only=True, repr=False)
class DuplicateReport(Shown):
    """The duplicates of a lake."""

    lake: str
    kinds: dict[str, int]  # documents left out or cut, by kind; most frequent first
    clusters: int
    sizes: dict[str, int]  # clusters by the number of their documents, as "2" or "5-8"
    largest: list[DuplicateCluster]
    by: str  # files or folders: the unit of ``pairs``
    pairs: list[Pair]  # most frequent first
    other_pairs: int  # documents of the pairs not listed
    saved: Saved
    languages: dict[str, Saved]  # by language of the keeper; empty if none was detected
    cuts: CutTotals | None  # None: the recipe cuts nothing

    def _cards(self) -> list[Card]:
        """Return the counts and the largest clusters as cards."""
        facts = {kind: f"{count:,}" for kind, count in self.kinds.items()}
        facts |= {"clusters": f"{self.clusters:,}", "tokens saved": f"~{self.saved.tokens:,}"}
        grids = [
            make_grid(
                "Clusters by their number of documents",
                ("documents", "clusters"),
                self.sizes.items(),
                lambda each: (each[0], f"{each[1]:,}"),
            ),
            make_grid(
                f"Removed documents by {self.by}",
                ("removed", "documents", "kept"),
                self.pairs,
                lambda each: (each.source, f"{each.documents:,}", each.keeper_source),
            ),
        ]
        largest = (
            Card(
                title=f"{many(each.size, 'document')}: {each.source} row {each.row}",
                facts={
                    f"{member.source} row {member.row}": f"{member.kind}, {member.similarity:.2f}"
                    for member in each.members
                },
                text=each.text,
            )
            for each in self.largest
        )
        return [Card(title=f"Lake {self.lake}", facts=facts, grids=grids), *largest]


def duplicates(lake: str, *, top: int = 10, version: int | str | None = None) -> DuplicateReport:
    """Report the duplicates of a lake, with the ``top`` largest clusters, pairs and cut documents.

    ``version`` is as in ``etl.report``. Raises TableError if the lake has no table ``duplicates``.
    """
    url = storage.normalize(lake)
    tables = tables_at(url, version)
    table = tables.get("duplicates")
    if table is None:
        hint = "add a deduplication stage such as `dedup_exact` to its recipe"
        raise TableError("the lake has no table of duplicates", where=url, hint=hint)
    documents = tables["documents"]
    tokens = next((tables[name] for name in token_tables(tables)), None)
    kept = RowsBySource(documents, verdict="kept")
    folders = _folders(kept.sources())
    counts = clusters.count_duplicates(table, folders)
    totals = _Totals(kept, RowsBySource(tokens) if tokens is not None else None, top)
    for sources in clusters.group_sources(counts.keepers):
        totals.add(sources, *clusters.read_keepers(table, sources))
    pairs = sorted(counts.pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    saved = pl.concat([pl.DataFrame(schema=_SAVED), *totals.saved])
    languages = _by_language(saved)
    return DuplicateReport(
        lake=url,
        kinds=dict(counts.kinds.most_common()),
        clusters=totals.sizes.total(),
        sizes=_classes(totals.sizes),
        largest=_described(tables["texts"], table, totals.largest),
        by="folders" if folders else "files",
        pairs=[Pair(source=a, keeper_source=b, documents=n) for (a, b), n in pairs[:top]],
        other_pairs=sum(size for _, size in pairs[top:]),
        saved=_total(saved),
        languages=languages if languages.keys() - {"none"} else {},
        cuts=cut_totals(tables["texts"], table, tokens, top=top),
    )


class _Totals:
    """Running totals over the clusters of some input files."""

    def __init__(self, kept: RowsBySource, tokens: RowsBySource | None, top: int) -> None:
        self.sizes: Counter[int] = Counter()
        self.largest: list[_Sized] = []
        self.saved: list[pl.DataFrame] = []  # one frame per input file, one row per language
        self._kept = kept
        self._tokens = tokens
        self._top = top

    def add(self, sources: Sequence[str], keepers: Ints, counts: Ints) -> None:
        """Add the clusters whose keepers are in some input files."""
        sizes, clusters_of = np.unique(counts + 1, return_counts=True)
        self.sizes.update(dict(zip(sizes.tolist(), clusters_of.tolist(), strict=True)))
        for k in np.lexsort((keepers, -counts))[: self._top].tolist():
            source, row = clusters.from_address(sources, int(keepers[k]))
            self.largest.append((1 + int(counts[k]), source, row))
        self.largest = sorted(self.largest, key=lambda c: (-c[0], *c[1:]))[: self._top]
        for number, source in enumerate(sources):
            span = clusters.slice_of_source(keepers, number)
            rows = clusters.to_rows(keepers[span])
            self._save(source, pl.DataFrame({"row": rows, "documents": counts[span]}))

    def _save(self, source: str, keepers: pl.DataFrame) -> None:
        lang = pl.DataFrame(self._kept.read(source, ["row", "lang"]))
        counts = pl.DataFrame(schema={"row": pl.Int64, "num_tokens": pl.Int32})
        if self._tokens is not None:
            counts = pl.DataFrame(self._tokens.read(source, ["row", "num_tokens"]))
        each = keepers.join(lang, on="row", how="left").join(counts, on="row", how="left")
        size, tokens = pl.col("documents"), pl.col("num_tokens").cast(pl.Int64)
        sums = each.group_by("lang").agg(
            size.sum(),
            tokens=(size * tokens).sum(),
            unknown=size.filter(tokens.is_null()).sum(),
        )
        self.saved.append(sums.select(pl.col(n).cast(t) for n, t in _SAVED.items()))


def _folders(sources: Sequence[str]) -> dict[str, str]:
    """Return the folder of each input file if there are many files, otherwise nothing."""
    if len(sources) <= _MAX_FILES:
        return {}
    return {source: f"{source.rpartition('/')[0]}/" for source in sources}


def _classes(sizes: Mapping[int, int]) -> dict[str, int]:
    """Count clusters by size class, each twice as wide as the one before.

    >>> _classes({2: 7, 3: 1, 6: 1, 4: 2, 9: 5})
    {'2': 7, '3-4': 3, '5-8': 1, '9-16': 5}
    """
    classes: Counter[int] = Counter()
    for size in sorted(sizes):
        classes[(size - 1).bit_length()] += sizes[size]
    return {
        "2" if bits == 1 else f"{(1 << bits - 1) + 1}-{1 << bits}": count
        for bits, count in classes.items()
    }


def _described(texts: Table, table: Table, largest: Sequence[_Sized]) -> list[DuplicateCluster]:
    members = clusters.read_members(table, [(source, row) for _, source, row in largest], _MEMBERS)
    names = ("source", "row", "kind", "similarity")
    described = []
    for size, source, row in largest:
        keeper = text_of(texts, source, row)
        described.append(
            DuplicateCluster(
                size=size,
                source=source,
                row=row,
                id=keeper["id"],
                text=keeper["text"][:_TEXT_CHARS],
                members=[
                    Member(**{n: m[n] for n in names}, is_estimate=bool(m.get("is_estimate")))
                    for m in members[source, row]
                ],
            )
        )
    return described


def _by_language(saved: pl.DataFrame) -> dict[str, Saved]:
    sums = saved.group_by("lang").sum().sort("documents", "lang", descending=[True, False])
    return {row.pop("lang") or "none": Saved(**row) for row in sums.iter_rows(named=True)}


def _total(saved: pl.DataFrame) -> Saved:
    return Saved(**saved.select(pl.all().exclude("lang").sum()).row(0, named=True))
