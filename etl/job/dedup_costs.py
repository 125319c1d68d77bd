"""What deduplication stages store and read, for estimates of costs."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple


class DedupCost(NamedTuple):
    """What a deduplication stage stores and reads."""

    stored: float  # bytes of keys, and of columns in texts, per byte of text
    unit_reads: float  # requests to S3 for each unit of work
    text_reads: float = 0.0  # how often it reads the stored text


DEDUP_COSTS: Final[Mapping[str, DedupCost]] = {
    "dedup_exact": DedupCost(0.003, 16.0),
    "dedup_minhash": DedupCost(0.12, 24.0, 0.5),
    "dedup_paragraphs": DedupCost(0.05, 24.0, 1.0),
    "dedup_substrings": DedupCost(0.24, 40.0, 3.0),
}
"""The costs by kind of stage: ``benchmarks/RESULTS.md``; requests were counted on a local server."""


def stored_share(kinds: Iterable[str]) -> float:
    """Return the bytes that some stages store, per byte of text."""
    return sum(DEDUP_COSTS[kind].stored for kind in kinds if kind in DEDUP_COSTS)


def text_reads(kinds: Iterable[str]) -> float:
    """Return how often some stages read the stored text."""
    return sum(DEDUP_COSTS[kind].text_reads for kind in kinds if kind in DEDUP_COSTS)
