"""Sentences about what is not plausible in a proposed source: its column of text, its files, its texts."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

import pyarrow as pa

from etl.sources.guess_delimiter import guess_delimiter
from etl.sources.peek import first_lines
from etl.sources.plausible import (
    is_code,
    kind_of_column,
    kind_of_value,
    mixed_parts,
    nested_texts,
    parts_of_column,
)
from etl.sources.source_settings import Columns
from etl.sources.split import Format, Split

_TIMES_LONGER: Final = 4  # a nested text than the text of a column, as for columns with known names
_SHORT_CHARS: Final = 25  # of a text: about four English words
_MANY_LINES: Final = 20  # of a file of plain text
_BLANK_SHARE: Final = 0.02  # of its lines, which separate paragraphs
_MAX_NAME_CHARS: Final = 64
_MAX_SHOWN: Final = 8

Records = Sequence[Mapping[str, Any]]


def of_columns(records: Records, columns: Columns, format_: Format) -> Iterator[str]:
    """Yield doubts about the names of columns, the column of the text, and columns that mix data sets."""
    if not records:
        return
    names = dict.fromkeys(name for record in records for name in record)
    values = {name: [record.get(name) for record in records] for name in (*names, columns.text)}
    texts = [v for v in values[columns.text] if isinstance(v, str)]
    others = [
        name
        for name, of in values.items()
        if name != columns.text
        and any(isinstance(v, str) for v in of)
        and kind_of_column(of) is None
    ]
    choose = (
        f"is the right column (source.columns.text) one of: {', '.join(others[:_MAX_SHOWN])}?"
        if others
        else "no other column holds prose, so check that these are the right files"
    )
    if format_ == "csv":
        yield from _of_header(list(records[0]))
    if (kind := kind_of_column(texts)) is not None:
        yield f"column {columns.text!r} holds {kind}, not prose: {choose}"
    elif texts and (chars := median(map(len, texts))) < _SHORT_CHARS:
        yield f"half of the texts in column {columns.text!r} have at most {chars:.0f} characters: {choose}"
    yield from of_nested(records, columns.text)
    for name, of in values.items():
        if (parts := parts_of_column(of)) is not None:
            yield (
                f"column {name!r} mixes data sets ({', '.join(parts)}): training on held-out data makes its "
                "scores worthless; write the training rows to files of their own"
            )


def _of_header(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if found := next((sign for sign in (";", "\t", "|") if sign in name), None):
            yield (
                f"the name of column {name!r} contains {found!r}: if that separates fields, set "
                f"source.delimiter to {found!r}, and put fields that contain it in quotes"
            )
        elif len(name) > _MAX_NAME_CHARS or kind_of_value(name) in ("dates or numbers", "URLs"):
            yield (
                f"the first line is read as names of columns, but {name[:_MAX_NAME_CHARS]!r} seems to be a "
                "value: if so, add a line with names"
            )
            return


def of_nested(records: Records, text: str | None) -> Iterator[str]:
    """Yield where prose is nested that is long compared with the column of the text, and how to read it."""
    lengths = nested_texts(records)
    path = max(lengths, key=lambda name: lengths[name], default=None)
    of_text = [v for record in records if isinstance(v := record.get(text or ""), str)]
    own = 0.0 if kind_of_column(of_text) == "JSON" else sum(map(len, of_text)) / len(records)
    if path is None or lengths[path] < _TIMES_LONGER * own:
        return
    first, _, rest = path.partition(".")
    is_json = any(isinstance(record.get(first), str) for record in records)
    inner = f"(.{first} | fromjson).{rest}" if is_json else f".{path}"
    if "[]" in path:
        inner = f'[{inner}] | join("\\n")'
    struct = "".join(f".struct.field({name!r})" for name in rest.split("."))
    polars = "" if is_json or "[]" in path else f"; in Polars it is `pl.col({first!r}){struct}`"
    yield (
        f"the text seems to be in {path!r}, but only columns of the first level are read: copy it to one "
        f"first, for JSON Lines with `jq -c '. + {{text: ({inner})}}' IN > OUT`{polars}"
    )


def of_files(uris: Sequence[str]) -> Iterator[str]:
    """Yield whether training and held-out files are mixed."""
    if (parts := mixed_parts(uris)) is not None:
        train, held_out = ([name.removeprefix("file://") for name in part] for part in parts)
        yield (
            f"the {len(uris):,} files include held-out data, such as {held_out[0]}: "
            f"training on it makes its scores worthless; give --source only files such as {train[0]}"
        )


def of_texts(documents: pa.Table, text_files: Sequence[Split]) -> Iterator[str]:
    """Yield whether lines of text files may be documents or records, and whether texts are equal or code."""
    for file in text_files[:1]:
        yield from _of_lines(first_lines(file, 10 * _MANY_LINES))
    texts = [text for text in documents["text"].to_pylist() if text]
    pages = sum(text.lstrip().startswith("<") for text in texts)
    if sum(map(is_code, texts)) * 2 > len(texts) and pages * 2 < len(texts):
        yield (
            "most texts have as many brackets and signs as source code: if they are, remove `gopher_quality` "
            "and `gopher_repetition`, which are for prose"
        )
    if len(texts) >= _MANY_LINES and len({*texts}) * 2 < len(texts):
        yield f"the {len(texts):,} sampled texts have only {len({*texts}):,} distinct values"


def _of_lines(lines: Sequence[str]) -> Iterator[str]:
    filled = [line.rstrip("\r") for line in lines if line.strip()]
    if len(filled) < _MANY_LINES or filled[0].lstrip("\ufeff ").startswith("<"):  # a page of HTML
        return
    if len(lines) - len(filled) > _BLANK_SHARE * len(lines) + 1:  # paragraphs
        return
    if sum(kind_of_value(line) == "JSON" for line in filled) > len(filled) // 2:
        yield "the lines of the text files are JSON: set source.format to jsonl, and name the columns"
    elif (delimiter := guess_delimiter(filled)) is not None:
        yield (
            "the lines of the text files have fields: set source.format to csv, source.delimiter to "
            f"{delimiter!r}, and name the columns"
        )
    else:
        yield (
            "each text file is one document, but its lines are not in paragraphs: if each line is a "
            "document, write them as JSON Lines first, with `jq -R -c '{text: .}' IN > OUT`"
        )
