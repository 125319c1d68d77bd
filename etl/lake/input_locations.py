"""Find the input file of an address, which may have been moved, copied or touched since."""

from collections.abc import Iterable

from etl import schemas, storage


def find_input(
    recorded: Iterable[schemas.InputFile], address: str
) -> tuple[schemas.InputFile | None, str | None]:
    """Return the first recorded name of a file under which it is there unchanged, or why it is not.

    ``recorded`` has the names with the size and fingerprint of the file. Raises StorageError if the store
    cannot be reached.
    """
    why = f"no lineage record lists its input file {address}"
    for file in recorded:
        now = storage.file_info(file.uri)
        if now is None:
            why = f"its input file no longer exists: {file.uri}"
        # Data files of Delta tables do not change.
        elif now.size == file.size and (
            file.version is not None or now.is_as_listed(file.fingerprint)
        ):
            return file, None
        else:
            why = f"its input file has changed: {file.uri} (run the recipe with --replace-changed)"
    return None, why
