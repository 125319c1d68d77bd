"""Remove repeated lines or paragraphs of a document: code shared by the stages that do so."""

from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

from etl.kernels.repeats import CASE, DIGITS, SPACE, without_repeats
from etl.kernels.rewrite import keep
from etl.kernels.utf8 import count_chars, one_chunk
from etl.kernels.utf8 import texts as buffers
from etl.stages.rewritten import rewritten

Ignore = Literal["case", "space", "digits"]

_BITS: dict[Ignore, int] = {"case": CASE, "space": SPACE, "digits": DIGITS}


def bits_of(ignore: Iterable[Ignore]) -> int:
    """Return the bit mask that the kernels take for the settings of ``ignore``."""
    return sum(_BITS[name] for name in {*ignore})


def cut(
    table: pa.Table,
    *,
    columns: tuple[str, ...],
    paragraphs: bool,
    min_chars: int,
    ignore: Iterable[Ignore],
) -> pa.Table:
    """Return the table with repeats removed from its text.

    ``columns`` names the columns for the units removed, their code points, and the code points left.
    """
    text = one_chunk(table["text"])
    documents = buffers(text)
    spans, numbers = without_repeats(
        documents, paragraphs=paragraphs, min_chars=min_chars, ignore=bits_of(ignore)
    )
    before = left = count_chars(documents)
    if numbers.any():
        text = keep(documents, spans)
        left = count_chars(buffers(text))
    counts = (numbers, before - left, left)
    return rewritten(table, text, dict(zip(columns, counts, strict=True)))
