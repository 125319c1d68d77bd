"""Arrow schemas of the tables of a lake, and of the batches that flow between source and table."""

from collections.abc import Iterable

import pyarrow as pa

ADDRESS = ("source", "row")
"""The columns that name a row for good: the input file's URI and the record's ordinal in it (from 0)."""

VERDICTS = ("kept", "rejected")
"""The values of the partition column ``verdict`` of ``documents``."""


def rule_of(reason: str) -> str:
    """The rule that a reason names, which is what is counted: a detail may follow after a colon and a blank.

    >>> rule_of("decontaminate.gsm8k: natalia sold clips"), rule_of("url.domain")
    ('decontaminate.gsm8k', 'url.domain')
    """
    return reason.partition(": ")[0]


RAW = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("url", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
"""What a source yields: a record a row; ``reason`` is null, or says why it could not be read."""

TOKENS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field(
            "tokens", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False
        ),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("token_end", pa.int64(), nullable=False),
    ]
)
"""Table ``tokens``: ``token_end`` is the running total of ``num_tokens`` inside one data file, so that
its maximum in the log's statistics is the number of tokens of the file."""

DUPLICATES = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("keeper_source", pa.string(), nullable=False),
        pa.field("keeper_row", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
    ]
)
"""Table ``duplicates``: ``kind`` is one of WHOLE, or of CUT and SHORT; ``file`` is the data file of
``documents`` (its path inside the table) that holds the row."""

WHOLE = ("exact", "near")
"""The kinds of documents that are left out for a keeper."""

CUT = "cut"
"""The kind of a document that stays, without the units that stand in others before it."""

SHORT = "short"
"""The kind of one that is left out, since too little of it would stay."""

KEYS = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("check", pa.int64(), nullable=False),
        pa.field("file", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
    ]
)
"""Table ``keys``: by what documents that stay are found again. Of kind exact, ``key`` and ``check`` are the
first and last 8 bytes of the content hash; of kind near, ``key`` is that of a band of the signature and
``check`` is 0. ``file`` stands for the data file of ``documents`` that holds ``row``, as
``etl.job.files.file_id`` says."""


def list_of(values: pa.DataType) -> pa.DataType:
    """The type of lists without nulls in them, as the tables have it."""
    return pa.list_(pa.field("element", values, nullable=False))


UNITS = pa.schema(
    [
        pa.field("unit_hashes", list_of(pa.int64())),
        pa.field("unit_chars", list_of(pa.int32())),
    ]
)
"""The columns of ``documents`` by which paragraphs, lines or sentences are compared; null if rejected."""

CUTS = pa.schema([pa.field("cut", list_of(pa.int32())), pa.field("cut_chars", pa.int64())])
"""The columns of ``duplicates`` that say which units go, by their ordinals in the document, and how many
code points they have; null for the kinds of WHOLE. There ``similarity`` is the share of the code points
that go, and the keeper the document with the first of these units."""


def duplicates(*, has_references: bool = False, has_cuts: bool = False) -> pa.Schema:
    """The schema of table ``duplicates``.

    A recipe with references also names the lake of a keeper: ``keeper_lake`` is the URL of another lake,
    null for the lake itself. One that cuts units out of documents has the columns of ``CUTS``.

    >>> duplicates(has_references=True, has_cuts=True).names[-4:]
    ['file', 'keeper_lake', 'cut', 'cut_chars']
    """
    lake = [pa.field("keeper_lake", pa.string())] if has_references else []
    return pa.schema([*DUPLICATES, *lake, *(CUTS if has_cuts else [])])


def documents(
    signals: Iterable[str], *, has_signature: bool = False, has_units: bool = False
) -> pa.Schema:
    """The schema of table ``documents`` for a recipe that computes the named signals.

    ``signature``, the MinHash of a kept document, is there if near-duplicates are looked for; the columns
    of ``UNITS``, if repeated paragraphs, lines or sentences are.

    >>> documents(["num_words"]).names[-4:]
    ['num_words', 'reason', 'content_hash', 'verdict']
    """
    return pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("source", pa.string(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("url", pa.string()),
            pa.field("lang", pa.string()),
            pa.field("lang_score", pa.float64()),
            pa.field("metadata", pa.string()),
            *(pa.field(name, pa.float64()) for name in signals),
            pa.field("reason", pa.string()),
            pa.field("content_hash", pa.binary()),
            *([pa.field("signature", pa.binary())] if has_signature else []),
            *(UNITS if has_units else []),
            pa.field("verdict", pa.string(), nullable=False),
        ]
    )
