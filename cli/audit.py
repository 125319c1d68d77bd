"""The commands of auditors: what a lake holds, where it came from, what other rules would keep."""

from typing import Annotated, Any

import typer

from etl.cli import options

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl history lake/documents",
    )
)
def history(table: options.TableArgument, *, as_json: options.AsJson = False) -> None:
    """List the versions of a table, newest first: who made each, and what came with it."""
    from etl.audit.lineage_graph import history as read_history
    from etl.cli import render

    render.output(read_history(table), render.versions, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl show lake/documents --columns id,reason,text --limit 3",
        "etl show lake/tokens --version 2",
    )
)
def show(
    table: options.TableArgument,
    *,
    at_version: options.AtVersion = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="A point in time, as 2026-10-01T12:00 (UTC).")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many rows.")] = 5,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these columns, as id,reason.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the schema, the size and the first rows of a table."""
    from etl.audit.row_lookup import read_first_rows
    from etl.cli import render
    from etl.lake.open_table import open_table
    from etl.lake.releases import check_not_vacuumed

    if at_version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    opened = open_table(
        table, _number(table, at_version) if timestamp is None else _time(timestamp)
    )
    if at_version is not None or timestamp is not None:
        check_not_vacuumed(opened)
    rows = read_first_rows(opened, limit, columns.split(",") if columns else None)
    render.output(render.table_facts(opened, rows), render.table, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl diff lake/documents 3 7",
    )
)
def diff(
    table: options.TableArgument,
    old: Annotated[str, typer.Argument(help="The version (or release) to compare with.")],
    new: Annotated[str, typer.Argument(help="The version (or release) to look at.")],
    *,
    as_json: options.AsJson = False,
) -> None:
    """Say what changed between two versions of a table, and why."""
    from etl.audit.diff import diff as compare
    from etl.cli import render
    from etl.lake.releases import version_of

    found = compare(table, version_of(table, old), version_of(table, new))
    render.output(found, render.difference, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl lineage lake/tokens",
        "etl lineage lake/tokens --openlineage > events.jsonl",
    )
)
def lineage(
    table: options.TableArgument,
    *,
    at_version: options.AtVersion = None,
    openlineage: Annotated[
        bool, typer.Option("--openlineage", help="Print OpenLineage run events, one a line.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw what a table was made from, down to the input files."""
    from etl.audit.lineage_graph import graph
    from etl.audit.openlineage import run_events
    from etl.cli import render

    node = graph(table, _number(table, at_version))
    if openlineage:
        for event in run_events(node):
            typer.echo(render.as_json(event, indent=None))
        return
    render.output(node, lambda found: found.lines(), to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl trace lake --id doc-17",
        "etl trace lake --source data/a.parquet --row 12",
    )
)
def trace(
    lake: options.LakeArgument,
    *,
    document: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The document's id.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URI", help="The input file that holds it: a URL or a path."),
    ] = None,
    row: Annotated[
        int | None, typer.Option(min=0, help="Its ordinal in that file, from 0.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Follow one document from its input file to its tokens, or to the reason why it has none."""
    from etl.audit.lineage_graph import trace as follow
    from etl.cli import render

    if (document is None) == (source is None) or (source is None) != (row is None):
        raise typer.BadParameter("give --id ID, or --source URI and --row N")
    render.output(follow(lake, id=document, source=source, row=row), render.traces, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl verify lake",
        "etl verify lake --quick",
    )
)
def verify(
    lake: options.LakeArgument,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read the logs and the footers alone, and no values.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check that a lake is whole: every file there, every count right, the tables of one mind.

    Prints each problem and the data file that has it; the exit code is 1 if there is any.
    """
    from etl.audit.verify.verify import verify as check
    from etl.cli import render

    problems = check(lake, quick=quick)
    render.output(problems, render.problems, to_json=as_json)
    if problems:
        raise typer.Exit(1)


@app.command(
    epilog=options.examples(
        "etl report lake",
    )
)
def report(lake: options.LakeArgument, *, as_json: options.AsJson = False) -> None:
    """Count what is in a lake: rows, reasons, duplicates, tokens, languages, input files."""
    from etl.audit.lake_report import report as count
    from etl.cli import render

    render.output(count(lake), render.lake_report, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl duplicates lake",
        "etl duplicates lake --top 3 --json",
    )
)
def duplicates(
    lake: options.LakeArgument,
    *,
    top: Annotated[int, typer.Option(min=0, help="How many clusters and pairs to show.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Say which documents were left out for which: clusters, sources, languages, tokens saved.

    A ~ stands before an estimate.
    """
    from etl.audit.duplicates.duplicate_report import duplicates as count
    from etl.cli import render, render_duplicates

    render.output(count(lake, top=top), render_duplicates.duplicates, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl tune lake --set gopher_quality.min_words=80",
        "etl tune lake --sweep gopher_quality.min_words=20,50,80,100",
    )
)
def tune(
    lake: options.LakeArgument,
    *,
    settings: options.Settings = None,
    over: Annotated[
        str | None,
        typer.Option("--sweep", metavar="KEY=A,B,C", help="Try each of these values of a setting."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what other thresholds would keep, from stored signals: no text is read.

    Counts are those that a run with these settings gives; a ~ stands before an estimate.
    """
    from etl.audit.tune.tune import sweep
    from etl.audit.tune.tune import tune as judge
    from etl.cli import render, render_tuning

    if over is not None:
        found = sweep(lake, over, settings or ())
        render.output(found, render_tuning.sweep, to_json=as_json)
    elif settings:
        render.output(judge(lake, settings), render_tuning.tuning, to_json=as_json)
    else:
        raise typer.BadParameter("give --set KEY=VALUE or --sweep KEY=A,B,C")


@app.command(
    epilog=options.examples(
        "etl replay lake --state checkpoint.pt --batch-size 8",
        "etl replay lake --seq-len 2048 --step 1200 --rank 3 --world-size 16 --batch-size 8",
        "etl replay web=lake/web code=lake/code --state checkpoint.pt --batch-size 8",
    )
)
def replay(  # noqa: PLR0913 - a command has as many parameters as options
    lakes: Annotated[
        list[str],
        typer.Argument(
            metavar="LAKE...",
            envvar="TOKENLAKE_LAKE",
            help="The URL or path of the lake; of a mixture NAME=LAKE for each source.",
        ),
    ],
    *,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A loader's state, as JSON or inside a torch checkpoint."
        ),
    ] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, help="Tokens of a window.")] = None,
    seed: Annotated[int, typer.Option(help="The loader's seed.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch.")] = 0,
    at_version: options.AtVersion = None,
    step: Annotated[
        int,
        typer.Option(help="Steps from the epoch's beginning, or from the state; -1 is before it."),
    ] = 0,
    rank: Annotated[int, typer.Option(min=0, help="Whose batch.")] = 0,
    world_size: Annotated[int, typer.Option(min=1, help="Of how many ranks.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a batch, on one rank.")] = 1,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TOKENLAKE_TOKENIZER",
            help="The tokenizer.json that made the ids, to see text.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Say which documents a training batch was made of, and show their text: to read a loss spike.

    The batch is told by a saved state, or, if it is of one table and was shuffled as is the default, by the
    numbers that the loader was opened with.
    """
    from etl.cli import render, render_replay
    from etl.loader import TokenDataset, TokenMixture
    from etl.loader import replay as again

    if (state is None) == (seq_len is None):
        raise typer.BadParameter("give --state FILE or --seq-len N")
    dataset: TokenDataset | TokenMixture
    if state is not None:
        saved = again.read_state(state)
        dataset = again.open_saved(lakes, saved, rank=rank, world_size=world_size)
    elif len(lakes) > 1:
        raise typer.BadParameter("give the --state of a mixture")
    else:
        assert seq_len is not None
        dataset = TokenDataset(
            lakes[0],
            seq_len=seq_len,
            version=at_version,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        dataset.set_epoch(epoch)
    found = again.replay(dataset, batch_size=batch_size, step=step, tokenizer=tokenizer)
    render.output(found, render_replay.replay, to_json=as_json)


def _number(table: str, at_version: str | None) -> int | None:
    """A version as it was given: its number, a release, or none for the newest."""
    from etl.lake.releases import version_of

    return None if at_version is None else version_of(table, at_version)


def _time(text: str) -> Any:
    """A point in time; without a zone it is UTC."""
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write it as 2026-10-01T12:00") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
