"""`etl doctor`: examine this machine, a store and a cluster."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.job.doctor import Diagnosis, Unusable

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl doctor",
        "etl doctor s3://bucket/lake --cluster k8s:cluster.yaml",
        "etl doctor --json > report.json",
    )
)
def doctor(
    lake: Annotated[
        str | None,
        typer.Argument(metavar="[LAKE]", help="A folder in which to create and delete a file."),
    ] = None,
    *,
    cluster: options.Cluster = None,
    tls: options.Tls = None,
    as_json: options.AsJson = False,
) -> None:
    """Examine this machine, a store and a cluster, for a bug report.

    Prints versions, the processor, where the machine code of kernels comes from, memory and disk. With a
    lake, tries to read, write and refuse a second writer there; with a cluster, tries what a run needs of it,
    and starts nothing; says when its certificates expire. Exits with 1 if one of them cannot be used.
    """
    from etl.job.doctor import doctor as examine

    diagnosis = examine(lake, cluster=cluster, tls=tls)
    output.print_result(diagnosis, lines, as_json=as_json)
    if diagnosis.has_problems:
        raise typer.Exit(output.FAILED)


def lines(found: "Diagnosis") -> Iterator[str]:
    """Yield the versions, the machine, and what was tried."""
    from etl.compute.certificates import expiry_warning
    from etl.job.doctor import Unusable

    yield f"tokenlake   {found.tokenlake}, Python {found.python}, {found.system}"
    yield f"libraries   {', '.join(f'{name} {version}' for name, version in found.versions.items())}"
    yield f"extras      {', '.join(name for name, lacks in found.extras.items() if not lacks) or 'none'}"
    for name, lacks in found.extras.items():
        if lacks:
            yield f"  {name} lacks {', '.join(lacks)}"
    yield f"processor   {found.processor} ({found.level}), {many(found.cores, 'core')}"
    yield f"memory      {found.memory / 1e9:,.1f} GB"
    for folder, free in found.free_disk.items():
        yield f"disk        {free / 1e9:,.1f} GB free in {folder}"
    counts = {place: len(names) for place, names in found.kernels.items()}
    rest = (
        f", {found.missing_kernels} to be compiled by `etl warm`" if found.missing_kernels else ""
    )
    yield f"kernels     {counts['shipped']} shipped, {counts['cached']} in the cache{rest}"
    if isinstance(found.store, Unusable):
        yield from problem("store", found.store)
    elif found.store is not None:
        ahead = found.store.clock_ahead_seconds
        clock = f"{abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}"
        works = f"read, write and conditional write work ({found.store.seconds:.2f} s)"
        yield f"store       {found.store.url}: {works}; its clock is {clock}"
    if isinstance(found.cluster, Unusable):
        yield from problem("cluster", found.cluster)
    elif found.cluster is not None:
        yield f"cluster     {found.cluster}"
    expire = found.certificates_expire
    if isinstance(expire, Unusable):
        yield from problem("tls", expire)
    elif expire is not None:
        warning = expiry_warning(expire)
        yield f"tls         {warning or f'the certificates expire on {expire:%Y-%m-%d}'}"


def problem(topic: str, found: "Unusable") -> Iterator[str]:
    """Yield what does not work, and its hint."""
    yield f"{topic:<12}error: {found.problem}"
    if found.hint is not None:
        yield f"  hint: {found.hint}"
