"""The scratch space of a lake: intermediate files of jobs, in a folder that no table and no reader uses.

A job that is killed leaves its files, so that the next one can continue; a job that ends removes them, and
``etl vacuum`` removes those that no job has continued.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from etl import storage

FOLDER: Final = "scratch"
"""The name of the folder inside a lake."""

_THREADS = 16  # they wait for storage


def scratch_folder(lake: str, *names: str) -> str:
    """Return the URL of a folder in the scratch space of a lake."""
    return storage.join(lake, FOLDER, *names)


def remove_scratch(folder: str) -> None:
    """Delete a folder of a scratch space with all its files, if it exists, and parents that are now empty.

    Raises StorageError if a file cannot be deleted.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(storage.remove, [file.uri for file in storage.walk_files(folder)]):
            pass
    if not storage.is_local(folder):  # stores have no folders
        return
    path = storage.local_path(folder)
    shutil.rmtree(path, ignore_errors=True)  # with temporary files, which are hidden
    with suppress(OSError):  # another job uses it
        while path.name != FOLDER:
            path = path.parent
            path.rmdir()
