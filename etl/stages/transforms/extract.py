"""The Extract stage: extract plain text from HTML pages."""

import json
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl import schemas
from etl.errors import RecipeError
from etl.kernels.bytes.chunks import one_chunk
from etl.sources.batches import is_blank
from etl.stages.base import Transform
from etl.text import html

if TYPE_CHECKING:
    from etl.kernels.bytes.utf8 import Texts

# WHATWG MIME Sniffing, 7.1, recognizes 17 of these at the start of a page; the others are added here.
_FIRST_TAGS = (
    "html head body title meta link base script style noscript iframe div p span a b h[1-6] br hr font"
    " center table form ul ol dl img section article main header nav footer"
)
_PAGE = rf"^[\s\x{{FEFF}}]*<(?:!doctype\s+html|!--|\?xml|(?:{'|'.join(_FIRST_TAGS.split())})[\s/>])"


class Extract(Transform):
    """Replace HTML pages by their main text; other documents stay unchanged.

    ``resiliparse`` is the extractor of DCLM (Li et al. 2024), 26 MB of HTML/s per core; ``trafilatura``, in
    its precision mode, is that of FineWeb (Penedo et al. 2024), 1.5 MB/s per core. A document is a page if
    it begins with an HTML tag, a comment or a doctype, so one recipe works for WARC, WET and Parquet;
    ``all_html`` treats every document as a page, which fragments need. A page that takes more than
    ``seconds`` of CPU time (the default is datatrove's), or ten times that of wall time, is rejected as
    ``extract.timeout``. Other reasons are ``extract.failed`` (the error is in ``metadata``) and
    ``extract.empty``. Documents that an earlier stage has rejected are not extracted.
    """

    kind: Literal["extract"] = "extract"
    shorthand = "extractor"
    costly = True
    extractor: html.Extractor = "resiliparse"
    """The library that extracts the text: ``resiliparse`` (fast) or ``trafilatura`` (more precise)."""
    seconds: float = Field(default=1.0, gt=0, le=3600)
    """CPU time that a page may take; wall time may be ten times as long."""
    all_html: bool = False
    """Whether every document is HTML, even if it does not begin with a tag."""

    def columns(self) -> dict[str, str]:
        """Return the column with the length of the page, null for documents that are not pages."""
        return {"extract_html_chars": "code points"}

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
        is_page = self._is_page(texts)
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
        columns = {
            "text": new if is_page.true_count == len(texts) else pc.if_else(is_page, new, texts),
            "reason": pc.coalesce(one_chunk(table["reason"]), _reasons(outcomes, new)),
            "metadata": _add_errors(table["metadata"], outcomes),
        }
        for name, column in columns.items():
            index = table.schema.get_field_index(name)
            table = table.set_column(index, schemas.RAW.field(name), column)
        return _with_column(table, "extract_html_chars", chars.cast(pa.float64()))

    def _is_page(self, texts: pa.StringArray) -> pa.BooleanArray:
        if self.all_html:
            return pc.is_valid(texts)
        return pc.fill_null(pc.match_substring_regex(texts, _PAGE, ignore_case=True), False)


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
