"""Inspect files that no recipe describes yet: their formats, their columns, and some of their documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa

from etl import storage
from etl.errors import SourceError, StorageError
from etl.plural import many
from etl.schemas import RAW
from etl.sources import doubts
from etl.sources.formats import detect_format
from etl.sources.formats.csv import default_delimiter
from etl.sources.guess_delimiter import Delimiter, guess_delimiter
from etl.sources.list_splits import list_files, list_source
from etl.sources.named_files import is_list
from etl.sources.peek import Record, first_lines, peek, sniff_format
from etl.sources.plausible import kind_of_column
from etl.sources.read_split import read_first
from etl.sources.source_settings import Columns, Source
from etl.sources.split import Format, Split
from etl.sources.spread import spread

_FILES_PER_FORMAT: Final = 8  # that are opened
_SAMPLED_LINES: Final = 4000  # of a file that may be CSV
_SAMPLED_RECORDS: Final = 400  # of a format, from all files that are opened

_TEXT_NAMES: Final = (
    *("text", "content", "contents", "body", "raw_content", "document", "page_content", "markdown"),
    *("article", "passage", "story", "plain_text", "maintext", "html", "raw_text", "doc"),
)
_ID_NAMES: Final = (
    *("id", "_id", "doc_id", "docid", "document_id", "uuid", "guid", "record_id", "warc_record_id"),
    *("key", "uid", "pageid", "page_id", "article_id"),
)
_URL_NAMES: Final = (
    *("url", "uri", "link", "source_url", "page_url", "href", "permalink", "warc_target_uri"),
    *("web_url", "canonical_url"),
)
_MIN_SHARE_OF_LONGEST: Final = (
    0.25  # mean length of a column named like a text, compared with the longest
)
_SEEN_SHARE: Final = 0.8  # of the values of a column, for the column to be one of URLs


@dataclass(frozen=True, kw_only=True)
class FormatFacts:
    """The files of one format, with the columns of those that were opened."""

    format: Format
    files: int
    bytes: int
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What files are like: formats, columns, and a sample of their documents.

    ``source`` reads them. ``other_columns`` are those that it does not read. ``documents`` is a table of
    schema RAW with a few documents of each file that was opened. ``errors`` has the errors of files that
    cannot be read with these settings. ``doubts`` are sentences about what is not plausible.
    """

    source: Source
    formats: tuple[FormatFacts, ...]
    other_columns: tuple[str, ...]
    documents: pa.Table
    errors: tuple[SourceError, ...]
    doubts: tuple[str, ...]

    @property
    def lacking_text(self) -> tuple[FormatFacts, ...]:
        """The formats whose files do not have the column of the text."""
        text = self.source.columns.text
        return tuple(each for each in self.formats if each.columns and text not in each.columns)


