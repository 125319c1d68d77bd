"""The part of an input file that one task reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from etl.errors import SourceError

Format = Literal["parquet", "jsonl", "csv", "arrow", "delta", "warc", "text"]
"""The names of the formats; ``formats.FORMATS`` has the reader of each."""

Compression = Literal["gzip", "zstd"]

COMPRESSIONS: Final[Mapping[str, Compression]] = {".gz": "gzip", ".zst": "zstd"}
"""The extension of a compressed file -> its compression."""

RECORDS_MARK: Final = "#records="
"""What the fingerprint of a file has before that of its records, if an index says which are read."""

TEXT_RATIO: Final = 4
"""About how many bytes of text a byte of a compressed file holds: 3 to 5 for prose; chosen here."""


def split_compression(uri: str) -> tuple[str, Compression | None]:
    """Return a URI in lower case without the extension of a compressed file, and the compression.

    >>> split_compression("s3://crawl/part-0.JSONL.zst")
    ('s3://crawl/part-0.jsonl', 'zstd')
    >>> split_compression("notes.txt")
    ('notes.txt', None)
    """
    plain, dot, extension = uri.lower().rpartition(".")
    compression = COMPRESSIONS.get(dot + extension)
    return (uri.lower(), None) if compression is None else (plain, compression)


def file_fingerprint(fingerprint: str) -> str:
    """Return the fingerprint of a file, without that of the records of it that are read.

    >>> file_fingerprint("9b2c7" + RECORDS_MARK + "a81f")
    '9b2c7'
    """
    return fingerprint.partition(RECORDS_MARK)[0]


PackedRecords = bytes
"""The offsets and lengths of records in a file, in order of the offsets, as 64-bit integers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The piece of one file that one task reads; small and picklable, as there may be a million."""

    uri: str  # where it is read
    size: int  # bytes of the whole file
    fingerprint: (
        str  # as listed; another one is a reason to compare the content, not proof of a change
    )
    format: Format  # delta: a Parquet data file of a Delta table
    start: int = 0  # first row group, record batch or byte; a line belongs to where it starts
    stop: int | None = None  # one past the last; None: the end of the file, also of its last piece
    first_row: int | None = 0  # number of the first record; None until ``number_splits`` sets it
    bytes: int = 0  # approximate size of the piece in the file, for progress
    text_bytes: int | None = None  # approximate size of its text, if known without reading it
    offset: int | None = None  # of the first row group in the footer, if that was read to cut
    partition: tuple[tuple[str, Any], ...] = ()  # columns whose values are in the Delta log
    version: int | None = None  # of the Delta table, at which the file was live

    real: str | None = (
        None  # the URI without links, if it differs; of a Delta table: its id and the path
    )
    address: str | None = None  # ``source`` of its rows, if the file was moved or copied since
    identity: int = 0  # of the file in its lake, part of the keys of its units of work
    former: int = 0  # the identity that its name had in the lake before the file changed
    is_distinct: bool = False  # known not to be a copy of another file that the lake holds

    records: PackedRecords | None = None  # of a WARC file: which are read, see ``record_ranges``

    max_rows: int | None = None  # read no more records
    max_text_bytes: int | None = None  # read no more after this much text

    @property
    def source(self) -> str:
        """The URI under which the lake holds the file: the first half of the address of its rows."""
        return self.uri if self.address is None else self.address

    @property
    def real_uri(self) -> str:
        """The name by which the file is known, whatever link or scheme it was reached by."""
        return self.uri if self.real is None else self.real

    @property
    def file_fingerprint(self) -> str:
        """The fingerprint of the file itself."""
        return file_fingerprint(self.fingerprint)

    @property
    def is_whole(self) -> bool:
        """Whether the split is the whole file."""
        return self.start == 0 and self.stop is None

    @property
    def work(self) -> int:
        """About how many bytes of text there are, to read large pieces before small ones."""
        if self.text_bytes is not None:
            return self.text_bytes
        is_packed = self.compression is not None or self.format in ("parquet", "delta")
        return self.bytes * (TEXT_RATIO if is_packed else 1)

    @property
    def known_first_row(self) -> int:
        """The number of the first record; raises SourceError if it is unknown."""
        if self.first_row is None:
            raise SourceError(
                "the rows before this piece of the file have not been counted",
                where=self.uri,
                hint="an earlier piece of the file could not be read: fix that and run again",
            )
        return self.first_row

    @property
    def compression(self) -> Compression | None:
        """The compression of the file by its extension; only for formats that may be compressed."""
        return split_compression(self.uri)[1]
