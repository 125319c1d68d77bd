"""Reach files by URL, local or in an object store; only this package holds credentials.

Callers import the package and write ``storage.join(...)``. ``checked_json``, ``referenced_files`` and
``time_limit`` are imported by their own names.
"""

from etl.storage.files import (
    check_conditional_writes,
    convert_write_errors,
    create_if_absent,
    open_atomic_output,
    open_input,
    open_output,
    read_bytes,
    read_range,
    remove,
    start_writing,
    try_conditional_writes,
    write_bytes,
)
from etl.storage.filesystem import (
    access_hint,
    delta_options,
    endpoint_of,
    filesystem,
    glob_pattern,
    location_of,
    store_timeout,
)
from etl.storage.folders import folder_names, remove_folder
from etl.storage.list_files import (
    FileInfo,
    Listing,
    file_info,
    file_size,
    file_sizes,
    find_files,
    is_folder,
    list_pattern,
    walk_files,
)
from etl.storage.urls import (
    get_protocol,
    is_glob,
    is_local,
    join,
    local_path,
    normalize,
    refuse_credentials,
    refuse_unaddressable,
    split_authority,
)

__all__ = [
    "FileInfo",
    "Listing",
    "access_hint",
    "check_conditional_writes",
    "convert_write_errors",
    "create_if_absent",
    "delta_options",
    "endpoint_of",
    "file_info",
    "file_size",
    "file_sizes",
    "filesystem",
    "find_files",
    "folder_names",
    "get_protocol",
    "glob_pattern",
    "is_folder",
    "is_glob",
    "is_local",
    "join",
    "list_pattern",
    "local_path",
    "location_of",
    "normalize",
    "open_atomic_output",
    "open_input",
    "open_output",
    "read_bytes",
    "read_range",
    "refuse_credentials",
    "refuse_unaddressable",
    "remove",
    "remove_folder",
    "split_authority",
    "start_writing",
    "store_timeout",
    "try_conditional_writes",
    "walk_files",
    "write_bytes",
]
