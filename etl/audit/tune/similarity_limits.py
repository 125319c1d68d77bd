"""Estimate which documents other limits of similarity would remove, from stored signatures.

A document goes if an earlier one is similar enough. A sample of the documents is compared with all earlier
documents that share the key of a band. Whether that earlier document would go itself is not asked, so chains
of similar documents count a little more than a run removes. Cost: two passes over the signatures, about half
a kilobyte a document; memory: the signatures of the sample and of what shares a key with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl import storage
from etl.audit.row_lookup import text_of
from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import RecipeError, TableError
from etl.html.card import Card, Shown
from etl.html.grid import make_grid, percent
from etl.kernels.hashing.minhash_signatures import band_keys
from etl.kernels.hashing.sorted_sets import among
from etl.lake.commit_info import find_record
from etl.lake.random_keys import random_keys, seed_for, uniform
from etl.lake.releases import tables_at
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash

SAMPLE: Final = 20_000
"""Documents that are compared with all earlier ones: the standard error of a share is 0.4 % at most."""

_PER_KEY: Final = 64  # earlier documents of a band's key that are compared, as in a run
_EXAMPLES: Final = 2  # pairs shown on each side of a limit
_TEXT_CHARS: Final = 300
_PAIRS_AT_ONCE: Final = 1 << 16
_ADDRESS: Final = {"source": pl.String, "row": pl.Int64}
_NO_DOCUMENTS: Final = pl.DataFrame(schema={**_ADDRESS, "sampled": pl.Boolean})
_NO_BANDS: Final = pl.DataFrame(schema={"key": pl.Int64, "document": pl.Int64})
_PAIRS: Final = {
    "similarity": pl.Float64,
    **_ADDRESS,
    "earlier_source": pl.String,
    "earlier_row": pl.Int64,
}


@dataclass(frozen=True, kw_only=True)
class SimilarDocuments:
    """A document and the earlier one to which it is most similar, by their signatures."""

    similarity: float
    source: str
    row: int
    text: str  # its first 300 characters
    earlier_source: str
    earlier_row: int
    earlier_text: str


@dataclass(frozen=True, kw_only=True)
class SimilarityLimit:
    """What a limit would remove, and the pairs whose similarity is next to it."""

    limit: float
    documents: int  # estimated
    examples: list[SimilarDocuments]  # the most similar first


@dataclass(frozen=True, kw_only=True, repr=False)
class SimilarityTuning(Shown):
    """What limits of similarity would remove from a lake."""

    lake: str
    limit: float  # of the recipe
    removed: int  # documents that are near-duplicates with it
    documents: int  # that have a signature, and no equal text before them
    sampled: int
    limits: list[SimilarityLimit]  # the lowest first

    def _cards(self) -> list[Card]:
        """Return the counts as a card."""
        facts = {
            "recipe": f"{self.limit:g} removes {self.removed:,}",
            "sampled": f"{self.sampled:,}",
        }
        grid = make_grid(
            "Documents that other limits would remove",
            ("limit", "documents", "share"),
            self.limits,
            lambda each: (
                f"{each.limit:g}",
                f"~{each.documents:,}",
                percent(each.documents, self.documents),
            ),
        )
        return [Card(title=f"Lake {self.lake}", facts=facts, grids=[grid])]


def tune_similarity(lake: str, limits: Sequence[float]) -> SimilarityTuning:
    """Estimate how many documents `dedup_minhash` would remove with each of some ``min_similarity``.

    A limit far below that of the recipe needs more bands to find its pairs: what the stored bands do not
    find is not counted. Raises TableError if the lake has no signatures, RecipeError for a limit that is
    not above 0 and up to 1.

    >>> tune_similarity("lake", [1.5])
    Traceback (most recent call last):
    ...
    etl.errors.RecipeError: 1.5 is not a limit of similarity
      hint: give numbers above 0, up to 1
    """
    for limit in limits:
        if not 0 < limit <= 1:
            what = f"{limit} is not a limit of similarity"
            raise RecipeError(what, hint="give numbers above 0, up to 1")
    url = storage.normalize(lake)
    tables = tables_at(url, None)
    stage = _minhash_stage(tables["documents"])
    kinds, equal = _removed(tables.get("duplicates"))
    found = _Signatures(tables["texts"], stage, equal).nearest()
    return SimilarityTuning(
        lake=url,
        limit=stage.min_similarity,
        removed=kinds.get("near", 0),
        documents=found.documents,
        sampled=found.sampled,
        limits=[_limit(tables["texts"], found, limit) for limit in sorted({*limits})],
    )


def _minhash_stage(documents: Table) -> DedupMinhash:
    record = find_record(documents)
    stages = () if record is None else Recipe.recorded(record.canonical, where=documents.url).stages
    stage = next((stage for stage in stages if isinstance(stage, DedupMinhash)), None)
    if stage is None:
        hint = "add `dedup_minhash` to its recipe"
        raise TableError("the lake has no signatures of texts", where=documents.url, hint=hint)
    return stage


def _removed(duplicates: Table | None) -> tuple[dict[str, int], pl.DataFrame]:
    """Return the numbers of duplicates by kind, and the addresses of those with equal texts."""
    rows = pl.DataFrame(schema={"kind": pl.String, **_ADDRESS})
    if duplicates is not None:
        for entry in duplicates.data_files().to_pylist():
            read = read_live_rows(duplicates.url, LogicalFile.of(entry), rows.columns)
            rows.extend(pl.DataFrame(read).select(rows.columns).cast(rows.schema))
    kinds = dict(rows["kind"].value_counts().iter_rows())
    return kinds, rows.filter(kind="exact").drop("kind")


@dataclass(frozen=True)
class _Nearest:
    """The earlier document that is most similar to each sampled one, if any shares a key with it."""

    pairs: pl.DataFrame  # similarity, source, row, earlier_source, earlier_row; most similar first
    documents: int
    sampled: int

    def count(self, limit: float) -> int:
        """Estimate how many of all documents are at least so similar to an earlier one."""
        found = self.pairs.filter(pl.col("similarity") >= limit).height
        return round(found * self.documents / max(1, self.sampled))

    def around(self, limit: float) -> pl.DataFrame:
        """Return the pairs whose similarity is next to a limit, on both sides."""
        reach = self.pairs["similarity"] >= limit
        return pl.concat(
            [self.pairs.filter(reach).tail(_EXAMPLES), self.pairs.filter(~reach).head(_EXAMPLES)]
        )


@dataclass(frozen=True)
class _Signatures:
    """The signatures of a lake's documents."""

    texts: Table
    stage: DedupMinhash
    equal: pl.DataFrame  # ``source`` and ``row`` of documents to leave out

    def nearest(self) -> _Nearest:
        """Compare a sample with all earlier documents that share a key."""
        rows = sum(entry["rows"] for entry in self._files())
        share = min(1.0, SAMPLE / max(1, rows))
        keys, documents, sampled = [np.empty(0, np.int64)], 0, 0
        for addresses, numbers in self._read(share):
            is_sampled = addresses["sampled"].to_numpy()
            keys.append(band_keys(numbers[is_sampled, 1:], self.stage.bands).ravel())
            documents, sampled = documents + len(addresses), sampled + int(is_sampled.sum())
        pairs = self._pairs(np.unique(np.concatenate(keys)), share)
        return _Nearest(pairs, documents, sampled)

    def _files(self) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = self.texts.data_files().to_pylist()
        return [file for file in files if file["partition.verdict"] == "kept"]

    def _read(self, share: float) -> Iterator[tuple[pl.DataFrame, NDArray[np.uint32]]]:
        """Yield ``source``, ``row`` and ``sampled`` of the documents of each data file, and signatures."""
        for entry in self._files():
            names = ["source", "row", "signature"]
            table = read_live_rows(self.texts.url, LogicalFile.of(entry), names)
            table = table.filter(pc.is_valid(table["signature"]))
            if not len(table):
                continue
            is_sampled = uniform(random_keys(table, seed_for("similarity", 0))) < share
            frame = pl.DataFrame(table.select(["source", "row"])).with_columns(
                pl.Series("sampled", is_sampled), place=pl.int_range(pl.len())
            )
            frame = frame.join(self.equal, on=["source", "row"], how="anti", maintain_order="left")
            numbers = self.stage.numbers(table["signature"].combine_chunks())
            yield frame.drop("place"), numbers[frame["place"].to_numpy()]

    def _pairs(self, keys: NDArray[np.int64], share: float) -> pl.DataFrame:
        """Return the most similar earlier document of each sampled one."""
        documents, signatures = [_NO_DOCUMENTS], [np.empty((0, 1), np.uint32)]
        bands, size = [_NO_BANDS], 0
        for addresses, numbers in self._read(share):
            found = band_keys(numbers[:, 1:], self.stage.bands)
            is_shared = among(found.ravel(), keys).reshape(found.shape)
            rows = np.flatnonzero(is_shared.any(axis=1))
            places = np.repeat(size + np.arange(len(rows)), is_shared[rows].sum(axis=1))
            bands.append(pl.DataFrame({"key": found[rows][is_shared[rows]], "document": places}))
            documents.append(addresses[rows])
            signatures.append(numbers[rows])
            size += len(rows)
        if not size:
            return pl.DataFrame(schema=_PAIRS)
        # Documents are numbered by address, so that a lower number is an earlier document.
        known = pl.concat(documents)
        order = known.select(pl.arg_sort_by("source", "row")).to_series().to_numpy()
        numbered = pl.DataFrame({"document": order, "number": np.arange(size)})
        known, numbers = known[order], np.concatenate(signatures[1:])[order]
        shared = pl.concat(bands).join(numbered.cast(pl.Int64), on="document").sort("key", "number")
        pairs = _earlier(shared, known["sampled"])
        similarity = self._similarity(
            numbers, pairs["earlier"].to_numpy(), pairs["number"].to_numpy()
        )
        pairs = pairs.with_columns(similarity=similarity)
        pairs = pairs.sort("similarity", "number", "earlier", descending=[True, False, False])
        best = pairs.unique("number", keep="first", maintain_order=True)
        ends = known.select("source", "row")
        earlier = ends[best["earlier"]].rename({"source": "earlier_source", "row": "earlier_row"})
        return best.select("similarity").hstack(ends[best["number"]]).hstack(earlier)

    def _similarity(
        self, numbers: NDArray[np.uint32], earlier: NDArray[np.int64], later: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the estimated similarity of each pair of documents, as ``verify`` defines it."""
        out = np.empty(len(later))
        for start in range(0, len(later), _PAIRS_AT_ONCE):
            one, two = (ends[start : start + _PAIRS_AT_ONCE] for ends in (earlier, later))
            out[start : start + len(two)] = (numbers[one, 1:] == numbers[two, 1:]).mean(axis=1)
        if self.stage.is_containment:
            # Of sets of sizes a and b, J = c / (a + b - c) says how much they share: c = J (a + b) / (1 + J).
            sizes = numbers[:, 0].astype(np.float64)
            shared = out / (1 + out) * (sizes[earlier] + sizes[later])
            out = np.minimum(1.0, shared / np.maximum(1.0, sizes[later]))
        return out


def _earlier(shared: pl.DataFrame, sampled: pl.Series) -> pl.DataFrame:
    """Return pairs of documents that share a key, each once: ``number``, sampled, and ``earlier``."""
    first = shared.group_by("key", maintain_order=True).head(_PER_KEY)
    first = first.select("key", earlier="number")
    chosen = shared.filter(sampled.gather(shared["number"]))
    pairs = chosen.join(first, on="key").filter(pl.col("earlier") < pl.col("number"))
    return pairs.select("number", "earlier").unique()


def _limit(texts: Table, found: _Nearest, limit: float) -> SimilarityLimit:
    examples = []
    for row in found.around(limit).iter_rows(named=True):
        one = text_of(texts, row["source"], row["row"])["text"][:_TEXT_CHARS]
        two = text_of(texts, row["earlier_source"], row["earlier_row"])["text"][:_TEXT_CHARS]
        examples.append(SimilarDocuments(**row, text=one, earlier_text=two))
    return SimilarityLimit(limit=limit, documents=found.count(limit), examples=examples)
