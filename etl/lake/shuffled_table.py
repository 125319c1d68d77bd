"""The table ``tokens_shuffled``: the rows of a version of ``tokens`` in a random order.

The table of each named tokenizer may have such a table, too.

Each row has a random key, a hash of a seed and its address, and rows are in the order of their keys. It
therefore depends on the rows and the seed alone, not on the files of ``tokens``, on the buckets of the
shuffle or on the cluster. The rows of later versions are added in parts. A part has its own files, whose
row groups readers place among the others by their keys.

The log records a part as a unit of work: its key names the version of ``tokens`` before the part, and its
number is the version after it. So each version has one successor: the first that is committed.
"""

import numpy as np
import numpy.typing as npt

from etl import schemas, storage
from etl.delta.table import Table
from etl.lake.commit_info import find_record
from etl.lake.ledger import Describe, Ledger
from etl.lake.ledger_entry import Drop
from etl.lake.table_specs import SHUFFLED


class ShuffledTable:
    """The shuffled table next to a table of tokens, for one seed.

    ``fits`` says whether its rows are the rows of a version of ``tokens``: no row of that was dropped
    since, and no other program has changed the table.
    """

    def __init__(self, tokens: Ledger, *, seed: int, table: Table | None = None) -> None:
        """Open the table at its newest version, or take an open one."""
        lake, _, name = tokens.url.rpartition("/")
        self.name = schemas.shuffled_of(name)
        fingerprint = tokens.key(self.name, seed)
        url = storage.join(lake, self.name)
        self.ledger = Ledger(url, fingerprint=fingerprint, table=table)
        is_other = self.ledger.table is None or self.ledger.is_other_recipe
        self.fits = not is_other and self.ledger.foreign_changes() is None
        self.seed = seed
        self._lake_epoch = tokens.lake_epoch

    def part_key(self, version: int) -> str:
        """Return the key of the part that follows a version of ``tokens``."""
        return self.ledger.key("part", version)

    def versions(self) -> list[int]:
        """Return the version of ``tokens`` after each part, oldest first, after a 0."""
        # A chain: the key of a part hashes the version of ``tokens`` before it, and its arrival is the
        # version after it. Parts 0 to 4 and 4 to 9 have the keys of 0 and 4, and the arrivals 4 and 9.
        versions = [0]
        while self.fits and self.ledger.is_done(key := self.part_key(versions[-1])):
            versions.append(self.ledger.arrival_of(key) or 0)
        return versions

    @property
    def tokens_version(self) -> int:
        """The version of ``tokens`` whose rows the table holds; 0: none."""
        return self.versions()[-1]

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.versions()) - 1

    def create(self) -> None:
        """Create the table unless it exists; raise MismatchError if that is in another epoch."""
        if self.ledger.table is None:
            self.ledger.create(schemas.TOKENS, SHUFFLED.layout, lake_epoch=self._lake_epoch)
            self.fits = True
        elif self.ledger.lake_epoch != self._lake_epoch:
            raise self.ledger.other_epoch()

    def drop(self, describe: Describe) -> None:
        """Drop all rows; nothing is derived from them, so that this starts no epoch.

        Raises ConflictError if any commit came since the table was opened.
        """
        drop = Drop(rebuild=(schemas.TOKENS, SHUFFLED.layout))
        self.ledger.drop(drop, describe, lake_epoch=self._lake_epoch)
        self.fits = True


def seed_of(table: Table | None) -> int | None:
    """Return the seed that a table ``tokens_shuffled`` was written with, None if it never had rows."""
    record = None if table is None else find_record(table)
    return None if record is None else record.seed


def buckets_of(keys: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each key: the keys are divided into ``count`` equal ranges, below 2**32.

    >>> buckets_of(np.array([0, 2**63, 2**64 - 1], np.uint64), 3)
    array([0, 1, 2])
    """
    return ((keys >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)
