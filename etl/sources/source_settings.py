"""What a recipe says of its input: where the files are, and which columns to read."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails

from etl.errors import nearest_names
from etl.settings_files.settings import Settings
from etl.sources.split import Format


def _as_tuple(value: object) -> object:
    """Convert a list to a tuple, as YAML and JSON have only lists, and path objects to strings."""
    if isinstance(value, list | tuple):
        return tuple(os.fspath(v) if isinstance(v, os.PathLike) else v for v in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


_Text = Annotated[str, Field(min_length=1)]

_Texts = Annotated[tuple[_Text, ...], Field(min_length=1)]

_Paths = Annotated[_Text | _Texts, BeforeValidator(_as_tuple)]

INPUT_PATHS: Final = ("path", "list", "index", "prefix")
"""The settings of a source that are paths or URLs."""


class Columns(Settings):
    """The input columns that hold the text and facts about it; None if the input has none."""

    text: _Text = "text"
    """The column that holds the text."""
    id: _Text | None = None
    """The column that holds your own id of a document; null if there is none. Bytes become hexadecimal, UUIDs
    their usual form, numbers their digits (1 and "1" are the same id), other values JSON. A row whose id is
    not valid UTF-8 is rejected."""
    url: _Text | None = None
    """The column that holds the URL; null if there is none."""
    media_type: _Text | None = None
    """The column that holds the media type of the text, such as ``text/html``, which the stage ``extract``
    reads; null if there is none."""

    @property
    def known(self) -> dict[str, str]:
        """The columns that the input has, by what they hold."""
        return {use: name for use, name in self.model_dump().items() if name is not None}


class Source(Settings):
    """The input of a recipe: its files, their format, and the columns to read.

    >>> Source(path="s3://crawl/*.parquet", columns=Columns(text="content")).identity()["columns"]
    {'text': 'content', 'id': None, 'url': None, 'media_type': None}
    """

    path: Annotated[_Text | tuple[_Text, ...], BeforeValidator(_as_tuple)] = ()
    """A URL, a glob, a folder, or several of them. The files of lakes are left out, so that a lake may be
    below its source. A glob or a folder with files of a Delta table is refused: name the table itself."""
    list: _Paths | None = None
    """Instead of a path: a text file, or several, with the path of a file on each line, such as Common
    Crawl's ``warc.paths.gz``. A list named ``.gz`` is decompressed; lines that start with # are comments. A
    file that does not exist is quarantined."""
    index: _Paths | None = None
    """Instead of a path: Parquet files that say which records of WARC files to read, with the columns
    ``warc_filename``, ``warc_record_offset`` and ``warc_record_length`` of Common Crawl's columnar index.
    Only these records are read, those near each other with one request. A WARC file of which other records
    are listed now counts as changed."""
    prefix: _Text | None = None
    """The URL or folder that the paths in ``list`` and ``index`` are below, such as ``s3://commoncrawl`` or
    ``https://data.commoncrawl.org``. null: the bucket or host of the list, or the folder of a local one."""
    format: Format | None = None
    """The format of the files. null: by the extension of each file; a folder with a ``_delta_log`` is a Delta
    table. With ``warc`` (WARC and WET files), the text is the page of a record; with ``text``, each file is
    one document."""
    delimiter: Literal[",", ";", "\t", "|"] | None = None
    """The character between the fields of CSV files. null: a tab in files named ``.tsv``, else a comma."""
    columns: Annotated[Columns, Field(strict=False)] = Columns()
    """The columns to read. WARC and plain text files have no columns: their text, id and URL are known."""
    metadata: Annotated[Literal["all"] | tuple[_Text, ...], BeforeValidator(_as_tuple)] = ()
    """Other input columns to keep, as one JSON object per row with sorted keys. Bytes become hexadecimal, and
    points in time UTC. A row with a string that is not valid UTF-8 is rejected."""
    version: Annotated[int, Field(ge=0)] | None = None
    """The version of a Delta table. null: the newest."""
    copies: Literal["once", "keep"] = "once"
    """What to do with a file that has the content of another one. once: the rows are in the lake once, under
    the name that was read first. keep: the rows of both are."""
    damaged: Literal["quarantine", "keep_readable"] = "quarantine"
    """What happens to a file that is damaged or truncated. ``quarantine``: a damaged split has no rows until
    it can be read. ``keep_readable``: its readable rows are kept, and each damaged stretch, or each row
    of a damaged row group or record batch, is a rejected row with the reason ``source.damaged``. WARC files
    are always read like that."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Read only about this many records, at most, from the start of files at equal distances. For trials."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Read only this share of the text, about, from the start of each file (of each split of a file that can
    be cut). For trials."""
    split_bytes: Annotated[int, Field(gt=0)] = 32 << 20
    """How much text a split has, about: files with more are cut, if the format allows it. Input of more than
    32 TB of text is cut into a million larger splits. The size may change between the runs of a lake."""
    max_text_bytes: Annotated[int, Field(gt=0, le=1 << 30)] = 16 << 20
    """A longer text is rejected as ``source.too_large``, as is a record of more than twice that size. With
    the default, a split takes less than 1 GB of memory to read, whatever the file contains."""

    @field_validator("format", mode="before")
    @classmethod
    def _is_known_format(cls, value: object) -> object:
        formats: tuple[str, ...] = get_args(Format)
        if isinstance(value, str) and value not in formats:
            raise ValueError(f"unknown format {value!r}: {nearest_names(value, formats)}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _names_its_input(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if value.get("path", "") is None and (value.get("list") or value.get("index")):
            return {key: given for key, given in value.items() if key != "path"}
        if not {"path", "list", "index"} & {*value}:
            missing = InitErrorDetails(type="missing", loc=("path",), input=dict(value))
            raise ValidationError.from_exception_data(cls.__name__, [missing])
        return value

    @model_validator(mode="after")
    def _names_one_input(self) -> "Source":
        given = [name for name in ("path", "list", "index") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                f"set one of path, list and index, not {' and '.join(given) or 'none'}"
            )
        if self.prefix is not None and self.path:
            raise ValueError("set prefix with list or index only: path has the whole path")
        if self.index is not None and self.format not in (None, "warc"):
            raise ValueError(f"an index is of WARC files, but the format is {self.format}")
        return self

    @model_validator(mode="after")
    def _is_one_part(self) -> "Source":
        if self.limit is not None and self.share is not None:
            raise ValueError("set limit or share, not both")
        return self

    @model_validator(mode="after")
    def _only_a_table_has_a_version(self) -> "Source":
        if self.version is not None and self.format not in (None, "delta"):
            raise ValueError(
                f"version is set, but format {self.format} has no versions: remove version, or use"
                " format: delta"
            )
        return self

    @model_validator(mode="after")
    def _only_csv_has_a_delimiter(self) -> "Source":
        if self.delimiter is not None and self.format not in (None, "csv"):
            raise ValueError(
                f"delimiter is set, but format {self.format} has none: remove delimiter, or use format: csv"
            )
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as written, always as a tuple; of a list or an index also the prefix."""
        given = (getattr(self, name) or () for name in INPUT_PATHS)
        return tuple(
            path for each in given for path in ((each,) if isinstance(each, str) else each)
        )

    @property
    def max_record_bytes(self) -> int:
        """The maximum size of a line or record: the text with its escapes and the other fields."""
        return 2 * self.max_text_bytes + (1 << 20)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the rows and their addresses, wherever the files are.

        The others are the paths, the version and the split size.
        """
        return self.model_dump(mode="json", exclude={*INPUT_PATHS, "version", "split_bytes"})
