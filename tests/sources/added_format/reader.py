"""Reader for a format made up for the tests: each line of a file is a document."""

from collections.abc import Iterator

import pyarrow as pa

from etl import storage
from etl.sources.formats import byte_lines, jsonl
from etl.sources.records import RecordBuffer
from etl.sources.source_settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".lines",)
COMPRESSIBLE: bool = True

cut = jsonl.cut
count_records = jsonl.count_records


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    row, buffer = split.known_first_row, RecordBuffer(split.uri, max_bytes=batch_bytes)
    with storage.open_input(split.uri) as file:
        chunks = byte_lines.read_chunks(file, split)
        limit = source.max_record_bytes
        for block in byte_lines.read_blocks(
            chunks, max_line_bytes=limit, is_start=split.start == 0
        ):
            if isinstance(block, byte_lines.Damage):
                byte_lines.report_damage(block, row, split, source, buffer)
                row += 1
                continue
            for line in block.removesuffix("\n").split("\n"):
                buffer.add(row, line)
                row += 1
    yield from buffer.flush()
