"""`etl replay`: print the documents and the text of a training batch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.cli.own_transforms import Transforms, load_transforms

if TYPE_CHECKING:
    from etl.loader.replay import Passage, Replay

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl replay lake --state checkpoint.pt --step -1",
        "etl replay lake --seq-len 2048 --step 1200 --rank 3 --world-size 16 --batch-size 8",
        "etl replay web=lake/web code=lake/code --state checkpoint.pt --step -1",
    )
)
def replay(  # noqa: PLR0913 - one parameter per option
    lakes: options.LakesArgument,
    *,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The saved state of a loader: JSON, or a torch checkpoint."
        ),
    ] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, help="Tokens in a window.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the loader.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch.")] = 0,
    at_version: options.AtVersion = None,
    step: Annotated[
        int,
        typer.Option(
            help="Steps from the state or from the start of the epoch; negative: before the state."
        ),
    ] = 0,
    rank: Annotated[int, typer.Option(min=0, help="The rank whose batch is printed.")] = 0,
    world_size: Annotated[int, typer.Option(min=1, help="The number of ranks.")] = 1,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rows per batch, on one rank; by default as the state records it."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TOKENLAKE_TOKENIZER",
            help="The tokenizer.json that encoded the text; needed to print it.",
        ),
    ] = None,
    transforms: Transforms = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the documents and the text of a training batch.

    Helps to explain a spike of the loss. Give the state that the loader saved or, for a single table in
    default shuffle order, the numbers that the loader was opened with. The workers of a loader do not
    matter. The line "order" says which batch size, ranks and beginning of the pass the answer rests on,
    and whether the state records them.
    """
    from etl.loader import Shard, TokenDataset, TokenMixture
    from etl.loader.replay import open_saved, read_state
    from etl.loader.replay import replay as replay_batch

    if (state is None) == (seq_len is None):
        raise typer.BadParameter("give either --state FILE or --seq-len N")
    if transforms and state is None:
        raise typer.BadParameter("--transform needs --state FILE")
    shard = Shard(rank=rank, world_size=world_size)
    dataset: TokenDataset | TokenMixture
    if state is not None:
        own = load_transforms(transforms or ())
        dataset = open_saved(lakes, read_state(state), shard=shard, transforms=own)
    elif len(lakes) > 1:
        raise typer.BadParameter("a mixture needs --state FILE")
    else:
        assert seq_len is not None
        dataset = TokenDataset(
            lakes[0],
            seq_len=seq_len,
            version=at_version,
            seed=seed,
            shard=shard,
        )
        dataset.set_epoch(epoch)
    batch = replay_batch(dataset, batch_size=batch_size, step=step, tokenizer=tokenizer)
    output.print_result(batch, lines, as_json=as_json)


def lines(batch: "Replay") -> Iterator[str]:
    """Yield the tables of a batch, and for each row its documents and the beginning of their text."""
    yield f"batch       epoch {batch.epoch}, rank {batch.rank} of {batch.world_size}"
    yield f"order       {batch.order}"
    for source in batch.sources:
        if source.name is not None:
            yield f"source      {source.name}"
        yield f"table       {source.table} version {source.version}"
        if source.tokenizer is not None:
            yield f"tokenizer   {source.tokenizer.name}, sha256 {source.tokenizer.sha256}"
    for number, row in enumerate(batch.rows):
        origin = "" if row.source is None else f" of {row.source}"
        yield ""
        yield f"row {number} (sample {row.sample:,}){origin}"
        for passage in row.passages:
            yield from _passage(passage)


def _passage(passage: "Passage") -> Iterator[str]:
    span = passage.span
    name = f" (id {span.id})" if span.id is not None else ""
    stop = span.document_start + span.count
    yield f"  {span.source} row {span.row}{name}"
    yield f"    tokens {span.document_start:,} to {stop:,}, at position {span.start:,} of the window"
    if passage.text is not None:
        yield f"    {output.cell(passage.text)}"
