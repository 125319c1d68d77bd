"""The data contracts: what stands in each table of a lake, and what each commit says of itself.

A lake is a URL prefix with up to three Delta tables, ``documents``, ``duplicates`` and ``tokens``, and
``keys``, an index of what is in the first two.
A row's address is ``(source, row)``: the URI of the input file and the record's ordinal in it.
This package imports pyarrow and pydantic only.
"""

from schemas.lineage import FORMAT_VERSION, Counts, InputFile, InputTable, Lineage, TokenizerRecord
from schemas.tables import (
    ADDRESS,
    CUT,
    CUTS,
    DUPLICATES,
    KEYS,
    RAW,
    SHORT,
    TOKENS,
    UNITS,
    VERDICTS,
    WHOLE,
    documents,
    duplicates,
    list_of,
    rule_of,
)

__all__ = [
    "ADDRESS",
    "CUT",
    "CUTS",
    "DUPLICATES",
    "FORMAT_VERSION",
    "KEYS",
    "RAW",
    "SHORT",
    "TOKENS",
    "UNITS",
    "VERDICTS",
    "WHOLE",
    "Counts",
    "InputFile",
    "InputTable",
    "Lineage",
    "TokenizerRecord",
    "documents",
    "duplicates",
    "list_of",
    "rule_of",
]
