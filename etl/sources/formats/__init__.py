"""One reader module for each input format."""

from etl.sources.split import COMPRESSIBLE_FORMATS, Format

_EXTENSIONS: tuple[tuple[Format, tuple[str, ...]], ...] = (
    ("parquet", (".parquet",)),
    ("jsonl", (".jsonl", ".ndjson", ".json")),
    ("csv", (".csv", ".tsv")),
    ("arrow", (".arrow", ".feather", ".ipc")),
    ("warc", (".warc", ".wet", ".wat")),
    ("text", (".txt",)),
)


def format_of(uri: str) -> Format | None:
    """Return the format of a file by its extension; None if it is unknown.

    >>> format_of("s3://crawl/part-0.JSONL.zst"), format_of("notes.md")
    ('jsonl', None)
    """
    name = uri.lower()
    for kind, extensions in _EXTENSIONS:
        suffixes = ("", ".gz", ".zst") if kind in COMPRESSIBLE_FORMATS else ("",)
        if name.endswith(tuple(first + last for first in extensions for last in suffixes)):
            return kind
    return None
