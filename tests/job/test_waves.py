"""What tasks raise reaches the user as an error of ours, and says which part of the work it was."""

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client

from etl.errors import StageError, StorageError
from etl.job.waves import compute

_META = pd.DataFrame({"result": pd.Series(dtype=object)})


def _raise(error: Exception) -> pd.DataFrame:
    raise error


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (OSError(28, "no space left"), StageError, r"keys: a task failed \(OSError\(28, 'no space"),
        (StorageError("cannot be written", where="s3://x"), StorageError, "^s3://x: cannot be wr"),
    ],
)
def test_errors_of_tasks(client: Client, raised, kind, text) -> None:
    frame = dd.from_map(_raise, [raised], meta=_META)
    with pytest.raises(kind, match=text):
        compute(client, frame, label="keys")
