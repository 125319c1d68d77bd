"""Replace the text column of documents, and cut repeated lines or paragraphs."""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.kernels.bytes.one_chunk import one_chunk


def replace_text(
    table: pa.Table, text: pa.Array, counts: Mapping[str, NDArray[np.int64]]
) -> pa.Table:
    """Return the table with another ``text`` and columns of counts: float64, null where the text is null.

    >>> table = pa.table({"text": ["a", None], "row": [0, 1]})
    >>> replace_text(table, pa.array(["b", None]), {"mine": np.array([1, 0])}).to_pylist()
    [{'text': 'b', 'row': 0, 'mine': 1.0}, {'text': None, 'row': 1, 'mine': None}]
    """
    null = pc.is_null(text).to_numpy(zero_copy_only=False) if text.null_count else None
    columns = {name: pa.array(values.astype(float), mask=null) for name, values in counts.items()}
    for name, values in {"text": text, **columns}.items():
        index = table.schema.get_field_index(name)
        table = (
            table.append_column(name, values)
            if index < 0
            else table.set_column(index, name, values)
        )
    return table


Ignore = Literal["case", "space", "digits"]


def ignore_bits(ignore: Iterable[Ignore]) -> int:
    """Return the bit mask that the kernels take for the settings of ``ignore``."""
    from etl.kernels.lines.repeated import CASE, DIGITS, SPACE

    bits: dict[Ignore, int] = {"case": CASE, "space": SPACE, "digits": DIGITS}
    return sum(bits[name] for name in {*ignore})


def cut_repeats(
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
    from etl.kernels.bytes.spans import keep_spans
    from etl.kernels.bytes.utf8 import count_chars
    from etl.kernels.bytes.utf8 import texts as buffers
    from etl.kernels.lines.repeated import remove_repeats

    text = one_chunk(table["text"])
    documents = buffers(text)
    spans, numbers = remove_repeats(
        documents, paragraphs=paragraphs, min_chars=min_chars, ignore=ignore_bits(ignore)
    )
    before = left = count_chars(documents)
    if numbers.any():
        text = keep_spans(documents, spans)
        left = count_chars(buffers(text))
    counts = (numbers, before - left, left)
    return replace_text(table, text, dict(zip(columns, counts, strict=True)))
