"""The scratch space of a lake: intermediate files of jobs, in a folder that no table and no reader uses.

A job that is killed leaves its files, so that the next one can continue; a job that ends removes them, and
``etl vacuum`` removes those that no job has continued. Only files with the names of a shuffle's are removed,
and none in a folder with a Delta log: another program's table may be below the folder.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Final

from etl import storage
from etl.delta.table import Table
from etl.storage import FileInfo

FOLDER: Final = "scratch"
"""The name of the folder inside a lake."""

_THREADS = 16  # they wait for storage
_NAME = (
    r"(?:(?:plan|files-[0-9a-f]{32}|(?:split|sort)-[0-9]{8})\.json|[0-9a-f]{32}\.bin)"  # of a file
)
_FILE = re.compile(rf"shuffle/[0-9a-f]{{32}}/{_NAME}")
_TEMPORARY = re.compile(rf"\.{_NAME}\.[0-9a-f]{{12}}")  # local: it was not written completely


def scratch_folder(lake: str, *names: str) -> str:
    """Return the URL of a folder in the scratch space of a lake."""
    return storage.join(lake, FOLDER, *names)


def is_scratch(path: str) -> bool:
    """Return whether a path in the scratch space names one of our files.

    >>> is_scratch("shuffle/" + "c0ffee00" * 4 + "/plan.json"), is_scratch("shuffle/notes.json")
    (True, False)
    """
    return _FILE.fullmatch(path) is not None


def list_scratch(lake: str, *names: str) -> Iterator[FileInfo]:
    """Yield our files in the scratch space of a lake, or in a folder of it."""
    root = scratch_folder(lake)

    @cache
    def is_table(folder: str) -> bool:
        return Table.exists(folder) or (folder != root and is_table(folder.rpartition("/")[0]))

    for file in storage.walk_files(scratch_folder(lake, *names)):
        is_ours = is_scratch(file.uri.removeprefix(f"{root}/"))
        if is_ours and not is_table(file.uri.rpartition("/")[0]):
            yield file


def remove_scratch(folder: str) -> None:
    """Delete our files in a folder of a scratch space, and the folders that are then empty.

    Raises StorageError if a file cannot be deleted.
    """
    lake, _, inner = folder.rpartition(f"/{FOLDER}/")
    names = inner.split("/")
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(storage.remove, [file.uri for file in list_scratch(lake, *names)]):
            pass
    if not storage.is_local(folder):  # stores have no folders
        return
    path = storage.local_path(folder)
    for each in (*path.glob("*"), path, *path.parents[: len(names)]):
        with suppress(OSError):  # not a folder, or another job uses it
            for temporary in each.iterdir():
                if _TEMPORARY.fullmatch(temporary.name):
                    temporary.unlink()
            each.rmdir()
