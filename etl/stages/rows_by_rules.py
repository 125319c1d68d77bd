"""Group the rows of a batch by the language whose rules split their words."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from etl.kernels.bytes.one_chunk import one_chunk
from etl.kernels.words.spacy_specials import LANGUAGES
from etl.kernels.words.spacy_tables import OTHER, UNKNOWN


def rows_by_rules(
    lang: pa.Array | pa.ChunkedArray | None, rows: int, segmented: Iterable[str] = ()
) -> dict[str, pa.BooleanArray]:
    """Return the rows of each set of rules, as masks, given the languages (null: unknown).

    The keys are rules as ``spacy_tables.rules_of`` returns them, and the languages of ``segmented``.

    >>> masks = rows_by_rules(pa.array(["de", None, "es", "en"]), 4)
    >>> {rules: mask.to_pylist() for rules, mask in masks.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'de': [True, False, False, False], 'unknown': [False, True, False, False],
     'xx': [False, False, True, False], 'en': [False, False, False, True]}
    """
    if lang is None or lang.null_count == rows:
        return {UNKNOWN: pa.repeat(True, rows)}
    known = pc.fill_null(one_chunk(lang), UNKNOWN)
    own = pc.is_in(known, pa.array([*LANGUAGES, UNKNOWN, *segmented]))
    rules = pc.if_else(own, known, OTHER)
    return {name: pc.equal(rules, name) for name in pc.unique(rules).to_pylist()}
