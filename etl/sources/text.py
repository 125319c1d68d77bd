"""Plain text files, plain, gzip or zstd: a file is one document, UTF-8, with row 0.

``id`` and ``url`` are null, ``source.columns`` and ``source.metadata`` are not looked at.
"""

from collections.abc import Iterator

import pyarrow as pa

from etl import storage
from etl.sources import lines
from etl.sources.rows import Gathered
from etl.sources.source import Source, Split


def read(split: Split, source: Source) -> Iterator[pa.Table]:
    """The file as a table of schema RAW with one row.

    One that is too large is read no further than its limit. Raises SourceError if it is packed, and
    damaged or cut short.
    """
    gathered, held, limit = Gathered(split.uri), bytearray(), source.max_text_bytes
    with storage.open_input(split.uri) as file:
        stream = lines.unpacked(file, split)
        try:
            while len(held) <= limit and (found := lines.take(stream, lines.READ_BYTES)):
                held += found
        except OSError as error:
            raise lines.broken_off(split, error, 0) from error
    text = held[: limit + 1].decode("utf-8", "surrogateescape")
    if len(held) > limit:
        gathered.reject(0, "too_large", f"a text of more than {limit} bytes", raw=text)
    else:
        gathered.add(0, text.removeprefix("\ufeff"))
    yield from gathered.take()
