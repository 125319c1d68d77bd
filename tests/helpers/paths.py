"""Paths of test lakes and inputs, in a local folder or in a bucket of an S3 server.

Both have the methods of pathlib, and a recipe accepts their string.
"""

import os
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from etl import storage


def at(url: object) -> UPath:
    """Return the path of a URL; listings are not cached, since other processes change them."""
    text = storage.normalize(str(url))
    if storage.is_local(text):
        return UPath(storage.local_path(text))
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    return UPath(text, endpoint_url=endpoint, use_listings_cache=False)


def copy(source: object, target: UPath) -> UPath:
    """Copy a folder with all files to a path that does not exist yet."""
    for file in at(source).rglob("*"):
        if file.is_file():
            copied = target / file.relative_to(at(source)).as_posix()
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())
    return target


def move(source: UPath, target: UPath) -> None:
    """Move a file to another path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    source.unlink()


def remove(folder: UPath) -> None:
    """Delete a folder with all files."""
    storage.filesystem(str(folder)).rm(str(folder), recursive=True)


def opened(path: UPath) -> pq.ParquetFile:
    """Open a Parquet file that is read into memory."""
    return pq.ParquetFile(pa.BufferReader(path.read_bytes()))


NewPlace = Callable[[str], UPath]
