"""Reader for plain text files, uncompressed, gzip or zstd: each file is one document.

The text is UTF-8 and its row is 0. ``id`` and ``url`` are null; ``source.columns`` and ``source.metadata``
are ignored.
"""

from collections.abc import Iterator

import pyarrow as pa

from etl import storage
from etl.sources.formats import byte_lines, whole_files
from etl.sources.records import RecordBuffer
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".txt",)
COMPRESSIBLE: bool = True

cut = whole_files.keep_whole  # a file is one document
count_records = whole_files.refuse_to_count


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the file as a table of schema RAW with one row.

    A file that is too large is not read beyond the limit. Raises SourceError if a compressed file is
    damaged or truncated.
    """
    buffer = RecordBuffer(split.uri, max_bytes=batch_bytes)
    content, limit = bytearray(), source.max_text_bytes
    with storage.open_input(split.uri) as file:
        stream = byte_lines.decompress(file, split)
        try:
            while len(content) <= limit and (
                chunk := byte_lines.read_chunk(stream, byte_lines.READ_BYTES)
            ):
                content += chunk
        except OSError as error:
            raise byte_lines.make_stream_error(split, error, 0) from error
    text = content[: limit + 1].decode("utf-8", "surrogateescape")
    if len(content) > limit:
        buffer.reject(0, "too_large", f"the text is larger than {limit} bytes", raw=text)
    else:
        buffer.add(0, text.removeprefix("\ufeff"))
    yield from buffer.flush()
