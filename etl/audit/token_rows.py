"""Look up the tokens of documents in the table of a tokenizer, with the commits that wrote them."""

from typing import Any

from etl.audit.row_lookup import find_rows, is_struck
from etl.audit.trace_records import RowLocation, TracedTokens, commit_of
from etl.delta.table import Table
from etl.lake.open_ledger import find_ledger
from etl.lake.table_versions import added_in, latest_record, read_versions


class TokenRows:
    """A table of tokens with the contents of its log."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._ledger = find_ledger(table)
        self._versions = read_versions(table)
        record = latest_record(self._versions)
        self.read = {} if record is None else {t.name: t.version for t in record.input_tables}
        """The versions of the tables that it was made from."""

    @property
    def change(self) -> int | None:
        """The number of the last change of the recipe that the table follows; None: no recipe made it."""
        return None if self._ledger is None else self._ledger.change

    def is_done(self, unit: str) -> bool:
        """Return whether the table holds a unit of work, given by its key in ``documents``."""
        return self._ledger is not None and self._ledger.is_done(self._ledger.key(unit))

    def is_struck(self, address: dict[str, Any]) -> bool:
        """Return whether the row of a document is struck."""
        return is_struck(self._table, address)

    def find(self, address: dict[str, Any]) -> TracedTokens | None:
        """Return the tokens of a document; None if it has none."""
        row = next(find_rows(self._table, address, ["num_tokens", "token_end"]), None)
        if row is None:
            return None
        commit = commit_of(added_in(self._table, row.path, self._versions[::-1]))
        return TracedTokens(
            location=RowLocation(file=row.path, row=row.number, commit=commit),
            first_token=row.values["token_end"] - row.values["num_tokens"],
            num_tokens=row.values["num_tokens"],
        )
