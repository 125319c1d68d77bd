"""A Delta table is read while its owner appends, compacts and deletes: the lake has each of its rows once."""

import random
from collections import Counter
from itertools import count

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.chaos.drivers import Driver
from tests.chaos.oracle import check_complete, settle
from tests.chaos.overlap import random_stop
from tests.chaos.pauses import Paused
from tests.chaos.seeds import MANY
from tests.chaos.small_site import SmallSite
from tests.chaos.texts import Row, random_rows

_CHANGES = (*("append", "compact") * 3, "delete", "delete_file", "restore")
_SCHEMA = pa.schema({"doc_id": pa.string(), "body": pa.string(), "link": pa.string()})


class OwnedTable:
    """The Delta table that a recipe reads, written by another engine."""

    def __init__(self, site: SmallSite) -> None:
        self._site = site
        self._url = str(site.raw)
        self._numbers = count()
        self.rows: list[Row] = []

    @property
    def ids(self) -> list[str]:
        """The ids of the rows that the table has now."""
        return [
            str(name) for name in DeltaTable(self._url).to_pyarrow_table()["doc_id"].to_pylist()
        ]

    def change(self, change: str, rng: random.Random) -> None:
        """Change the table, always leaving some rows."""
        if change == "append" or len(self.ids) < 4:
            self._append(rng)
        elif change == "compact":
            DeltaTable(self._url).optimize.compact()
        elif change == "delete":
            DeltaTable(self._url).delete(f"doc_id = '{rng.choice(self.ids)}'")
        elif change == "delete_file":
            content = rng.choice(self.ids).partition("-")[0]
            if any(not name.startswith(f"{content}-") for name in self.ids):
                DeltaTable(self._url).delete(f"doc_id LIKE '{content}-%'")
        else:
            self._restore(rng)

    def _append(self, rng: random.Random) -> None:
        name = f"p{next(self._numbers)}"
        rows = random_rows(rng, name)
        self._site.past[name] = [(rows, 0)]
        records = pa.Table.from_pylist([row.record for row in rows], _SCHEMA)
        write_deltalake(self._url, records, mode="append")

    def _restore(self, rng: random.Random) -> None:
        newest = DeltaTable(self._url).version()
        if newest:
            DeltaTable(self._url).restore(rng.randrange(max(newest - 3, 0), newest))


@pytest.mark.parametrize("seed", [0, 1, *MANY])
@pytest.mark.slow
def test_rows_are_read_once(
    seed: int, small: SmallSite, first: Driver, second: Driver, faults: Counter[str]
) -> None:
    rng = random.Random(f"compacted {seed}")
    table = OwnedTable(small)
    table.change("append", rng)
    for _ in range(rng.randrange(3, 7)):
        change = rng.choice(_CHANGES)
        if rng.random() < 0.5:
            table.change(change, rng)
            happened = f"{change}, no run"
        else:
            answer = first.start(rng.choice(("plain", "replace_changed")), small, random_stop(rng))
            table.change(change, rng)
            is_killed = isinstance(answer, Paused) and rng.random() < 0.3
            if is_killed:
                first.kill()
            elif isinstance(answer, Paused):
                first.resume()
            happened = f"{answer}, {change}, {'killed' if is_killed else 'continued'}"
        print(happened)  # noqa: T201
        faults["changes of a Delta source"] += 1
    settle(small, second)
    check_complete(small, table.ids)
