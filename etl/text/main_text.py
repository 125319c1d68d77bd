"""Extract the main text of HTML pages with this package's own extractor: one compiled pass, no child process."""

from typing import TYPE_CHECKING, Final, Literal, get_args

import pyarrow as pa

from etl.text.main_text_model import Favor, load_model

if TYPE_CHECKING:
    from etl.kernels.bytes.utf8 import Texts
    from etl.kernels.html.extract import Extracted

Kind = Literal["tables", "lists", "code", "comments", "math"]
"""A kind of content that can be left out of the main text.

``tables`` are the cells of tables that are not just a page's layout, ``code`` is preformatted text, ``comments``
are the readers' comments after a text, and ``math`` are formulas in TeX.
"""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""The values of `Kind`."""

DEFAULT_KINDS: Final[tuple[Kind, ...]] = ("tables", "lists", "code", "math")
"""All but the readers' comments."""


def extract_main_text(
    texts: "Texts",
    is_page: pa.BooleanArray,
    *,
    favor: Favor = "balanced",
    keep: tuple[Kind, ...] = DEFAULT_KINDS,
) -> "Extracted":
    """Return the main text of those texts (UTF-8) that are pages, with metadata and signals.

    >>> from etl.kernels.bytes.utf8 import texts
    >>> page = "<title>T</title><h1>A bird</h1><p>A heron waited, in the shallow water.</p><ol><li>One<li>Two</ol>"
    >>> found = extract_main_text(texts(pa.array([page])), pa.array([True]))
    >>> print(found.metadata[0])
    {"title":"T"}
    """
    from etl.kernels.html import extract, writer

    flags = dict(
        zip(
            KINDS,
            (writer.TABLES, writer.LISTS, writer.CODE, writer.COMMENTS, writer.MATH),
            strict=True,
        )
    )
    return extract.extract_pages(
        texts,
        is_page.to_numpy(zero_copy_only=False),
        load_model().for_kernel(favor),
        keep=sum(flags[kind] for kind in keep),
    )
