"""Find the input file of an address, which may have been moved, copied or touched since."""

from collections.abc import Callable, Collection, Iterable

from etl import schemas, storage
from etl.sources.content_digests import sample_file
from etl.sources.split import file_fingerprint


def find_input(
    recorded: Iterable[schemas.InputFile],
    address: str,
    samples: Callable[[int], Collection[str]] = lambda _: (),
) -> tuple[schemas.InputFile | None, str | None]:
    """Return the first recorded name of a file under which it is there unchanged, or why it is not.

    ``recorded`` has the names with the size and fingerprint of the file. A file with other times is returned
    with its fingerprint of now if it has one of ``samples``, which are given for its size: its rows are not
    compared. Raises StorageError if the store cannot be reached.
    """
    why = f"no lineage record lists its input file {address}"
    for file in recorded:
        now = storage.file_info(file.uri)
        if now is None:
            why = f"its input file no longer exists: {file.uri}"
        elif now.size == file.size and (
            file.version is not None  # data files of Delta tables do not change
            or now.is_as_listed(file_fingerprint(file.fingerprint))
        ):
            return file, None
        elif now.size == file.size and sample_file(file.uri, file.size) in samples(file.size):
            return file.updated(fingerprint=now.fingerprint), None
        else:
            why = f"its input file has changed: {file.uri} (run the recipe with --replace-changed)"
    return None, why
