"""Extract the main text of HTML pages with this package's own extractor, without a child process."""

from typing import TYPE_CHECKING, Final, Literal, get_args

import pyarrow as pa

from etl.text.main_text_model import Favor, load_model

if TYPE_CHECKING:
    from etl.kernels.bytes.utf8 import Texts
    from etl.kernels.html.page_batches import Extracted

Kind = Literal["tables", "lists", "code", "comments", "math"]
"""A kind of content that can be left out of the main text.

``tables`` are the cells of tables that are not just a page's layout, ``code`` is preformatted text,
``comments`` are the readers' comments after a text, and ``math`` are formulas in TeX.
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
    >>> pages = texts(pa.array(["<title>Birds</title><p>A heron waded in the water.", "plain"]))
    >>> found = extract_main_text(pages, pa.array([True, False]))
    >>> print(found.text.to_pylist(), found.metadata[0])
    ['A heron waded in the water.', None] {"title":"Birds"}
    """
    from etl.kernels.bytes.utf8 import frozen
    from etl.kernels.html import page_batches, writer

    flags = dict(
        zip(
            KINDS,
            (writer.TABLES, writer.LISTS, writer.CODE, writer.COMMENTS, writer.MATH),
            strict=True,
        )
    )
    return page_batches.extract_pages(
        texts,
        frozen(is_page.to_numpy(zero_copy_only=False)),
        load_model().for_kernel(favor),
        keep=sum(flags[kind] for kind in keep),
    )
