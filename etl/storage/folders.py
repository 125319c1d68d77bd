"""List and remove folders, of which object stores have only the names."""

import os
import shutil
from contextlib import suppress

from etl.errors import StorageError, error_line
from etl.storage.filesystem import access_hint, filesystem
from etl.storage.store_time_limit import call
from etl.storage.urls import is_local, local_path


def folder_names(folder: str) -> list[str]:
    """Return the names of the folders directly in a folder, sorted; none if it does not exist.

    Raises StorageError if it cannot be listed.
    """
    fs = filesystem(folder)
    try:
        if is_local(folder):
            with os.scandir(fs._strip_protocol(folder)) as found:
                return sorted(entry.name for entry in found if entry.is_dir())
        entries = call(fs, "ls", folder, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except Exception as error:
        what = f"cannot be listed ({error_line(error)})"
        raise StorageError(what, where=folder, hint=access_hint(folder)) from error
    folders = (entry["name"] for entry in entries if entry["type"] == "directory")
    return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in folders)


def remove_folder(folder: str) -> None:
    """Delete a folder with all its files, if it exists; raise StorageError if that fails."""
    with suppress(FileNotFoundError):
        try:
            if is_local(folder):
                shutil.rmtree(local_path(folder))
            else:
                call(filesystem(folder), "rm", folder, recursive=True)
        except FileNotFoundError:
            raise
        except Exception as error:
            what = f"cannot be deleted ({error_line(error)})"
            raise StorageError(what, where=folder) from error
