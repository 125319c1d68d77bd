"""A store that ignores or confuses ranges is reported by every reader; its bytes are never passed on."""

import gzip
import io
import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl import storage
from etl.errors import LoaderError, SourceError, StorageError
from etl.loader.fetch.range_requests import Ranges, Remote, read_footer
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split
from etl.sources.source_settings import Columns, Source
from etl.storage.range_checks import check_length, check_response
from tests.helpers.range_server import FAULTS, RangeServer, range_server, right

CONTENT = bytes(range(256)) * 4096  # 1 MiB, in which every range shows its position
BYTES = 100, 100_000
URLS = {"s3": "s3://bucket/{}", "http": "{endpoint}/bucket/{}"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    with range_server() as started:
        monkeypatch.setenv("AWS_ENDPOINT_URL", started.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        started.objects["a"] = CONTENT
        yield started


def _seek_and_read(url: str, start: int, stop: int) -> bytes:
    with storage.open_input(url) as file:
        file.seek(start)
        return bytes(file.read(stop - start))


READERS: dict[str, Callable[[str, int, int], bytes | None]] = {
    "open_input": _seek_and_read,
    "read_bytes": storage.read_bytes,
    "read_range": lambda url, start, stop: storage.read_range(url, start, stop, timeout_s=20),
    "loader": lambda url, start, stop: Ranges(Remote()).read(url, start, stop, size=len(CONTENT)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("protocol", URLS)
def test_a_wrong_range_is_an_error(
    server: RangeServer, protocol: str, read: Callable[[str, int, int], bytes | None]
) -> None:
    url = URLS[protocol].format("a", endpoint=server.endpoint)
    assert read(url, *BYTES) == CONTENT[slice(*BYTES)]
    for fault, answer in FAULTS.items():
        server.answer = answer
        with pytest.raises(StorageError, match="the store (ignored|returned)") as caught:
            read(url, *BYTES)
        assert caught.value.hint, fault


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("protocol", URLS)
def test_a_range_that_is_the_whole_file_may_be_ignored(
    server: RangeServer, protocol: str, read: Callable[[str, int, int], bytes | None]
) -> None:
    server.answer = FAULTS["whole file"]
    url = URLS[protocol].format("a", endpoint=server.endpoint)
    assert read(url, 0, len(CONTENT)) == CONTENT


@pytest.mark.parametrize(
    ("requested", "status", "content_range", "length"),
    [
        ("bytes=5-9", 206, "bytes 5-9/100", 5),
        ("bytes=5-9", 206, "bytes 5-9/*", 5),
        ("bytes=5-200", 206, "bytes 5-99/100", 95),
        ("bytes=5-", 206, "bytes 5-99/100", 95),
        ("bytes=0-", 200, "", 100),
        ("bytes=0-99", 200, "", 100),
        ("bytes=0-200", 200, "", 100),
        ("bytes=5-9", 416, "", 0),
        ("", 200, "", 100),
    ],
)
def test_right_responses(requested: str, status: int, content_range: str, length: int) -> None:
    headers = {"Content-Range": content_range, "Content-Length": str(length)}
    check_response("s3://bucket/a", requested, status, headers)


@pytest.mark.parametrize(
    ("requested", "status", "content_range", "length"),
    [
        ("bytes=5-9", 206, "bytes 5-8/100", 4),
        ("bytes=5-9", 206, "bytes 4-9/100", 6),
        ("bytes=5-9", 206, "bytes 5-9/100", 6),
        ("bytes=5-9", 206, "bytes 5-9/9", 5),
        ("bytes=5-9", 206, "items 5-9/100", 5),
        ("bytes=5-", 206, "bytes 5-98/100", 94),
        ("bytes=0-98", 200, "", 100),
        ("bytes=1-", 200, "", 100),
    ],
)
def test_wrong_responses(requested: str, status: int, content_range: str, length: int) -> None:
    headers = {"Content-Range": content_range, "Content-Length": str(length)}
    with pytest.raises(StorageError):
        check_response("s3://bucket/a", requested, status, headers)


def test_a_length_is_compared_for_stores_that_show_no_headers() -> None:
    check_length("az://raw/a", 5, 5)
    for num_bytes in (4, 6):
        with pytest.raises(StorageError, match=f"returned {num_bytes} bytes instead of 5"):
            check_length("az://raw/a", num_bytes, 5)


def _members(count: int) -> bytes:
    """Return members of random digits; together they are longer than one request."""
    texts = (random.Random(number).randbytes(4500).hex() for number in range(count))
    return b"".join(gzip.compress(b'{"text": "%s"}\n' % text.encode()) for text in texts)


def _parquet() -> bytes:
    file = io.BytesIO()
    rows = pa.table({"text": [f"{n} {'y' * n}" for n in range(2000)]})
    pq.write_table(rows, file, row_group_size=500, compression="none")
    return file.getvalue()


FILES = {
    "a.jsonl": b"".join(b'{"text": "%d %s"}\n' % (n, b"x" * 1000) for n in range(2000)),
    "b.csv": b"text\n" + b"".join(b"%d %s\n" % (n, b"x" * 5000) for n in range(2000)),
    "c.jsonl.gz": _members(2000),
    "d.parquet": _parquet(),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * name.endswith(".gz")) for name in FILES],
)
def test_no_row_is_read_from_a_wrong_range(server: RangeServer, name: str) -> None:
    server.objects[name] = FILES[name]
    source = Source(path=f"s3://bucket/{name}", split_bytes=1 << 19, columns=Columns(id=None))

    def read() -> int:
        splits = list(list_splits(source))
        cut = {split.uri for split in splits if split.first_row is None}
        counts = [count_records(split) if split.uri in cut else None for split in splits]
        splits = list(number_splits(splits, counts))
        return sum(batch.num_rows for split in splits for batch in read_split(split, source))

    assert read() == 2000
    for fault, answer in FAULTS.items():
        server.answer = answer
        with pytest.raises((SourceError, StorageError), match="the store (ignored|returned)"):
            pytest.fail(f"{fault}: {read()} rows")


def test_a_source_on_a_web_server_is_read(server: RangeServer) -> None:
    server.objects["a.jsonl"] = FILES["a.jsonl"]
    source = Source(path=f"{server.endpoint}/bucket/a.jsonl")
    (split,) = list_splits(source)
    assert split.uri == source.path
    assert sum(batch.num_rows for batch in read_split(split, source)) == 2000


def test_a_footer_is_not_read_from_a_wrong_range(server: RangeServer) -> None:
    server.objects["d.parquet"] = FILES["d.parquet"]
    size, ranges = len(FILES["d.parquet"]), Ranges(Remote())
    for answer in (right, *FAULTS.values()):
        server.answer = answer
        if answer is right:
            assert read_footer("s3://bucket/d.parquet", size, ranges).num_rows == 2000
            continue
        with pytest.raises((StorageError, LoaderError), match="the store (ignored|returned)"):
            read_footer("s3://bucket/d.parquet", size, ranges)
