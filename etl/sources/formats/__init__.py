"""The input formats, each with one reader module that satisfies ``FormatReader``.

To add a format:

1. Write its reader module in ``etl/sources/formats/``; ``jsonl.py`` and ``plain_text.py`` are examples.
2. Add a line to ``FORMATS`` in ``etl/sources/formats/__init__.py``, and the name to ``Format`` in
   ``etl/sources/split.py``.
3. Add a valid file to ``SEEDS`` in ``tests/fuzz/targets.py``, and run ``make docs``.

Recipes, listing, reading, counting, error messages, fuzz targets, the JSON Schema and the page
``docs/reference/formats.md`` are derived from these.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from etl.sources.formats import arrow_ipc, csv, delta, jsonl, parquet, plain_text, warc
from etl.sources.parts import KnownPart
from etl.sources.source_settings import Source
from etl.sources.split import Format, Split, split_compression


class FormatReader(Protocol):
    """The content of a reader module.

    A format that cannot be cut takes ``cut`` and ``count_records`` from ``whole_files``.
    """

    EXTENSIONS: tuple[str, ...]
    """The extensions of the files, in lower case with the dot; no two formats share one."""

    COMPRESSIBLE: bool
    """Whether the files may be compressed, with one of ``COMPRESSIONS`` after the extension."""

    def cut(self, whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
        """Return the pieces of a file, each of about ``source.split_bytes`` of text; or ``[whole]``.

        The ``known`` parts of the file are pieces (see ``cut_at``). The last piece has no ``stop``, and
        ``first_row`` of a piece is None if the records before it must be counted.
        """

    def count_records(self, split: Split) -> int:
        """Return how many row numbers a piece uses; asked only where ``cut`` gave no ``first_row``."""

    def read(self, split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
        """Yield the split's records in order as tables of schema RAW, of about ``batch_bytes`` at most."""


FORMATS: Final[Mapping[Format, FormatReader]] = {
    "parquet": parquet,
    "jsonl": jsonl,
    "csv": csv,
    "arrow": arrow_ipc,
    "delta": delta,
    "warc": warc,
    "text": plain_text,
}


def detect_format(uri: str) -> Format | None:
    """Return the format of a file by its extension; None if it is unknown.

    >>> detect_format("s3://crawl/part-0.JSONL.zst"), detect_format("notes.md")
    ('jsonl', None)
    """
    plain, compression = split_compression(uri)
    for name, reader in FORMATS.items():
        if plain.endswith(reader.EXTENSIONS) and (compression is None or reader.COMPRESSIBLE):
            return name
    return None
