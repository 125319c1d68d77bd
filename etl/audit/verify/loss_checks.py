"""Check that no sample of a training run counts twice in the table ``losses``.

Memory: 8 bytes for each row.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from etl.audit.duplicates.rows_by_source import read_batches
from etl.audit.verify.file_checks import Problem
from etl.delta.table import Table

_KEY: Final = ("run", "plan", "epoch", "sample", "source", "row", "start")
_SEED: Final = 0


def check_losses(losses: Table) -> Iterator[Problem]:
    """Yield a problem if a part of a document is in several rows of the same sample of a run."""
    hashes = [
        pl.DataFrame(batch).select(_KEY).hash_rows(seed=_SEED).to_numpy()
        for batch in read_batches(losses, _KEY)
    ]
    keys = np.sort(np.concatenate([np.zeros(0, np.uint64), *hashes]))
    if repeated := int((keys[1:] == keys[:-1]).sum()):
        what = f"{repeated} rows repeat a part of a document in the same sample of a run"
        yield Problem("losses", None, what)
