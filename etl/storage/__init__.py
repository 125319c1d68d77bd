"""Reach files by URL, local or in an object store; only this package holds credentials.

Callers import the package and write ``storage.join(...)``. ``referenced_files`` is imported by its own name.
"""

from etl.storage.files import (
    convert_write_errors,
    create_if_absent,
    open_atomic_output,
    open_input,
    open_output,
    read_bytes,
    read_range,
    remove,
    start_writing,
    write_bytes,
)
from etl.storage.filesystem import delta_options, filesystem
from etl.storage.listing import FileInfo, file_info, file_size, file_sizes, find_files
from etl.storage.urls import (
    get_protocol,
    is_glob,
    is_local,
    join,
    local_path,
    normalize,
    refuse_credentials,
)

__all__ = [
    "FileInfo",
    "convert_write_errors",
    "create_if_absent",
    "delta_options",
    "file_info",
    "file_size",
    "file_sizes",
    "filesystem",
    "find_files",
    "get_protocol",
    "is_glob",
    "is_local",
    "join",
    "local_path",
    "normalize",
    "open_atomic_output",
    "open_input",
    "open_output",
    "read_bytes",
    "read_range",
    "refuse_credentials",
    "remove",
    "start_writing",
    "write_bytes",
]