def inspect_source(paths: Sequence[str]) -> SourceFacts:
    """Open a few files of each format and return what they are like.

    The columns are chosen for the format with the most bytes. Raises SourceError if a path matches no file,
    if the format of a file is unknown, if no file can be read, or if no record has a text; StorageError if a
    URL cannot be listed.
    """
    given = tuple(paths) if len(paths) > 1 else paths[0]
    if all(map(is_list, paths)):
        source, format_ = Source(list=given), None
        files = list_source(source).files
    else:
        source, format_ = Source(path=given), _guess_format(paths)
        files = list_files(paths, format_)
    opened: dict[Format, list[Split]] = {}
    for name in dict.fromkeys(file.format for file in files):
        opened[name] = spread((file for file in files if file.format == name), _FILES_PER_FORMAT)
    delimiter = _guess_delimiter(opened.get("csv", ()))
    records = {
        name: _peek_all(chosen, _SAMPLED_RECORDS // len(chosen), delimiter)
        for name, chosen in opened.items()
    }
    largest = max(opened, key=lambda name: sum(f.size for f in files if f.format == name))
    columns = choose_columns(records[largest])
    chosen = {"format": format_, "delimiter": delimiter, "columns": columns}
    source = source.model_copy(update=chosen)
    formats = tuple(
        FormatFacts(
            format=name,
            files=sum(file.format == name for file in files),
            bytes=sum(file.size for file in files if file.format == name),
            columns=tuple(dict.fromkeys(key for record in found for key in record)),
        )
        for name, found in records.items()
    )
    read = {columns.text, columns.id, columns.url}
    others = dict.fromkeys(name for each in formats for name in each.columns if name not in read)
    documents, errors = _read_all(opened.values(), source)
    if documents["text"].null_count == len(documents):
        raise errors[0] if errors else _no_text_error(documents, paths[0])
    return SourceFacts(
        source=source,
        formats=formats,
        other_columns=tuple(others),
        documents=documents,
        errors=errors,
        doubts=(
            *doubts.of_columns(records[largest], columns, largest),
            *doubts.of_files([file.uri for file in files]),
            *doubts.of_texts(documents, opened.get("text", ())),
        ),
    )


def _guess_delimiter(files: Sequence[Split]) -> Delimiter | None:
    """Return the delimiter of CSV files, by the lines of the first; None if it is that of its extension."""
    for file in files[:1]:
        guess = guess_delimiter(first_lines(file, _SAMPLED_LINES))
        return None if guess == default_delimiter(file.uri) else guess
    return None


def _no_text_error(documents: pa.Table, path: str) -> SourceError:
    """Return the error for files without a text, with the reason why the first record has none."""
    if not len(documents):
        return SourceError(
            "the files have no records", where=path, hint="give --source other files"
        )
    first = documents.slice(0, 1).to_pylist()[0]
    return SourceError(
        f"no text in the first {many(len(documents), 'record')}: {first['reason']}",
        where=first["source"],
        hint="correct the file, or give --source other files",
    )


def choose_columns(records: Sequence[Record]) -> Columns:
    """Return the columns that hold the text, the id and the URL, by their names and values.

    The text is in the column with a common name for it, unless its values are short compared with another
    column's, and else in the column with the longest values. Columns of dates, numbers, ids and the like are
    chosen only if there is no other.

    >>> choose_columns([{"title": "A", "body": "A text.", "n": 1, "link": "https://example.org"}])
    Columns(text='body', url='link')
    """
    if not records:  # a format without columns
        return Columns()
    columns: dict[str, list[object]] = {}
    for record in records:
        for name, value in record.items():
            if value is not None and name:
                columns.setdefault(name, []).append(value)
    lengths = {
        name: sum(len(value) for value in values if isinstance(value, str)) / len(records)
        for name, values in columns.items()
        if any(isinstance(value, str) for value in values)
    }
    urls = [name for name, values in columns.items() if _are_urls(values)]
    url = _first_named(_URL_NAMES, urls) or next(iter(urls), None)
    lengths.pop(url or "", None)
    prose = {n: length for n, length in lengths.items() if kind_of_column(columns[n]) is None}
    lengths = prose or lengths
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    if longest is None:
        names = ", ".join(columns) or "none"
        nested = doubts.of_nested(records, None)
        raise SourceError(
            "no column holds text", hint="; ".join([f"the columns are: {names}", *nested])
        )
    enough = _MIN_SHARE_OF_LONGEST * lengths[longest]
    text = _first_named(_TEXT_NAMES, [n for n, length in lengths.items() if length >= enough])
    text = text or longest
    unique = [
        name
        for name, values in columns.items()
        if name not in (text, url) and len({*map(repr, values)}) == len(values) == len(records)
    ]
    return Columns(text=text, id=_first_named(_ID_NAMES, unique), url=url)


def _first_named(known: Iterable[str], names: Sequence[str]) -> str | None:
    """Return the name that comes first among the known ones, without regard to case, or None."""
    plain: Mapping[str, str] = {
        name.lower().replace("-", "_").replace(" ", "_"): name for name in reversed(names)
    }
    return next((plain[name] for name in known if name in plain), None)


def _are_urls(values: Sequence[object]) -> bool:
    seen = sum(isinstance(v, str) and v.startswith(("http://", "https://")) for v in values)
    return seen >= _SEEN_SHARE * len(values)


def _guess_format(paths: Sequence[str]) -> Format | None:
    """Return the format of files whose extension is unknown; None if the extension of a file is known."""
    for path in paths:
        if storage.is_folder(storage.join(storage.normalize(path), "_delta_log")):
            return None
        problems: list[StorageError] = []  # for the run to report
        for file in islice(storage.find_files(path, problems.append), _FILES_PER_FORMAT):
            if detect_format(file.uri) is not None:
                return None
            if (format_ := sniff_format(file.uri)) is not None:
                return format_
    return None


def _peek_all(files: Sequence[Split], max_records: int, delimiter: str | None) -> list[Record]:
    """Return the first records of files; raise the error of the first one if none can be read."""
    records: list[Record] = []
    errors: list[SourceError] = []
    for file in files:
        try:
            records += peek(file, max_records, delimiter)
        except SourceError as error:
            errors.append(error)
    if errors and len(errors) == len(files):
        raise errors[0]
    return records


def _read_all(
    opened: Iterable[Sequence[Split]], source: Source
) -> tuple[pa.Table, tuple[SourceError, ...]]:
    """Return the first documents of files as a table, and the errors of files that cannot be read."""
    tables = [RAW.empty_table()]
    errors = []
    for file, count in (
        (file, _SAMPLED_RECORDS // len(files)) for files in opened for file in files
    ):
        try:
            tables.append(read_first(file, source, count))
        except SourceError as error:
            errors.append(error)
    return pa.concat_tables(tables), tuple(errors)
