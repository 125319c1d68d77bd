"""The part of an input file that one task reads."""

from dataclasses import dataclass
from typing import Any, Literal

from etl.errors import SourceError

Format = Literal["parquet", "jsonl", "csv", "arrow", "delta", "warc", "text"]


COMPRESSIBLE_FORMATS = ("jsonl", "csv", "warc", "text")


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The piece of one file that one task reads; small and picklable, as there may be a million."""

    uri: str
    size: int  # bytes of the whole file
    fingerprint: str  # of the whole file: changes when its content does
    format: Format  # delta: a Parquet data file of a Delta table
    start: int = (
        0  # first row group, record batch or byte (a line belongs to the split it starts in)
    )
    stop: int | None = None  # one past the last; None: the end of the file
    first_row: int | None = 0  # number of the first record; None: not counted yet (see ``number``)
    bytes: int = 0  # approximate size of the piece, for progress
    partition: tuple[tuple[str, Any], ...] = ()  # columns whose values are in the Delta log

    @property
    def whole(self) -> bool:
        """Whether the split is the whole file."""
        return self.start == 0 and self.stop is None

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
    def compression(self) -> Literal["gzip", "zstd"] | None:
        """The compression of a file of lines or text, by its extension.

        >>> Split(uri="file:///a.jsonl.gz", size=1, fingerprint="", format="jsonl").compression
        'gzip'
        """
        if self.format not in COMPRESSIBLE_FORMATS:
            return None
        name = self.uri.lower()
        return "gzip" if name.endswith(".gz") else "zstd" if name.endswith(".zst") else None
