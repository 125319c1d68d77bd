"""Strike rows of token tables by their addresses."""

from collections.abc import Collection

import pyarrow.parquet as pq

from etl.delta.table import Table
from tests.helpers.paths import at

Address = tuple[str, int]


def strike(url: str, addresses: Collection[Address]) -> Table:
    """Commit that the rows with these addresses are struck, and no others; return the table."""
    table = Table.open(url)
    positions = {}
    for file in table.files("path", "vector"):
        with at(f"{url}/{file['path']}").open("rb") as source:
            rows = pq.read_table(source, columns=["source", "row"]).to_pylist()
        struck = [i for i, row in enumerate(rows) if (row["source"], row["row"]) in addresses]
        if struck or file["vector"] is not None:
            positions[file["path"]] = struck
    return table.commit(table.strike(positions), remove=positions, transactions={})
