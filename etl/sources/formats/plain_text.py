"""Reader for plain text files, uncompressed, gzip or zstd: each file is one document.

The text is UTF-8 and its row is 0. ``id`` and ``url`` are null; ``source.columns`` and ``source.metadata``
are ignored.
"""

from collections.abc import Iterator

import pyarrow as pa

from etl import storage
from etl.sources.formats import byte_lines, whole_files
from etl.sources.formats.byte_lines import Damage
from etl.sources.records import RecordBuffer
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".txt",)
COMPRESSIBLE: bool = True

cut = whole_files.keep_whole  # a file is one document
count_records = whole_files.refuse_to_count


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the file as a table of schema RAW with one row.

    A file that is too large is not read beyond the limit. A compressed file ends at damage, which is a second
    row if readable rows are kept.
    """
    buffer = RecordBuffer(split.uri, max_bytes=batch_bytes)
    content, limit = bytearray(), source.max_text_bytes
    damage: Damage | None = None
    with storage.open_input(split.uri) as file:
        for chunk in byte_lines.read_chunks(file, split):
            if isinstance(chunk, Damage):
                damage = chunk
                break
            content += chunk
            if len(content) > limit:
                break
    if damage is not None and source.damaged == "quarantine":
        readable = f"{len(content)} bytes before the damage are readable"
        raise byte_lines.make_damage_error(split, damage, readable)
    text = content[: limit + 1].decode("utf-8", "surrogateescape")
    if len(content) > limit:
        buffer.reject(0, "too_large", f"the text is larger than {limit} bytes", raw=text)
    else:
        buffer.add(0, text.removeprefix("\ufeff"))
    if damage is not None:
        byte_lines.report_damage(damage, 1, split, source, buffer)
    yield from buffer.flush()
