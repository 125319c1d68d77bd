"""What a run reads from each store, which costs where the workers are not in the store's region."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from etl import storage
from etl.job.plan import Plan
from etl.job.prices import Prices
from etl.sources import Split

RANGE_BYTES: Final = 8 << 20
"""The bytes of a request for a part of a file (``etl.storage``)."""


@dataclass(frozen=True, kw_only=True)
class Egress:
    """What reading from one store costs, unless the workers are in its region."""

    store: str  # such as s3://bucket
    read_bytes: int
    to_region: float  # if the workers are in another region of the same cloud
    to_internet: float  # if they are elsewhere


def egress_of(reads: Mapping[str, int], prices: Prices) -> list[Egress]:
    """Return what the bytes that are read from each store cost elsewhere, most bytes first."""
    return [
        Egress(
            store=store,
            read_bytes=size,
            to_region=size / 1e9 * prices.gigabyte_to_region,
            to_internet=size / 1e9 * prices.gigabyte_to_internet,
        )
        for store, size in sorted(reads.items(), key=lambda each: -each[1])
    ]


def reads_by_store(plan: Plan, later_reads: int) -> dict[str, int]:
    """Return the bytes of input and of stored text that leave each store (``s3://bucket``)."""
    reads: Counter[str] = Counter()
    for splits in (plan.splits, plan.uncounted):
        for split in splits:
            reads[_store_of(split.uri)] += read_bytes(split)
    reads[_store_of(str(plan.recipe.lake))] += later_reads
    return {store: size for store, size in reads.items() if store and size}


def _store_of(uri: str) -> str:
    """Return the scheme and the bucket or host of a URL; none for local files."""
    if storage.is_local(uri):
        return ""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def read_bytes(split: Split) -> int:
    """Return the bytes that are requested for a split: its file is read ahead, beyond the split's end."""
    if storage.is_local(split.uri):
        return split.bytes
    is_cut_by_bytes = split.format in ("jsonl", "csv")
    left = split.size - split.start if is_cut_by_bytes else split.size
    return min(split.bytes + RANGE_BYTES, left)
