"""All that the page of a lake shows, as data: the template only lays it out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from etl import schemas, storage
from etl.audit.duplicates.duplicate_report import DuplicateReport, duplicates
from etl.audit.lake_report import report
from etl.audit.lineage_graph import graph
from etl.audit.page.axis import Axis
from etl.audit.page.distributions import KEPT, Distribution, distributions
from etl.audit.page.funnel import FunnelStep, funnel
from etl.audit.page.page_sample import PageSample, read_sample
from etl.audit.page.rule_samples import RuleSamples, rule_samples
from etl.audit.report_records import LakeReport
from etl.audit.sampled_rows import shuffled_files
from etl.audit.shown_documents import Documents
from etl.audit.tune.rejudge import StoredFilter
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.releases import tables_at
from etl.lake.table_names import last_table, token_tables
from etl.recipe.recipe_file import as_yaml

_LENGTH_FILES: Final = 64
_LENGTH_ROWS: Final = 200_000
_LARGEST: Final = 6  # clusters, and cut documents


@dataclass(frozen=True, kw_only=True)
class PageFacts:
    """What the page of a lake shows."""

    report: LakeReport
    record: schemas.Lineage | None  # of ``documents``
    funnel: list[FunnelStep]
    sample: PageSample
    signals: list[Distribution]
    has_unknown: bool  # documents that were rejected before a stage could judge them
    rules: list[RuleSamples]
    lengths: Distribution | None  # of the documents with tokens
    duplicates: DuplicateReport | None
    settings: str  # the recipe with all defaults, as YAML
    versions: Mapping[str, str]  # of the libraries
    lineage: str  # the tree of the last table


def page_facts(lake: str, *, version: int | str | None = None) -> PageFacts:
    """Return what the page of a lake shows, at a version as in ``etl.report``.

    Counts are from the logs and the columns of reasons and languages; distributions and samples are from a
    part of the rows. Raises TableError if the lake has no documents, or if the version does not exist.
    """
    url = storage.normalize(lake)
    tables = tables_at(url, version)
    documents = Documents(tables["documents"], tables.get("texts"))
    counts = report(url, version=version)
    sample = read_sample(documents)
    repeated = None
    if "duplicates" in tables and (counts.duplicates or counts.cut):
        repeated = duplicates(url, top=_LARGEST, version=version)
    last = tables[last_table(tables)]
    return PageFacts(
        report=counts,
        record=documents.record,
        funnel=funnel(documents, counts, sample, repeated.saved.tokens if repeated else None),
        sample=sample,
        signals=distributions(documents, sample),
        has_unknown=_has_unknown(documents.filters),
        rules=rule_samples(documents, sample, counts.rejected),
        lengths=_lengths(last) if token_tables(tables) else None,
        duplicates=repeated,
        settings=as_yaml(documents.record.canonical) if documents.record is not None else "",
        versions=documents.record.versions if documents.record is not None else {},
        lineage=str(graph(last.url, last.version)),
    )


def _has_unknown(filters: Sequence[StoredFilter]) -> bool:
    """Return whether a stage has not judged, or not measured, documents that an earlier one rejected."""
    later = filters[1:]
    return any(judge.is_opaque or judge.seen_from > 1 for judge in later)


def _lengths(tokens: Table) -> Distribution | None:
    """Return the distribution of the numbers of tokens in some data files, by the log in all of them."""
    files = tokens.data_files(["path", "vector", "rows"])
    total = sum(files["rows"].to_pylist())
    parts: Counter[int] = Counter()
    for number, file in enumerate(shuffled_files(files, seed=0)):
        if number == _LENGTH_FILES or parts.total() >= _LENGTH_ROWS:
            break
        rows = read_live_rows(tokens.url, file, ["num_tokens"])
        parts.update(dict(pl.DataFrame(rows)["num_tokens"].value_counts().iter_rows()))
    if not parts:
        return None
    values = np.repeat(np.array([*parts], np.float64), np.array([*parts.values()]))
    axis = Axis.over(values, [])
    counts = np.bincount(axis.bins_of(values), minlength=axis.bins) * (total / len(values))
    median, high = np.quantile(values, [0.5, 0.95]).tolist()
    return Distribution(
        name="num_tokens",
        unit="tokens per document",
        axis=axis,
        counts={KEPT: counts},
        median=median,
        high=high,
        missing=0.0,
        limits=[],
    )
