"""The S3 server of the tests is real and is configured by the environment alone."""

import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
import s3fs

from etl import storage
from etl.delta.table import Table
from etl.errors import StorageError
from tests.helpers.s3_server import guarded


def test_a_file_is_written_listed_and_read(s3: str) -> None:
    uri = storage.join(s3, "folder", "hello.txt")
    with storage.open_output(uri) as file:
        file.write(b"hello")

    (entry,) = storage.find_files(s3)

    assert (entry.uri, entry.size) == (uri, 5)
    assert entry.fingerprint
    with storage.open_input(uri) as file:
        assert file.read() == b"hello"


def test_each_test_has_an_empty_bucket(s3: str) -> None:
    assert storage.find_files(s3) == []


def test_a_missing_file_is_a_storage_error(s3: str) -> None:
    with (
        pytest.raises(StorageError, match=r"missing\.txt"),
        storage.open_input(storage.join(s3, "missing.txt")),
    ):
        pass


def test_delta_rs_uses_the_same_environment(s3: str) -> None:
    url = storage.join(s3, "table")
    options = storage.delta_options(url)

    deltalake.write_deltalake(url, pa.table({"row": [0, 1]}), storage_options=options)
    deltalake.write_deltalake(url, pa.table({"row": [2]}), mode="append", storage_options=options)

    table = deltalake.DeltaTable(url, storage_options=options)
    assert table.version() == 1
    assert pa.table(table.to_pyarrow_table()).num_rows == 3


def test_wrong_credentials_are_a_storage_error(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = storage.join(s3, "table")
    deltalake.write_deltalake(
        url, pa.table({"row": [0]}), storage_options=storage.delta_options(url)
    )
    assert list(storage.file_sizes(storage.join(url, "_delta_log"))) == [
        "00000000000000000000.json"
    ]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    s3fs.S3FileSystem.clear_instance_cache()  # their credentials are those of the old environment
    with pytest.raises(StorageError, match="cannot be reached"):
        Table.exists(url)
    with pytest.raises(StorageError, match="cannot be listed"):
        Table.open(url)
    with pytest.raises(StorageError, match=r"cannot be read .*Forbidden"):
        storage.read_bytes(storage.join(url, "_delta_log", "00000000000000000000.json"))
    s3fs.S3FileSystem.clear_instance_cache()


def test_files_written_after_a_listing_are_read(s3: str) -> None:
    folder = storage.join(s3, "folder")
    storage.write_bytes(storage.join(folder, "a"), b"1")
    assert storage.file_sizes(folder) == {"a": 1}
    other = s3fs.S3FileSystem(skip_instance_cache=True)  # like another process
    other.pipe_file(storage.join(folder, "a"), b"12")
    other.pipe_file(storage.join(folder, "b"), b"3")
    assert storage.read_bytes(storage.join(folder, "a")) == b"12"
    assert storage.read_bytes(storage.join(folder, "b")) == b"3"


@pytest.mark.slow
def test_threads_read_and_list_concurrently(s3: str) -> None:
    folder = storage.join(s3, "folder")
    uris = [storage.join(folder, str(number)) for number in range(16)]
    for uri in uris:
        storage.write_bytes(uri, b"1")

    def list_and_read(number: int) -> int:
        num_files = len(storage.file_sizes(folder))
        for uri in uris[number % 8 :: 4]:
            assert storage.read_bytes(uri) == b"1"
            assert storage.file_size(uri) == 1
        return num_files

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads switch in the middle of an operation
    try:
        with ThreadPoolExecutor(16) as pool:
            assert set(pool.map(list_and_read, range(200))) == {16}
    finally:
        sys.setswitchinterval(interval)


def test_a_forked_child_does_not_keep_a_guarded_program_running(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    child = context.Process(target=time.sleep, args=(60,), daemon=True)
    with guarded(["sleep", "60"], tmp_path):
        child.start()
    assert child.is_alive()
    child.kill()
    child.join()
