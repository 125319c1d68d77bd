"""The Extract stage: extract plain text from HTML pages."""

import json
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl import schemas
from etl.errors import RecipeError
from etl.kernels.bytes.one_chunk import one_chunk
from etl.sources.batches import is_blank
from etl.stages.base import Rules, Transform, above
from etl.text import html, recognize_html

if TYPE_CHECKING:
    from etl.kernels.bytes.utf8 import Texts

extract_markup_ratio = pl.col("extract_markup_ratio")
"""Share of the extracted text that lies inside HTML elements; 0 if it has few tags."""


class Extract(Transform):
    """Replace HTML pages by their main text; other documents stay unchanged.

    ``resiliparse`` is the extractor of DCLM (Li et al. 2024), 26 MB of HTML/s per core; ``trafilatura``, in
    its precision mode, is FineWeb's (Penedo et al. 2024), 1.5 MB/s per core.

    Which documents are pages depends on the media type that the source gives (of a WARC record, the
    extension of a file, the column ``media_type``), or else on their content
    (``etl.text.recognize_html``). So one recipe works for WARC, WET and Parquet. ``all_html`` treats every
    document as a page, which fragments without a type may need.

    A page that takes more than ``seconds`` of CPU time (the default is datatrove's), or ten times as much
    wall time, is rejected as ``extract.timeout``. Other reasons are ``extract.failed`` (the error is in
    ``metadata``), ``extract.empty``, and ``extract.markup`` for a document that even so is mostly markup.
    Documents that an earlier stage has rejected are not extracted.
    """

    kind: Literal["extract"] = "extract"
    example = "extract: trafilatura"
    shorthand = "extractor"
    costly = True
    reads_media_type = True
    thresholds = ("max_markup_ratio",)
    extractor: html.Extractor = "resiliparse"
    """The library that extracts the text: ``resiliparse`` (fast) or ``trafilatura`` (more precise)."""
    seconds: float = Field(default=1.0, gt=0, le=3600)
    """CPU time that a page may take; wall time may be ten times as long."""
    all_html: bool = False
    """Whether every document is HTML, whatever its media type and its content are."""
    max_markup_ratio: float | None = Field(default=0.7, ge=0, le=1)
    """The highest share of a text that may lie inside HTML elements if at least 5 % of it are tags; null
    allows any. The default is chosen here: of 2,978 pages, 99.4 % have more before extraction, one has more
    after it; so have 3 of 2,040 texts about HTML and XML."""

    def columns(self) -> dict[str, str]:
        """Return the length of the page, null for other documents, and the share of markup that is left."""
        return {"extract_html_chars": "code points", "extract_markup_ratio": "share of code points"}

    def rules(self) -> Rules:
        """Return the rule ``extract.markup``."""
        return {"markup": above(extract_markup_ratio, self.max_markup_ratio)}

    def identity(self) -> dict[str, Any]:
        """Return the fields and the extractor's version; raise RecipeError if it is not installed."""
        try:
            installed = version(self.extractor)
        except PackageNotFoundError as error:
            hint = f"pip install {self.extractor}"
            raise RecipeError(
                f"the extractor {self.extractor} is not installed", where=self.kind, hint=hint
            ) from error
        return {**super().identity(), "version": installed}

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table with pages replaced by their text, or with a reason, row for row."""
        from etl.kernels.bytes import utf8

        texts = one_chunk(table["text"]).cast(pa.string())
        is_page = self._find_pages(texts, one_chunk(table["media_type"]))
        buffers = utf8.texts(texts)
        of_pages = iter(
            html.extract_pages(
                _pages(buffers, is_page), extractor=self.extractor, seconds=self.seconds
            )
        )
        no_page = html.ExtractedPage()
        outcomes = [next(of_pages) if page else no_page for page in is_page.to_pylist()]
        new = pa.array([outcome.text for outcome in outcomes], pa.binary()).cast(pa.string())
        chars = pc.if_else(is_page, utf8.count_chars(buffers), None)
        text = new if is_page.true_count == len(texts) else pc.if_else(is_page, new, texts)
        columns = {
            "text": text,
            "reason": pc.coalesce(one_chunk(table["reason"]), _reasons(outcomes, new)),
            "metadata": _add_errors(table["metadata"], outcomes),
        }
        for name, column in columns.items():
            index = table.schema.get_field_index(name)
            table = table.set_column(index, schemas.RAW.field(name), column)
        table = _with_column(table, "extract_html_chars", chars.cast(pa.float64()))
        return _with_column(table, "extract_markup_ratio", recognize_html.markup_ratios(text))

    def _find_pages(self, texts: pa.StringArray, media_types: pa.StringArray) -> pa.BooleanArray:
        if self.all_html:
            return pc.is_valid(texts)
        return recognize_html.find_pages(texts, media_types)


def _pages(texts: "Texts", is_page: pa.BooleanArray) -> list[memoryview]:
    """Return the texts that are pages, without copying them."""
    data, offsets = texts.data.data, texts.offsets.tolist()
    bounds = zip(pairwise(offsets), is_page.to_pylist(), strict=True)
    return [data[start:stop] for (start, stop), page in bounds if page]


def _reasons(outcomes: list[html.ExtractedPage], texts: pa.StringArray) -> pa.StringArray:
    problems = [f"extract.{each.problem}" if each.problem else None for each in outcomes]
    return pc.if_else(
        pc.fill_null(is_blank(texts), False), "extract.empty", pa.array(problems, pa.string())
    )


def _add_errors(metadata: pa.ChunkedArray, outcomes: list[html.ExtractedPage]) -> pa.Array:
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
