"""The rows that a lake holds of the data files of Delta tables in its source."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property, partial

from etl import storage
from etl.lake.ledger import Ledger
from etl.lake.source_moves import read_moves
from etl.lake.table_versions import live_inputs, read_versions
from etl.lake.unit_files import unit_files
from etl.sources.formats.delta import ReadBefore, name_in_table


class HeldTables:
    """What ``documents`` holds of tables that are listed, wherever they were when they were read."""

    def __init__(self, documents: Ledger, texts: Ledger) -> None:
        self._documents = documents
        self._texts = texts
        self._addresses: dict[str, str] = {}  # of each file of the listed tables, by its URI of now

    def read_before(self, lake: str) -> ReadBefore:
        """Return what the listing of a source needs to know of a lake."""
        return ReadBefore(self._rows_of, self._others_below, partial(read_moves, lake))

    def followed(self) -> set[str]:
        """Return the addresses of the files whose rows were found in the listed tables, or missed there."""
        return {address for address in self._addresses.values() if self._rows[address]}

    def addresses_of(self, removed: Mapping[str, str]) -> dict[str, str]:
        """Return what happened to files, by address, given by the URIs that they would have now."""
        return {self._addresses.get(uri, uri): what for uri, what in removed.items()}

    def _rows_of(self, url: str, table_id: str) -> dict[str, int]:
        rows = dict[str, int]()
        for address, count in self._rows.items():
            if (path := self._path_in(url, table_id, address)) is not None:
                uri = storage.join(url, path)
                rows[uri] = count
                self._addresses[uri] = address
        return rows

    def _others_below(self, url: str, table_id: str) -> list[str]:
        below = (a for a, rows in self._rows.items() if rows and a.startswith(f"{url}/"))
        return sorted(a for a in below if self._path_in(url, table_id, a) is None)

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        """The rows of each known input file whose texts are there, too, by address.

        A file has none while its documents lack their texts, or since a repair has dropped them.
        """
        rows: Counter[str] = Counter()
        table = self._documents.table
        if table is None:
            return rows
        for file in unit_files(table):
            is_whole = self._texts.is_done(self._texts.key(file["unit"]))
            if file["rows"]:
                rows[file["min.source"]] += file["rows"] if is_whole else 0
        # Only the lineage records name files without rows, and reading all records takes a while. In the
        # first epoch, no rows were dropped.
        if self._documents.lake_epoch and self._documents.inputs.num_identities() > len(rows):
            dropped = live_inputs(read_versions(table)).rows().keys() - rows.keys()
            rows.update(dict.fromkeys(dropped, 0))
        return rows

    def _path_in(self, url: str, table_id: str, address: str) -> str | None:
        """Return the path of a file in a table, if it was read from that table, wherever that was."""
        inputs = self._documents.inputs
        identity = inputs.identity_of(address)
        if identity is None or identity != inputs.hash_identity(address, table_id):
            return None
        if address.startswith(f"{url}/"):
            return address[len(url) + 1 :]
        folders = address.split("/")
        paths = ("/".join(folders[start:]) for start in range(1, len(folders)))
        names = ((path, name_in_table(table_id, path)) for path in paths)
        return next((path for path, name in names if inputs.identity_of(name) == identity), None)
