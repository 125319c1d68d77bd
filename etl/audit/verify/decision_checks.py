"""Check the decisions in `duplicates` against `texts`: a duplicate has the text of its keeper.

Exact duplicates must have the content hash of their keepers. Near-duplicates must have a similarity of at
least the limit, and signatures that agree with it: exactly if it is an estimate, otherwise in a number of
values that is not too unlikely. Signatures say little of a containment, so they are not compared with it. The
texts are not read again. Memory: the hashes or signatures of the duplicates and their keepers.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl

from etl.audit.verify.file_checks import Problem
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.unit_files import unit_files
from etl.plural import many
from etl.stages.dedup_base import DedupStage, find_dedup_stage
from etl.stages.dedup_minhash import DedupMinhash

_THREADS = 8
_CHANCE = (
    1e-9  # signatures less likely than that are not due to chance: that of six standard errors
)


def check_decisions(
    texts: Table, duplicates: pl.DataFrame, stages: Sequence[DedupStage]
) -> Iterator[Problem]:
    """Yield a problem for decisions that name a keeper with another text.

    ``duplicates`` are the rows of ``read_duplicates`` with a kind in ``schemas.WHOLE``; those with a keeper
    in another lake are left out. ``stages`` are the deduplication stages that decided.
    """
    pairs = duplicates.filter(pl.col("keeper_lake").is_null())
    exact = pairs.filter(pl.col("kind") == "exact")
    both = _with_both(texts, exact, "content_hash")
    yield from _problems(both.filter(pl.col("content_hash") != pl.col("content_hash_keeper")))
    stage = find_dedup_stage(stages, DedupMinhash)
    near = pairs.filter(pl.col("kind") == "near")
    if stage is not None and not near.is_empty():
        both = _with_both(texts, near, "signature")
        yield from _problems(both.filter(pl.Series(_differ(both, stage), dtype=pl.Boolean)))


def _differ(pairs: pl.DataFrame, stage: DedupMinhash) -> list[bool]:
    """Return for each pair whether its signatures contradict its similarity, or this is too low."""
    least = functools.cache(lambda similarity: _least_agreement(stage, similarity))
    columns = (pairs[n].to_list() for n in ("signature", "signature_keeper", "similarity"))
    is_estimate = pairs["is_estimate"].fill_null(value=False).to_list()
    return [
        similarity < stage.min_similarity
        or (agreement := _agreement(one, other)) < least(similarity)
        or (estimated and agreement != similarity)
        for one, other, similarity, estimated in zip(*columns, is_estimate, strict=True)
    ]


def _least_agreement(stage: DedupMinhash, similarity: float) -> float:
    """Return the least share of equal numbers in the signatures of a pair that can be due to chance.

    Signatures say little of a containment.
    """
    if stage.is_containment:
        return 0.0
    fewer = np.cumsum(stage.agreement_probabilities(similarity))
    return int(np.searchsorted(fewer, _CHANCE)) / stage.permutations


def _agreement(one: bytes | None, other: bytes | None) -> float:
    """Return the share of equal numbers in two signatures; their first number is the length."""
    if one is None or other is None:
        return 0.0
    first, second = (np.frombuffer(signature, "<u4")[1:] for signature in (one, other))
    return float(np.mean(first == second)) if len(first) == len(second) else 0.0


def _with_both(texts: Table, pairs: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return pairs with a column of their documents, and as ``COLUMN_keeper`` of their keepers."""
    ends = [
        pairs.select("source", "row"),
        pairs.select(source="keeper_source", row="keeper_row"),
    ]
    values = _read_rows(texts, pl.concat(ends).unique(), column)
    keepers = values.rename({"source": "keeper_source", "row": "keeper_row"})
    return pairs.join(values, on=["source", "row"]).join(
        keepers, on=["keeper_source", "keeper_row"], suffix="_keeper"
    )


def _read_rows(texts: Table, addresses: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the addresses of kept texts with a column, reading the data files that hold any."""
    schema = {"source": pl.String, "row": pl.Int64, column: pl.Binary}
    rows = {str(key): part["row"] for (key,), part in addresses.group_by("source")}
    files = unit_files(texts, "partition.verdict")
    wanted = (
        file for file in files if file["partition.verdict"] == "kept" and file["min.source"] in rows
    )

    def read(file: Mapping[str, Any]) -> pl.DataFrame:
        source = file["min.source"]
        table = read_live_rows(texts.url, file, ["row", column])
        frame = pl.DataFrame(pl.from_arrow(table)).filter(
            pl.col("row").is_in(rows[source].implode())
        )
        return frame.select(pl.lit(source).alias("source"), "row", pl.col(column).cast(pl.Binary))

    with ThreadPoolExecutor(_THREADS) as pool:
        return pl.concat([pl.DataFrame(schema=schema), *pool.map(read, wanted)])


def _problems(pairs: pl.DataFrame) -> Iterator[Problem]:
    """Yield one problem per data file of ``duplicates``, with the first of its pairs."""
    for (file,), part in pairs.sort("source", "row").group_by("stored_in", maintain_order=True):
        first = part.row(0, named=True)
        yield Problem(
            "duplicates",
            str(file),
            f"{many(part.height, 'row')} whose keeper has another text (the first: {first['source']} "
            f"row {first['row']}, keeper {first['keeper_source']} row {first['keeper_row']})",
        )
