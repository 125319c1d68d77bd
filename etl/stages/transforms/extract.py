"""The Extract stage: extract plain text from HTML pages."""

import json
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, model_validator

from etl import schemas
from etl.errors import RecipeError
from etl.kernels.bytes.one_chunk import one_chunk
from etl.sources.batches import is_blank
from etl.sources.records import to_json
from etl.stages.base import Rules, Transform, above
from etl.text import html, recognize_html
from etl.text.main_text import DEFAULT_KINDS, KINDS, Kind, extract_main_text
from etl.text.main_text_model import Favor, model_digest

if TYPE_CHECKING:
    from etl.kernels.bytes.utf8 import Texts

extract_markup_ratio = pl.col("extract_markup_ratio")
"""Share of the extracted text that lies inside HTML elements; 0 if it has few tags."""


_METADATA: Final = "extract"
"""The key of a page's own metadata in the column ``metadata``."""


def _in_order(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Return kinds in one order, each once, since a stage's identity depends on it."""
    return tuple(kind for kind in KINDS if kind in kinds)


class Extract(Transform):
    """Replace HTML pages by their main text; other documents stay unchanged.

    ``resiliparse`` is the extractor of DCLM (Li et al. 2024), 26 MB of HTML/s per core; ``trafilatura``, in
    its precision mode, is FineWeb's (Penedo et al. 2024), 1.5 MB/s per core. ``tokenlake`` reads a page in
    one compiled pass, and a small model decides which blocks of text are main text. It separates blocks by a
    blank line, begins the items of lists with ``-`` or their number, and separates the cells of a table by
    tabs. It has settings (``favor``, ``keep``), signals for later rules, and stores what the page says about
    itself in ``metadata``, under ``extract``: ``title``, ``lang``, ``canonical`` (the URL), ``date`` of
    publication, ``license``, ``robots``, ``tdm_reservation`` and ``tdm_policy``.

    Which documents are pages depends on the media type that the source gives (of a WARC record, the
    extension of a file, the column ``media_type``), or else on their content
    (``etl.text.recognize_html``). So one recipe works for WARC, WET and Parquet. ``all_html`` treats every
    document as a page, which fragments without a type may need.

    A page that takes more than ``seconds`` of CPU time (the default is datatrove's), or ten times as much
    wall time, is rejected as ``extract.timeout``; a page on which the library fails as ``extract.failed``
    (the error is in ``metadata``). With ``tokenlake``, neither happens. Other reasons are ``extract.empty``,
    and ``extract.markup`` for a document that even so is mostly markup.
    Documents that an earlier stage has rejected are not extracted.
    """

    kind: Literal["extract"] = "extract"
    example = "extract: trafilatura"
    shorthand = "extractor"
    costly = True
    reads_media_type = True
    thresholds = ("max_markup_ratio",)
    extractor: Literal[html.Extractor, "tokenlake"] = "resiliparse"
    """What extracts the text: the library ``resiliparse`` or ``trafilatura`` (more precise), or ``tokenlake``
    (much faster than both)."""
    seconds: float = Field(default=1.0, gt=0, le=3600)
    """CPU time that a library may take for a page; wall time may be ten times as long."""
    favor: Favor = "balanced"
    """What ``tokenlake`` does with blocks that may not be main text: ``recall`` keeps more of them,
    ``precision`` fewer."""
    keep: Annotated[tuple[Kind, ...], Field(strict=False), AfterValidator(_in_order)] = (
        DEFAULT_KINDS
    )
    """The kinds of content that ``tokenlake`` keeps in a main text: cells of ``tables``, items of ``lists``,
    preformatted ``code``, formulas (``math``) as TeX between dollar signs, and the readers' ``comments``."""
    all_html: bool = False
    """Whether every document is HTML, whatever its media type and its content are."""
    max_markup_ratio: float | None = Field(default=0.7, ge=0, le=1)
    """The highest share of a text that may lie inside HTML elements if at least 5 % of it are tags; null
    allows any. The default is chosen here: of 2,978 pages, 99.4 % have more before extraction, one has more
    after it; so have 3 of 2,040 texts about HTML and XML."""

    # The settings that only the libraries have, or only ``tokenlake``.
    _of_libraries: ClassVar[frozenset[str]] = frozenset({"seconds"})
    _of_tokenlake: ClassVar[frozenset[str]] = frozenset({"favor", "keep"})

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        unused = self._of_libraries if self.extractor == "tokenlake" else self._of_tokenlake
        for name in sorted(self.model_fields_set & unused):
            raise ValueError(f"{name} has no effect with the extractor {self.extractor}")
        return self

    def columns(self) -> dict[str, str]:
        """Return the length of a page, null for other documents, and the share of markup that is left.

        ``tokenlake`` adds the shares of main text, links and readers' comments in the text of a page.
        """
        columns = {
            "extract_html_chars": "code points",
            "extract_markup_ratio": "share of code points",
        }
        if self.extractor == "tokenlake":
            names = ("extract_main_ratio", "extract_link_ratio", "extract_comment_ratio")
            columns.update(dict.fromkeys(names, "share of bytes"))
        return columns

    def rules(self) -> Rules:
        """Return the rule ``extract.markup``."""
        return {"markup": above(extract_markup_ratio, self.max_markup_ratio)}

    def identity(self) -> dict[str, Any]:
        """Return the fields and the extractor's version; raise RecipeError if it is not installed."""
        fields = super().identity()
        if self.extractor == "tokenlake":
            return {**_without(fields, self._of_libraries), "model": model_digest()}
        try:
            installed = version(self.extractor)
        except PackageNotFoundError as error:
            hint = f"pip install {self.extractor}"
            raise RecipeError(
                f"the extractor {self.extractor} is not installed", where=self.kind, hint=hint
            ) from error
        return {**_without(fields, self._of_tokenlake), "version": installed}

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table with pages replaced by their text, or with a reason, row for row."""
        from etl.kernels.bytes import utf8

        texts = one_chunk(table["text"]).cast(pa.string())
        is_page = self._find_pages(texts, one_chunk(table["media_type"]))
        buffers = utf8.texts(texts)
        found = self._extract(buffers, is_page, one_chunk(table["metadata"]))
        chars = pc.if_else(is_page, utf8.count_chars(buffers), None)
        all_pages = is_page.true_count == len(texts)
        text = found.text if all_pages else pc.if_else(is_page, found.text, texts)
        columns = {
            "text": text,
            "reason": pc.coalesce(one_chunk(table["reason"]), found.reason),
            "metadata": found.metadata,
        }
        for name, column in columns.items():
            index = table.schema.get_field_index(name)
            table = table.set_column(index, schemas.RAW.field(name), column)
        signals = {
            "extract_html_chars": chars.cast(pa.float64()),
            "extract_markup_ratio": recognize_html.markup_ratios(text),
            **found.signals,
        }
        for name, column in signals.items():
            table = _with_column(table, name, column)
        return table

    def _extract(
        self, texts: "Texts", is_page: pa.BooleanArray, metadata: pa.StringArray
    ) -> "_Found":
        if self.extractor == "tokenlake":
            main = extract_main_text(texts, is_page, favor=self.favor, keep=self.keep)
            return _Found(
                main.text,
                _reasons([], main.text),
                _add_page(metadata, main.metadata),
                {
                    "extract_main_ratio": main.main_ratio,
                    "extract_link_ratio": main.link_ratio,
                    "extract_comment_ratio": main.comment_ratio,
                },
            )
        pages = _pages(texts, is_page)
        of_pages = html.extract_pages(pages, extractor=self.extractor, seconds=self.seconds)
        no_page = html.ExtractedPage()
        outcomes = [next(of_pages) if page else no_page for page in is_page.to_pylist()]
        new = pa.array([outcome.text for outcome in outcomes], pa.binary()).cast(pa.string())
        return _Found(new, _reasons(outcomes, new), _add_errors(metadata, outcomes), {})

    def _find_pages(self, texts: pa.StringArray, media_types: pa.StringArray) -> pa.BooleanArray:
        if self.all_html:
            return pc.is_valid(texts)
        return recognize_html.find_pages(texts, media_types)


class _Found(NamedTuple):
    """What an extractor gives for each row: a text and a reason, null where it is not a page."""

    text: pa.StringArray
    reason: pa.StringArray
    metadata: pa.StringArray  # of all rows
    signals: dict[str, pa.Array]


def _without(fields: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _pages(texts: "Texts", is_page: pa.BooleanArray) -> list[memoryview]:
    """Return the texts that are pages, without copying them."""
    data, offsets = texts.data.data, texts.offsets.tolist()
    bounds = zip(pairwise(offsets), is_page.to_pylist(), strict=True)
    return [data[start:stop] for (start, stop), page in bounds if page]


def _reasons(outcomes: list[html.ExtractedPage], texts: pa.StringArray) -> pa.StringArray:
    empty = pc.if_else(
        pc.fill_null(is_blank(texts), False), "extract.empty", pa.scalar(None, pa.string())
    )
    problems = [f"extract.{each.problem}" if each.problem else None for each in outcomes]
    return pc.coalesce(empty, pa.array(problems, pa.string())) if problems else empty


def _add_page(metadata: pa.StringArray, pages: pa.StringArray) -> pa.StringArray:
    """Return the metadata of documents with that of their pages (JSON objects) added under one key."""
    added = pc.binary_join_element_wise(f'{{"{_METADATA}":', pages, "}", "")
    # The object without its last brace, a comma, and the new one without its first.
    is_known = pc.and_(pc.is_valid(metadata), pc.not_equal(metadata, "{}"))
    joined = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(metadata, 0, -1), pc.utf8_slice_codeunits(added, 1), ","
    )
    merged = pc.coalesce(pc.if_else(pc.fill_null(is_known, False), joined, added), metadata)
    has_key = pc.fill_null(pc.match_substring(metadata, f'"{_METADATA}":'), False)
    if not pc.any(has_key).as_py():
        return merged
    # A column of the source may have the same name: the page's own metadata replace it.
    rows = zip(metadata.filter(has_key), pages.filter(has_key), strict=True)
    values = [_replace(old.as_py(), new.as_py()) for old, new in rows]
    return pc.replace_with_mask(merged, has_key, pa.array(values, pa.string()))


def _replace(metadata: str, page: str | None) -> str:
    if page is None:
        return metadata
    return to_json({**json.loads(metadata), _METADATA: json.loads(page)})


def _add_errors(metadata: pa.StringArray, outcomes: list[html.ExtractedPage]) -> pa.Array:
    """Return the metadata with ``error`` added where a page has failed."""
    values = metadata.to_pylist()
    for index, outcome in enumerate(outcomes):
        if outcome.problem is not None:
            fields = json.loads(values[index] or "{}")
            fields["error"] = outcome.error
            values[index] = json.dumps(fields, ensure_ascii=False, sort_keys=True)
    return pa.array(values, pa.string())


def _with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.append_column(name, column) if index < 0 else table.set_column(index, name, column)
