"""Reader for plain text files, uncompressed, gzip or zstd: each file is one document.

The text is UTF-8 and its row is 0. ``id`` and ``url`` are null; ``source.columns`` and ``source.metadata``
are ignored.
"""

from collections.abc import Iterator

import pyarrow as pa

from etl import storage
from etl.sources import lines
from etl.sources.rows import Gathered
from etl.sources.source import Source, Split


def read(split: Split, source: Source) -> Iterator[pa.Table]:
    """Yield the file as a table of schema RAW with one row.

    A file that is too large is not read beyond the limit. Raises SourceError if a compressed file is
    damaged or truncated.
    """
    gathered, content, limit = Gathered(split.uri), bytearray(), source.max_text_bytes
    with storage.open_input(split.uri) as file:
        stream = lines.unpacked(file, split)
        try:
            while len(content) <= limit and (chunk := lines.take(stream, lines.READ_BYTES)):
                content += chunk
        except OSError as error:
            raise lines.broken_off(split, error, 0) from error
    text = content[: limit + 1].decode("utf-8", "surrogateescape")
    if len(content) > limit:
        gathered.reject(0, "too_large", f"the text is larger than {limit} bytes", raw=text)
    else:
        gathered.add(0, text.removeprefix("\ufeff"))
    yield from gathered.take()
