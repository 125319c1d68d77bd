"""Every request to S3 is counted, with its bytes."""

from etl import storage
from etl.storage.s3_request_counts import StoreUsage, store_usage


def test_requests_to_s3_are_counted_by_the_classes_of_its_price_list(s3: str) -> None:
    uri = f"{s3}/folder/file.bin"
    before = store_usage()
    storage.write_bytes(uri, b"x" * 1000)
    assert store_usage() - before == StoreUsage(write_requests=1, written_bytes=1000)
    before = store_usage()
    assert storage.read_bytes(uri) == b"x" * 1000
    assert store_usage() - before == StoreUsage(read_requests=2, read_bytes=1000), "HEAD and GET"
    before = store_usage()
    with storage.open_input(uri) as file:
        file.seek(500)
        assert len(file.read(100)) == 100
    opened = store_usage() - before
    assert opened.read_requests >= 2, "its size, and a range"
    assert (opened.read_bytes, opened.write_requests) == (500, 0)
    before = store_usage()
    assert len(list(storage.find_files(f"{s3}/folder"))) == 1
    assert (store_usage() - before).write_requests >= 1, "a listing costs as much as a PUT"
    before = store_usage()
    storage.remove(uri)
    assert (store_usage() - before).write_requests == 0, "deletions are free"
    with storage.open_output(f"{s3}/folder/large.bin") as output:
        output.write(b"y" * 3_000_000)
    assert (store_usage() - before).written_bytes >= 3_000_000
