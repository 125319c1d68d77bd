"""Data contracts: the schemas of the tables of a lake, and the lineage record of a commit.

A lake is a URL prefix with up to three Delta tables, ``documents``, ``duplicates`` and ``tokens``; ``keys``,
an index of the first two; and ``tokens_shuffled``, the rows of ``tokens`` in a random order. The address of a
row is ``(source, row)``: the URI of the input file and the ordinal of the record in it. This package imports
only pyarrow and pydantic.
"""

from etl.schemas.lineage import (
    FORMAT_VERSION,
    Counts,
    InputFile,
    InputTable,
    Lineage,
    RunRecord,
    TokenizerRecord,
    Usage,
)
from etl.schemas.tables import (
    ADDRESS,
    CONTENT_HASH,
    CUT,
    CUTS,
    DEDUP_COLUMNS,
    DUPLICATES,
    IS_ESTIMATE,
    KEYS,
    RAW,
    RELEASED_TABLES,
    SHORT,
    SIGNATURE,
    TOKENS,
    UNITS,
    VERDICTS,
    WHOLE,
    TableName,
    documents,
    duplicates,
    list_of,
    rule_of,
)

__all__ = [
    "ADDRESS",
    "CONTENT_HASH",
    "CUT",
    "CUTS",
    "DEDUP_COLUMNS",
    "DUPLICATES",
    "FORMAT_VERSION",
    "IS_ESTIMATE",
    "KEYS",
    "RAW",
    "RELEASED_TABLES",
    "SHORT",
    "SIGNATURE",
    "TOKENS",
    "UNITS",
    "VERDICTS",
    "WHOLE",
    "Counts",
    "InputFile",
    "InputTable",
    "Lineage",
    "RunRecord",
    "TableName",
    "TokenizerRecord",
    "Usage",
    "documents",
    "duplicates",
    "list_of",
    "rule_of",
]
