"""The tables of a shuffle: a table of tokens, whose rows it adds, and the shuffled table beside it.

The names ``tokens`` and ``tokens_shuffled`` also mean the tables of a named tokenizer here.
"""

from dataclasses import dataclass, replace
from typing import Self

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import MismatchError, TableError
from etl.job.shuffle_plan import has_older_strikes, new_files
from etl.lake.lake_epochs import current_lake_epoch
from etl.lake.ledger import Ledger
from etl.lake.missing_tables import tables_of
from etl.lake.open_ledger import find_ledger, open_ledger, refuse_foreign_changes
from etl.lake.open_table import find_table
from etl.lake.shuffled_table import ShuffledTable, seed_of
from etl.lake.table_names import token_tables


@dataclass(frozen=True)
class ShuffleTables:
    """The tables of a shuffle at the versions that were the newest when they were opened."""

    tokens: Ledger
    shuffled: ShuffledTable

    @classmethod
    def open(cls, url: str, *, seed: int | None, rebuild: bool) -> Self:
        """Open the newest versions for the URL of a table of tokens; the default seed is the table's, or 0.

        Raises TableError if the table does not exist, MismatchError if the shuffled table has another seed
        and is not rebuilt, or if another process drops rows.
        """
        lake, _, name = url.rpartition("/")
        table = find_table(url)
        if table is None:
            hint = "check the URL, and run a recipe that ends with `tokenize`"
            if named := [storage.join(lake, each) for each in token_tables(tables_of(lake))]:
                hint = f"its tokenizers have names: use {' or '.join(named)}"
            raise TableError(f"the lake has no table {name}", where=lake, hint=hint)
        current_lake_epoch(lake)  # raises if rows are being dropped
        is_empty = next(table.files("path", by=()), None) is None
        no_rows = Ledger(table.url, fingerprint="", table=table) if is_empty else None
        tokens = find_ledger(table) or no_rows or open_ledger(table)
        refuse_foreign_changes(tokens)
        shuffled = storage.join(lake, schemas.shuffled_of(name))
        existing = find_table(shuffled)
        recorded = seed_of(existing)
        if seed is not None and recorded not in (None, seed) and not rebuild:
            raise MismatchError(
                f"the table was shuffled with seed {recorded}, not {seed}",
                where=shuffled,
                hint=f"pass --rebuild to shuffle it again, or --seed {recorded} to add new rows",
            )
        seed = (recorded or 0) if seed is None else seed
        return cls(tokens, ShuffledTable(tokens, seed=seed, table=existing))

    def newest(self) -> Self:
        """Return the newest versions; raise MismatchError if rows were dropped since these were opened."""
        self.tokens.refresh()
        shuffled = ShuffledTable(self.tokens, seed=self.shuffled.seed)
        if not shuffled.fits or shuffled.ledger.lake_epoch != self.tokens.lake_epoch:
            raise self.tokens.other_epoch()
        return replace(self, shuffled=shuffled)

    @property
    def tokens_table(self) -> Table:
        """The table ``tokens``."""
        assert self.tokens.table is not None
        return self.tokens.table

    def must_begin(self, *, rebuild: bool) -> bool:
        """Return whether to write ``tokens_shuffled`` as a whole, as it has rows that ``tokens`` lacks."""
        shuffled = self.shuffled
        if rebuild or not shuffled.fits:
            return True
        return has_older_strikes(self.tokens_table, shuffled.tokens_version)

    def bytes_to_shuffle(self, *, rebuild: bool) -> int | None:
        """Return the bytes of the tokens to shuffle; None if nothing is to be done."""
        begins = self.must_begin(rebuild=rebuild)
        first = 0 if begins else self.shuffled.tokens_version
        files = list(new_files(self.tokens_table, first))
        return 4 * sum(file.tokens for file in files) if files or begins else None

    def total(self, column: str) -> int:
        """Return the sum of a column of the data files of ``tokens_shuffled``."""
        table = self.shuffled.ledger.table
        assert table is not None
        files = table.data_files()
        return sum(files[column].to_pylist()) if files.num_rows else 0
