"""Where the lake of a test lies, and its input: a folder here, or a prefix in a bucket of an S3 server.

Both are paths with the methods of pathlib; a recipe takes their string.
"""

import os

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from etl import storage


def at(url: object) -> UPath:
    """The path of a URL; nothing is remembered of what stands there, as others change it."""
    text = storage.normalize(str(url))
    if storage.is_local(text):
        return UPath(storage.local_path(text))
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    return UPath(text, endpoint_url=endpoint, use_listings_cache=False)


def copy(source: object, target: UPath) -> UPath:
    """A folder with all that is in it, copied to a place that is not there yet."""
    for file in at(source).rglob("*"):
        if file.is_file():
            copied = target / file.relative_to(at(source)).as_posix()
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())
    return target


def move(source: UPath, target: UPath) -> None:
    """A file, taken to another place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    source.unlink()


def remove(folder: UPath) -> None:
    """Delete a folder with all that is in it."""
    storage.filesystem(str(folder)).rm(str(folder), recursive=True)


def opened(path: UPath) -> pq.ParquetFile:
    """A Parquet file, read into memory."""
    return pq.ParquetFile(pa.BufferReader(path.read_bytes()))
