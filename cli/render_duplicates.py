"""What ``etl duplicates`` prints."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl.cli.render import cell, columns

if TYPE_CHECKING:
    from etl.audit.duplicates.duplicate_report import Cluster, DuplicateReport, Saved
    from etl.audit.duplicates.removed_passages import CutTotals


def duplicates(report: "DuplicateReport") -> Iterator[str]:
    """The duplicates of a lake."""
    yield f"lake        {report.lake}"
    for kind, count in report.kinds.items():
        yield f"  {kind:<32} {count:,}"
    yield f"clusters    {report.clusters:,}, by the number of their documents"
    for size, count in report.sizes.items():
        yield f"  {size:<32} {count:,}"
    yield f"saved       {_saved(report.saved)}"
    for name, saved in report.languages.items():
        yield f"  {name:<32} {_saved(saved)}"
    if report.cuts is not None:
        yield from _cuts(report.cuts)
    if report.pairs:
        yield ""
        rows = [[pair.source, pair.keeper_source, f"{pair.documents:,}"] for pair in report.pairs]
        if report.other_pairs:
            rows.append(["others", "", f"{report.other_pairs:,}"])
        yield from columns([f"left out ({report.by})", "kept", "documents"], rows, numbers=[2])
    for cluster in report.largest:
        yield from _cluster(cluster)


def _saved(saved: "Saved") -> str:
    unknown = f", of {saved.unknown:,} not known" if saved.unknown else ""
    return f"{saved.documents:,} documents, ~{saved.tokens:,} tokens{unknown}"


def _cuts(cuts: "CutTotals") -> Iterator[str]:
    yield f"cut         {cuts.units:,} units, {cuts.chars:,} characters, of {cuts.documents:,} documents"
    if cuts.left_out:
        yield f"            {cuts.left_out:,} documents of which too little stays"
    if cuts.tokens is not None:
        yield f"            ~{cuts.tokens:,} tokens in all"


def _cluster(cluster: "Cluster") -> Iterator[str]:
    name = f" (id {cluster.id})" if cluster.id is not None else ""
    yield ""
    yield f"{cluster.size:,} documents: {cluster.source} row {cluster.row}{name}"
    yield f"  {cell(cluster.text)}"
    for member in cluster.members:
        yield f"  {member.kind} {member.similarity:.2f}  {member.source} row {member.row}"
    more = cluster.size - 1 - len(cluster.members)
    if more:
        yield f"  ... and {more:,} more"
