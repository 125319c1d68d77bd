"""`etl shuffle` sums the rows of both passes, starts again if they differ, and commits no other rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from distributed import Client

from etl import storage
from etl.compute import compute_frames
from etl.errors import ShuffleError
from etl.job import shuffle_tasks
from etl.job.bucket_files import read_bucket
from etl.job.shuffle import ShuffleSettings, shuffle
from tests.helpers.cluster import cluster
from tests.helpers.listeners import Recorder
from tests.helpers.shuffled_lakes import Documents, add_tokens, all_rows, shuffled_rows

DOCUMENTS: Documents = {f"s3://in/{i}": [3 * i + 5, 0, 40, 7] for i in range(12)}
SETTINGS = ShuffleSettings(bucket_bytes=256)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster() as client:
        yield client


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(compute_frames, "_PAUSE", 0.01)
    add_tokens(str(tmp_path / "lake"), DOCUMENTS)
    return str(tmp_path / "lake")


def lose(rows: pa.Table) -> pa.Table:
    return rows[1:]


def double(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows[:1]])


def change(rows: pa.Table) -> pa.Table:
    """Return rows of which each has the tokens of the one before, if they have as many."""
    tokens = [[token + 1 for token in tokens] for tokens in rows["tokens"].to_pylist()]
    index = rows.schema.get_field_index("tokens")
    return rows.set_column(
        index, rows.schema.field(index), pa.array(tokens, rows.schema.types[index])
    )


@pytest.mark.parametrize("fault", [lose, double, change])
@pytest.mark.parametrize("times", [1, 10**6])
def test_wrong_rows_are_shuffled_again_and_not_committed(
    client: Client, lake: str, monkeypatch: pytest.MonkeyPatch, fault: Any, times: int
) -> None:
    remaining = times

    def read(folder: str, file: Any, bucket: int) -> Iterator[pa.Table]:
        nonlocal remaining
        for rows in read_bucket(folder, file, bucket):
            is_hit = remaining > 0 and any(rows["num_tokens"].to_pylist())
            remaining -= is_hit
            yield fault(rows) if is_hit else rows

    monkeypatch.setattr(shuffle_tasks, "read_bucket", read)
    listener = Recorder()
    if times == 1:
        shuffle(lake, settings=SETTINGS, cluster=client, listener=listener)
        assert sum("starting again" in line for line in listener.lines) == 1
    else:
        with pytest.raises(ShuffleError, match=r"has written .* not the same .*attempt 4 of 4"):
            shuffle(lake, settings=SETTINGS, cluster=client, listener=listener)
        assert shuffled_rows(lake) == []
        remaining = 0
        shuffle(lake, settings=SETTINGS, cluster=client)
    assert sorted(shuffled_rows(lake)) == sorted(all_rows(DOCUMENTS))
    assert not storage.is_folder(f"{lake}/scratch")
