"""Web pages to plain text."""

import json
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl import schemas
from etl.errors import RecipeError
from etl.kernels.bytes import utf8
from etl.sources.batches import is_blank
from etl.stages.base import Transform
from etl.text import html

# WHATWG MIME Sniffing, 7.1, begins a page with 17 of these; the others were added here.
_FIRST_TAGS = (
    "html head body title meta link base script style noscript iframe div p span a b h[1-6] br hr font"
    " center table form ul ol dl img section article main header nav footer"
)
_PAGE = rf"^[\s\x{{FEFF}}]*<(?:!doctype\s+html|!--|\?xml|(?:{'|'.join(_FIRST_TAGS.split())})[\s/>])"


class Extract(Transform):
    """The readable text of web pages: HTML in, plain text out; what is no HTML stays as it is.

    ``resiliparse`` is the choice of DCLM (Li et al. 2024), 26 MB of HTML/s a core; ``trafilatura``, for
    precision, that of FineWeb (Penedo et al. 2024), 1.5 MB/s. A page is a text that begins with a tag of
    HTML, a comment or a doctype, so that one recipe serves WARC, WET and Parquet; ``all_html`` takes
    every text for one, as fragments need. A page may take ``seconds`` of processor time (datatrove's
    default), and ten times that on the clock; then it is rejected as ``extract.timeout``. Others are
    ``extract.failed`` (``metadata`` says why) and ``extract.empty``. Documents that a filter has
    rejected before are left as they are.
    """

    kind: Literal["extract"] = "extract"
    shorthand = "extractor"
    costly = True
    extractor: html.Extractor = "resiliparse"
    seconds: float = Field(default=1.0, gt=0, le=3600)
    all_html: bool = False

    def columns(self) -> dict[str, str]:
        """The length of the page; null for what is none."""
        return {"extract_html_chars": "code points"}

    def identity(self) -> dict[str, Any]:
        """The fields and the extractor's version; raises RecipeError if it is not installed."""
        try:
            found = version(self.extractor)
        except PackageNotFoundError as error:
            hint = f"pip install {self.extractor}"
            raise RecipeError(
                "the extractor is not installed", where=self.kind, hint=hint
            ) from error
        return {**super().identity(), "version": found}

    def apply(self, table: pa.Table) -> pa.Table:
        """The table with pages replaced by their text, or with a reason; row for row."""
        texts = utf8.one_chunk(table["text"]).cast(pa.string())
        is_page = self._is_page(texts)
        buffers = utf8.texts(texts)
        found = iter(
            html.extract(_pages(buffers, is_page), extractor=self.extractor, seconds=self.seconds)
        )
        none = html.ExtractedPage()
        outcomes = [next(found) if page else none for page in is_page.to_pylist()]
        new = pa.array([outcome.text for outcome in outcomes], pa.binary()).cast(pa.string())
        chars = pc.if_else(is_page, utf8.count_chars(buffers), None)
        columns = {
            "text": new if is_page.true_count == len(texts) else pc.if_else(is_page, new, texts),
            "reason": pc.coalesce(utf8.one_chunk(table["reason"]), _reasons(outcomes, new)),
            "metadata": _explained(table["metadata"], outcomes),
        }
        for name, column in columns.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, schemas.RAW.field(name), column)
        return _with(table, "extract_html_chars", chars.cast(pa.float64()))

    def _is_page(self, texts: pa.StringArray) -> pa.BooleanArray:
        if self.all_html:
            return pc.is_valid(texts)
        return pc.fill_null(pc.match_substring_regex(texts, _PAGE, ignore_case=True), False)


def _pages(texts: utf8.Texts, is_page: pa.BooleanArray) -> list[memoryview]:
    """The pages among the texts, without a copy."""
    data, offsets = texts.data.data, texts.offsets.tolist()
    places = zip(pairwise(offsets), is_page.to_pylist(), strict=True)
    return [data[start:stop] for (start, stop), page in places if page]


def _reasons(outcomes: list[html.ExtractedPage], texts: pa.StringArray) -> pa.StringArray:
    problems = [f"extract.{each.problem}" if each.problem else None for each in outcomes]
    return pc.if_else(
        pc.fill_null(is_blank(texts), False), "extract.empty", pa.array(problems, pa.string())
    )


def _explained(metadata: pa.ChunkedArray, outcomes: list[html.ExtractedPage]) -> pa.Array:
    """The metadata, with ``error`` in it where a page has failed."""
    values = metadata.to_pylist()
    for position, outcome in enumerate(outcomes):
        if outcome.problem is not None:
            known = json.loads(values[position] or "{}")
            known["error"] = outcome.error
            values[position] = json.dumps(known, ensure_ascii=False, sort_keys=True)
    return pa.array(values, pa.string())


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
