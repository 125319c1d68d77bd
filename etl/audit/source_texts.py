"""Read the texts of a few records again from the input files of a lake.

A lake does not store the text of a rejected document unless its recipe asks for it. What is returned is the
record's text before any stage.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from etl import schemas
from etl.errors import SourceError, TokenlakeError
from etl.lake.input_locations import find_input
from etl.sources import Source, Split
from etl.sources.formats import FORMATS, detect_format
from etl.sources.read_split import count_records, read_split


def read_texts(
    recorded: Sequence[schemas.InputFile], address: str, rows: AbstractSet[int], source: Source
) -> tuple[Mapping[int, str], str | None]:
    """Return the texts of some records of an input file by row, and why some are missing, if any are.

    Only the pieces of the file with these records are read, each up to the last of them. ``recorded`` has the
    names of the file, as the log records them.
    """
    texts: dict[int, str] = {}
    try:
        file, why = find_input(recorded, address)
        if file is None:
            return {}, why
        for piece, wanted in _pieces(as_split(file, source), rows, source):
            texts |= _read_piece(piece, wanted, source)
    except TokenlakeError as error:
        return texts, error.what
    return texts, None if rows <= texts.keys() else "the record has no text"


def as_split(file: schemas.InputFile, source: Source) -> Split:
    """Return a recorded input file as a split; raise SourceError if its format is unknown."""
    is_of_table = file.version is not None
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
