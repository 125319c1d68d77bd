"""Read the texts of a few records again from the input files of a lake.

A lake does not store the text of a rejected document unless its recipe asks for it. What is returned is the
record's text before any stage.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from etl import schemas, storage
from etl.errors import SourceError, TokenlakeError
from etl.sources import Source, Split
from etl.sources.formats import FORMATS, detect_format
from etl.sources.read import count_records, read_split


def read_texts(
    file: schemas.InputFile | None, rows: AbstractSet[int], source: Source
) -> tuple[Mapping[int, str], str | None]:
    """Return the texts of some records of an input file by row, and why some are missing, if any are.

    Only the pieces of the file with these records are read, each up to the last of them. ``file`` is the
    file as the log records it; None if the log does not name it.
    """
    if file is None:
        return {}, "the log does not name the input file"
    texts: dict[int, str] = {}
    try:
        for piece, wanted in _pieces(_as_split(file, source), rows, source):
            texts |= _read_piece(piece, wanted, source)
    except TokenlakeError as error:
        return texts, error.what
    return texts, None if rows <= texts.keys() else "the record has no text"


def _as_split(file: schemas.InputFile, source: Source) -> Split:
    """Return the whole file as a split; raise SourceError if it is not the file that was read."""
    now = storage.file_info(file.uri)
    if now is None:
        raise SourceError("the input file no longer exists", where=file.uri)
    is_of_table = file.version is not None  # immutable, and its fingerprint is that of the table
    if now.size != file.size or not (is_of_table or now.fingerprint == file.fingerprint):
        raise SourceError("the input file has changed since it was read", where=file.uri)
    name = "delta" if is_of_table else source.format or detect_format(file.uri)
    if name is None:
        raise SourceError("the format of the input file is unknown", where=file.uri)
    return Split(
        uri=file.uri,
        size=file.size,
        fingerprint=file.fingerprint,
        format=name,
        bytes=file.size,
        version=file.version,
    )


def _pieces(
    whole: Split, rows: AbstractSet[int], source: Source
) -> Iterator[tuple[Split, AbstractSet[int]]]:
    """Yield the pieces of a file that have some of the rows, each with these rows."""
    pieces = FORMATS[whole.format].cut(whole, source, ())
    remaining, first = set(rows), 0
    for number, piece in enumerate(pieces):
        if not remaining:
            return
        following = pieces[number + 1].first_row if number + 1 < len(pieces) else None
        first = first if piece.first_row is None else piece.first_row
        is_last = number + 1 == len(pieces)
        if is_last:
            stop = max(remaining) + 1
        else:
            stop = first + count_records(piece) if following is None else following
        wanted = {row for row in remaining if first <= row < stop}
        if wanted:
            yield replace(piece, first_row=first), wanted
        remaining -= wanted
        first = stop


def _read_piece(piece: Split, rows: AbstractSet[int], source: Source) -> dict[int, str]:
    """Return the texts of some rows of a piece; the rest of it is not read."""
    texts: dict[int, str] = {}
    for batch in read_split(piece, source):
        last = -1
        for index, row in enumerate(batch["row"].to_pylist()):
            last = row
            if row in rows and (text := batch["text"][index].as_py()) is not None:
                texts[row] = text
        if last >= max(rows):
            break
    return texts
