"""Tables of what runs need and cost, and of what each stage takes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from etl.cli.output import columns

if TYPE_CHECKING:
    from etl.job.prices import Prices
    from etl.lake.stage_costs import StageCost
    from etl.schemas import Usage


def costs(stages: Sequence["StageCost"]) -> Iterator[str]:
    """Yield a table of the worker seconds and the throughput of each stage, after a blank line."""
    rows = []
    for cost in stages:
        speed = cost.megabytes_per_second
        rejections = f"{cost.rejected:,}" if cost.rejected else ""
        shown = "" if speed is None else f"{speed:,.1f}"
        rows.append([cost.name, f"{cost.documents:,}", rejections, f"{cost.seconds:,.1f}", shown])
    if rows:
        yield ""
        header = ["stage", "documents", "rejected", "seconds", "MB/s"]
        yield from columns(header, rows, numbers=(1, 2, 3, 4))


def usage(
    columns_: Mapping[str, "Usage"], prices: "Prices", *, memory_per_worker: int | None = None
) -> Iterator[str]:
    """Yield a table of what a run needs, with a column for each of its usages: estimated, used."""
    header, *rows = usage_rows(columns_, prices, memory_per_worker=memory_per_worker)
    yield from columns(header, rows, numbers=range(1, len(header)))
    yield f"prices      {prices_note(prices)}"


def egress(reads: Mapping[str, int], prices: "Prices") -> Iterator[str]:
    """Yield what leaves each store, and what that costs where the workers are not in its region."""
    from etl.job.egress import egress_of

    for each in egress_of(reads, prices):
        costs = f"{each.to_region:,.4f} to another region, {each.to_internet:,.4f} to the internet"
        yield f"egress      {_size(each.read_bytes)} from {each.store}: {prices.currency} {costs}"


def prices_note(prices: "Prices") -> str:
    """Return what the costs are based on."""
    return f"{prices.name}, {prices.date}; a month: of the added storage"


def usage_rows(
    columns_: Mapping[str, "Usage"], prices: "Prices", *, memory_per_worker: int | None = None
) -> list[list[str]]:
    """Return the header and the rows of the table of ``usage``."""
    from etl.job.prices import cost_of

    usages = list(columns_.values())
    costs = [cost_of(each, prices) for each in usages]

    def row(name: str, values: Iterable[str]) -> list[str]:
        return [name, *values]

    rows = [row("core-hours", (f"{each.core_seconds / 3600:,.4f}" for each in usages))]
    if any(each.cpu_seconds for each in usages):
        shown = (f"{each.cpu_seconds / 3600:,.4f}" if each.cpu_seconds else "" for each in usages)
        rows.append(row("CPU-hours", shown))
    if memory_per_worker is not None:
        rows.append(row("memory per worker", [_size(memory_per_worker)]))
    rows += [
        row("read", (_size(each.read_bytes) for each in usages)),
        row("written", (_size(each.written_bytes) for each in usages)),
        row("storage added", (_size(each.stored_bytes) for each in usages)),
        row("S3 GET requests", (f"{each.read_requests:,}" for each in usages)),
        row("S3 PUT requests", (f"{each.write_requests:,}" for each in usages)),
        row(f"{prices.currency} on demand", (f"{cost.on_demand:,.4f}" for cost in costs)),
        row(f"{prices.currency} on spot", (f"{cost.spot:,.4f}" for cost in costs)),
        row(f"{prices.currency} a month", (f"{cost.storage_per_month:,.4f}" for cost in costs)),
    ]
    return [["cost", *columns_], *rows]


def _size(num_bytes: float) -> str:
    """Return a size with a unit of 1000 bytes and more.

    >>> _size(2_500_000), _size(512), _size(7_100_000_000_000)
    ('2.5 MB', '0.0 MB', '7.1 TB')
    """
    unit, name = next(
        (each for each in ((1e12, "TB"), (1e9, "GB")) if num_bytes >= each[0]), (1e6, "MB")
    )
    return f"{num_bytes / unit:,.1f} {name}"
