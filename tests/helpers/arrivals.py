"""Corpora with all kinds of duplicates for runs over several arrivals, and the loss of their decisions."""

import random
from collections.abc import Callable

from etl.delta.table import Table
from etl.lake.lake_epochs import all_ledgers, drop_all, start_lake_epoch
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.open_ledger import find_ledger
from etl.lake.table_specs import DUPLICATES
from etl.lake.work_units import kept_units
from etl.parquet.data_file import DataFileWriter
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash, DedupParagraphs
from tests.helpers.near_duplicates import Record, tangled, words

NEAR = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7)
LONGEST = NEAR.model_copy(update={"keep": "longest"})
LINES = DedupParagraphs(unit="lines", min_chars=12, min_rest_chars=60)


def corpus(rng: random.Random, size: int) -> list[Record]:
    """Return documents that are similar to others, equal to others, or have lines of others."""
    records = tangled(rng.randrange(10**9), size)
    lines = [" ".join(words(1000 + k, 4)) for k in range(8)]
    for k, record in enumerate(records):
        fate = rng.random()
        if fate < 0.3:
            record["body"] = rng.choice(records)["body"]
        elif fate < 0.6:
            own = [" ".join(words(2000 + 10 * k + j, 4)) for j in range(rng.randrange(4))]
            body = [*rng.choices(lines, k=rng.randrange(1, 5)), *own]
            rng.shuffle(body)
            record["body"] = "\n".join(body)
    return records


def forget(recipe: Recipe, is_forgotten: Callable[[str], bool], *, with_keys: bool) -> None:
    """Drop the decisions on the rows of some sources, and the keys, as a repair does."""
    lake = all_ledgers(str(recipe.lake))
    duplicates = find_ledger(Table.open(recipe.table_url("duplicates")))
    documents = Table.open(recipe.table_url("documents"))
    assert duplicates is not None
    assert duplicates.table is not None
    keys = {duplicates.key(u.key) for u in kept_units(documents) if is_forgotten(u.source)}
    table = duplicates.table.dataset().to_table()
    remaining = [not is_forgotten(source) for source in table["source"].to_pylist()]
    name = duplicates.key("forget", *sorted(keys))
    writer = DataFileWriter(duplicates.url, table.schema, DUPLICATES.layout, name=name)
    writer.append(table.filter(remaining))
    paths = [file["path"] for file in duplicates.table.files("path")]
    drops = {"duplicates": Drop(paths=paths, keys=keys, add=[LedgerEntry(name, writer.close())])}
    if with_keys:
        drops["keys"] = drop_all(lake["keys"])
    start_lake_epoch({**lake, "duplicates": duplicates}, drops, lambda *_: None)
