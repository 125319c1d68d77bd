"""What `etl replay` prints: the rows of a batch, and the documents that each is made of."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl.cli.render import cell

if TYPE_CHECKING:
    from etl.loader.replay import Passage, Replay


def replay(found: "Replay") -> Iterator[str]:
    """A batch: each row's documents with their input rows, and how their text begins."""
    yield f"batch       epoch {found.epoch}, rank {found.rank} of {found.world_size}"
    for source in found.sources:
        if source.name is not None:
            yield f"source      {source.name}"
        yield f"table       {source.table} version {source.version}"
        if source.tokenizer is not None:
            yield f"tokenizer   {source.tokenizer.name}, sha256 {source.tokenizer.sha256}"
    for number, row in enumerate(found.rows):
        origin = "" if row.source is None else f" of {row.source}"
        yield ""
        yield f"row {number} (sample {row.sample:,}){origin}"
        for passage in row.passages:
            yield from _passage(passage)


def _passage(found: "Passage") -> Iterator[str]:
    part = found.part
    name = f" (id {part.id})" if part.id is not None else ""
    last = part.document_start + part.count
    yield f"  {part.source} row {part.row}{name}"
    yield f"    tokens {part.document_start:,} to {last:,} of it, at {part.start:,} of the window"
    if found.text is not None:
        yield f"    {cell(found.text)}"
