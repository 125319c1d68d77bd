"""Reader for plain text and HTML files, uncompressed, gzip or zstd: each file is one document.

Plain text is UTF-8; a page is in the character set that it declares, or in a guessed one. A page of which
more than 1 % of the characters cannot be decoded has the reason ``source.undecodable``. The row is 0, ``id``
and ``url`` are null; ``source.columns`` and ``source.metadata`` are ignored.
"""

from collections.abc import Iterator

import pyarrow as pa

from etl import storage
from etl.sources.formats import byte_lines, whole_files
from etl.sources.formats.byte_lines import Damage
from etl.sources.formats.character_sets import decode_text
from etl.sources.records import RecordBuffer
from etl.sources.source_settings import Source
from etl.sources.split import Split, split_compression

_HTML_EXTENSIONS = (".html", ".htm", ".xhtml")
EXTENSIONS: tuple[str, ...] = (".txt", *_HTML_EXTENSIONS)
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
    is_html = split_compression(split.uri)[0].endswith(_HTML_EXTENSIONS)
    if len(content) > limit:
        start = content[: limit + 1].decode("utf-8", "surrogateescape")
        buffer.reject(0, "too_large", f"the text is larger than {limit} bytes", raw=start)
    elif is_html:
        _add_page(bytes(content), buffer)
    else:
        buffer.add(0, content.decode("utf-8", "surrogateescape").removeprefix("\ufeff"))
    if damage is not None:
        byte_lines.report_damage(damage, 1, split, source, buffer)
    yield from buffer.flush()


def _add_page(content: bytes, buffer: RecordBuffer) -> None:
    page = decode_text(content, None)
    if page.is_noise:
        error = f"{page.bad} of {len(page.text)} characters are not valid {page.encoding}"
        buffer.reject(0, "undecodable", error, raw=page.text)
    else:
        buffer.add(0, page.utf8, media_type="text/html")
