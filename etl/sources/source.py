"""Configuration of the input of a recipe, and the split: the piece of a file that one task reads."""

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from etl.errors import SourceError

Format = Literal["parquet", "jsonl", "csv", "arrow", "delta", "warc", "text"]

_EXTENSIONS: tuple[tuple[Format, tuple[str, ...]], ...] = (
    ("parquet", (".parquet",)),
    ("jsonl", (".jsonl", ".ndjson", ".json")),
    ("csv", (".csv", ".tsv")),
    ("arrow", (".arrow", ".feather", ".ipc")),
    ("warc", (".warc", ".wet", ".wat")),
    ("text", (".txt",)),
)
_COMPRESSIBLE_FORMATS = ("jsonl", "csv", "warc", "text")


def _as_tuple(value: object) -> object:
    """Convert a list to a tuple, as YAML and JSON have only lists, and path objects to strings."""
    if isinstance(value, list | tuple):
        return tuple(os.fspath(v) if isinstance(v, os.PathLike) else v for v in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]


class Columns(BaseModel):
    """The input columns that hold the text, the user's own id and the URL; None if the input has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    text: Name = "text"
    id: Name | None = None
    url: Name | None = None


class Source(BaseModel):
    """The input of a recipe: its files, their format, and the columns to read.

    >>> Source(path="s3://crawl/*.parquet", columns=Columns(text="content")).identity()["columns"]
    {'text': 'content', 'id': None, 'url': None}
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: Annotated[Name | Names, BeforeValidator(_as_tuple)]
    """A URL, a glob, a folder, or several of them."""
    format: Format | None = None
    """The format of the files. None: by the extension of each file; a folder with a ``_delta_log`` is a Delta
    table. With ``warc`` (WARC and WET files), the text is the page of a record; with ``text``, each file is
    one document."""
    columns: Annotated[Columns, Field(strict=False)] = Columns()
    metadata: Annotated[Literal["all"] | tuple[Name, ...], BeforeValidator(_as_tuple)] = ()
    """Other input columns to keep, as one JSON object per row with sorted keys."""
    version: Annotated[int, Field(ge=0)] | None = None
    """The version of a Delta table. None: the newest."""
    split_bytes: Annotated[int, Field(gt=0)] = 128 << 20
    """Larger files are cut into pieces of about this size, if the format allows it."""
    max_text_bytes: Annotated[int, Field(gt=0, le=1 << 30)] = 256 << 20
    """A longer text is rejected as ``source.too_large``, as is a record of more than twice that size."""

    @model_validator(mode="after")
    def _only_a_table_has_a_version(self) -> "Source":
        if self.version is not None and self.format not in (None, "delta"):
            raise ValueError(
                f"version is set, but format {self.format} has no versions: remove version, or use"
                " format: delta"
            )
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as written, always as a tuple."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def max_record_bytes(self) -> int:
        """The maximum size of a line or record: the text with its escapes and the other fields."""
        return 2 * self.max_text_bytes + (1 << 20)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the rows and their addresses: all but the paths and version."""
        return self.model_dump(mode="json", exclude={"path", "version"})


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
        if self.format not in _COMPRESSIBLE_FORMATS:
            return None
        name = self.uri.lower()
        return "gzip" if name.endswith(".gz") else "zstd" if name.endswith(".zst") else None


def format_of(uri: str) -> Format | None:
    """Return the format of a file by its extension; None if it is unknown.

    >>> format_of("s3://crawl/part-0.JSONL.zst"), format_of("notes.md")
    ('jsonl', None)
    """
    name = uri.lower()
    for kind, extensions in _EXTENSIONS:
        suffixes = ("", ".gz", ".zst") if kind in _COMPRESSIBLE_FORMATS else ("",)
        if name.endswith(tuple(first + last for first in extensions for last in suffixes)):
            return kind
    return None


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known name, and all known names.

    >>> nearest("txt", ["text", "url"])
    "did you mean 'text'? available: text, url"
    """
    known = list(names)
    matches = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return (f"did you mean {matches[0]!r}? " if matches else "") + f"available: {listed or 'none'}"


def needed(source: Source, names: Iterable[str], split: Split) -> list[str]:
    """Return the columns of a file that the recipe needs, in the order of the file.

    Raises SourceError if a column that the recipe names is missing or occurs twice. A file of a Delta table
    may lack a column, which is then null: the table's schema was checked earlier.
    """
    names = list(names)
    columns, unique = source.columns, list(dict.fromkeys(names))
    wanted = [name for name in (columns.text, columns.id, columns.url) if name is not None]
    wanted += [] if source.metadata == "all" else source.metadata
    missing = [name for name in wanted if name not in unique and split.format != "delta"]
    if missing:
        raise SourceError(
            f"the file has no column {missing[0]!r}",
            where=split.uri,
            hint=nearest(missing[0], unique),
        )
    chosen = unique if source.metadata == "all" else [name for name in unique if name in wanted]
    repeated = (
        [name for name in chosen if names.count(name) > 1] if len(unique) < len(names) else []
    )
    if repeated:
        error = f"the file has more than one column {repeated[0]!r}"
        hint = "rewrite the file with one column of that name"
        raise SourceError(error, where=split.uri, hint=hint)
    return chosen
