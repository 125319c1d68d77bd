"""Read records of units of work again, from the input files that a lake has read them from."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from etl.errors import SourceError
from etl.lake.held_tables import HeldTables
from etl.lake.known_files import HeldFiles, identify_files
from etl.lake.ledger import Ledger
from etl.lake.work_units import split_key
from etl.recipe.recipe import Recipe
from etl.sources import Split
from etl.sources.content_digests import RowsDigest
from etl.sources.list_splits import cut_files, list_source
from etl.sources.read_split import read_split

_BATCH_BYTES = 16 << 20  # of text


class InputUnit(NamedTuple):
    """The part of an input file that a unit of work has read, and the digest of its rows then."""

    split: Split
    digest: int | None

    def read(self, recipe: Recipe, rows: Collection[int]) -> Iterator[pa.Table]:
        """Yield the records with some row numbers, in batches of ``schemas.RAW``.

        Raises SourceError if the file cannot be read, or if its rows are not those that the lake has read.
        """
        digest, wanted = RowsDigest(), pa.array(sorted(rows), pa.int64())
        for batch in read_split(self.split, recipe.source, batch_bytes=_BATCH_BYTES):
            digest.update(batch)
            chosen = batch.filter(pc.is_in(batch["row"], wanted))
            if chosen.num_rows:
                yield chosen
        if self.digest is not None and digest.value() != self.digest:
            raise SourceError(
                "the file has other rows than the lake has read from it",
                where=self.split.uri,
                hint="run the old recipe with --replace-changed first",
            )


def find_inputs(
    recipe: Recipe, documents: Ledger, texts: Ledger, first_rows: Mapping[str, int]
) -> dict[str, InputUnit]:
    """Return the parts of input files that some units of ``documents`` have read, by key.

    ``first_rows`` has the first row number of each of these units. Units whose files are not listed any more,
    or are listed as changed, have no entry. Raises SourceError as ``list_source`` does.
    """
    lake = str(recipe.lake)
    held = HeldTables(documents, texts)
    listing = list_source(recipe.source, held.read_before(lake), lake=lake)
    inputs = documents.inputs
    known = identify_files(listing.files, recipe.source, inputs, documents.table, postpones=False)
    addresses = HeldFiles(documents.table, inputs).by_identity()
    found: dict[str, InputUnit] = {}
    for split in cut_files(known.files, recipe.source, inputs.parts):
        key = split_key(documents, split)
        if key not in first_rows or key in found:
            continue
        first_row = first_rows[key] if split.first_row is None else split.first_row
        address = addresses.get(split.identity)
        found[key] = InputUnit(
            replace(split, first_row=first_row, address=address),
            inputs.rows_digest(split.identity, split.start, split.stop),
        )
    return found
