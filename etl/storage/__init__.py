"""Reach files by URL; the only package that holds credentials.

Callers import the package and write ``storage.join(...)``.
"""

from etl.storage.files import (
    create_if_absent,
    open_input,
    open_output,
    open_whole,
    read_bytes,
    read_range,
    remove,
    write_bytes,
    writing,
)
from etl.storage.filesystem import delta_options, filesystem
from etl.storage.listing import FileInfo, file_info, file_size, file_sizes, find_files
from etl.storage.urls import (
    is_glob,
    is_local,
    join,
    local_path,
    normalize,
    refuse_credentials,
)

__all__ = [
    "FileInfo",
    "create_if_absent",
    "delta_options",
    "file_info",
    "file_size",
    "file_sizes",
    "filesystem",
    "find_files",
    "is_glob",
    "is_local",
    "join",
    "local_path",
    "normalize",
    "open_input",
    "open_output",
    "open_whole",
    "read_bytes",
    "read_range",
    "refuse_credentials",
    "remove",
    "write_bytes",
    "writing",
]
