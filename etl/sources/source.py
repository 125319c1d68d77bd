"""What a recipe says of its input, and the piece of a file that one task reads."""

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from etl.errors import SourceError

Format = Literal["parquet", "jsonl", "csv", "arrow", "delta", "warc", "text"]

_ENDINGS: tuple[tuple[Format, tuple[str, ...]], ...] = (
    ("parquet", (".parquet",)),
    ("jsonl", (".jsonl", ".ndjson", ".json")),
    ("csv", (".csv", ".tsv")),
    ("arrow", (".arrow", ".feather", ".ipc")),
    ("warc", (".warc", ".wet", ".wat")),
    ("text", (".txt",)),
)
_PACKED_FORMATS = ("jsonl", "csv", "warc", "text")


def _as_tuple(value: object) -> object:
    """YAML and JSON have lists only; a path of pathlib counts by its text."""
    if isinstance(value, list | tuple):
        return tuple(os.fspath(v) if isinstance(v, os.PathLike) else v for v in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]


class Columns(BaseModel):
    """Which input columns hold the text, the user's own id and the URL; None: there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    text: Name = "text"
    id: Name | None = None
    url: Name | None = None


class Source(BaseModel):
    """The input of a recipe: which files, of which format, and what is taken from them.

    >>> Source(path="s3://crawl/*.parquet", columns=Columns(text="content")).identity()["columns"]
    {'text': 'content', 'id': None, 'url': None}
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: Annotated[Name | Names, BeforeValidator(_as_tuple)]
    """A URL, a glob, a folder, or several of them."""
    format: Format | None = None
    """None: each file's ending tells; a folder with a ``_delta_log`` is a Delta table. ``warc`` is
    WARC and WET, with the page of a record as the text; ``text`` takes a file for one document."""
    columns: Annotated[Columns, Field(strict=False)] = Columns()
    metadata: Annotated[Literal["all"] | tuple[Name, ...], BeforeValidator(_as_tuple)] = ()
    """Further input columns to keep, as one JSON object a row with sorted keys."""
    version: Annotated[int, Field(ge=0)] | None = None
    """The version of a Delta table; None: the newest."""
    split_bytes: Annotated[int, Field(gt=0)] = 128 << 20
    """Larger files are cut into pieces of about this size, where the format can be cut."""
    max_text_bytes: Annotated[int, Field(gt=0, le=1 << 30)] = 256 << 20
    """A longer text is rejected as ``source.too_large``; so is a record of more than twice that."""

    @model_validator(mode="after")
    def _version_is_of_a_table(self) -> "Source":
        if self.version is not None and self.format not in (None, "delta"):
            raise ValueError(f"a {self.format} file has no version: leave it out, or format: delta")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as written, always as a tuple."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def max_record_bytes(self) -> int:
        """A line longer than this is rejected unread: the text with its escapes and neighbours."""
        return 2 * self.max_text_bytes + (1 << 20)

    def identity(self) -> dict[str, Any]:
        """What decides the rows and their addresses: all but where the files are."""
        return self.model_dump(mode="json", exclude={"path", "version"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The piece of one file that one task reads; small and picklable, for there may be a million."""

    uri: str
    size: int  # bytes of the whole file
    fingerprint: str  # of the whole file: changes when its content does
    format: Format  # delta: a Parquet data file of a Delta table
    start: int = 0  # the first row group, record batch or byte (a line belongs where it starts)
    stop: int | None = None  # the one after the last; None: to the end of the file
    first_row: int | None = 0  # ordinal of the first record; None: to be counted (see ``number``)
    bytes: int = 0  # about how many bytes of the file it reads, for progress
    partition: tuple[tuple[str, Any], ...] = ()  # columns that Delta keeps in its log

    @property
    def whole(self) -> bool:
        """Whether the split is its whole file."""
        return self.start == 0 and self.stop is None

    @property
    def known_first_row(self) -> int:
        """The ordinal of the first record; raises SourceError if it was not counted."""
        if self.first_row is None:
            raise SourceError(
                "the rows before this piece of the file have not been counted",
                where=self.uri,
                hint="a piece before it could not be read; mend that and run again",
            )
        return self.first_row

    @property
    def compression(self) -> Literal["gzip", "zstd"] | None:
        """The compression around lines or a text, by the file's ending.

        >>> Split(uri="file:///a.jsonl.gz", size=1, fingerprint="", format="jsonl").compression
        'gzip'
        """
        if self.format not in _PACKED_FORMATS:
            return None
        name = self.uri.lower()
        return "gzip" if name.endswith(".gz") else "zstd" if name.endswith(".zst") else None


def format_of(uri: str) -> Format | None:
    """The format that a file's ending tells, or None.

    >>> format_of("s3://crawl/part-0.JSONL.zst"), format_of("notes.md")
    ('jsonl', None)
    """
    name = uri.lower()
    for kind, endings in _ENDINGS:
        packed = ("", ".gz", ".zst") if kind in _PACKED_FORMATS else ("",)
        if name.endswith(tuple(ending + after for ending in endings for after in packed)):
            return kind
    return None


def nearest(name: str, names: Iterable[str]) -> str:
    """The names to offer for one that is not there, nearest first; the text of a hint.

    >>> nearest("txt", ["text", "url"])
    "did you mean 'text'? there is: text, url"
    """
    known = list(names)
    near = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return (f"did you mean {near[0]!r}? " if near else "") + f"there is: {listed or 'none'}"


def needed(source: Source, names: Iterable[str], split: Split) -> list[str]:
    """Those of a file's columns that the recipe needs, in the file's order.

    Raises SourceError if one that it names is not there, or there twice. A file of a Delta table may lack a
    column, which is then null: the table's schema was looked at before.
    """
    names = list(names)
    columns, found = source.columns, list(dict.fromkeys(names))
    wanted = [name for name in (columns.text, columns.id, columns.url) if name is not None]
    wanted += [] if source.metadata == "all" else source.metadata
    missing = [name for name in wanted if name not in found and split.format != "delta"]
    if missing:
        raise SourceError(
            f"there is no column {missing[0]!r}", where=split.uri, hint=nearest(missing[0], found)
        )
    chosen = found if source.metadata == "all" else [name for name in found if name in wanted]
    twice = [name for name in chosen if names.count(name) > 1] if len(found) < len(names) else []
    if twice:
        hint = "write the file with one column of that name"
        raise SourceError(f"there are two columns {twice[0]!r}", where=split.uri, hint=hint)
    return chosen
