"""Arrow schemas of the tables of a lake and of the batches that sources produce."""

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

NOT_DIGESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "texts": ("text",),
    "duplicates": ("unit",),
    "keys": ("unit",),
    "tokens": ("tokens", "token_end"),
    "tokens_shuffled": ("tokens", "token_end"),
}
"""The columns that no digest of rows has: for texts and tokens it has their hashes, and the others depend on
how rows are distributed over files."""

ADDRESS = ("source", "row")
"""The columns that identify a row: the URI of the input file and the number of the record in it."""

VERDICTS = ("kept", "rejected")
"""The values of the partition column ``verdict`` of ``documents`` and ``texts``."""


def rule_of(reason: str) -> str:
    """Return the rule of a reason, without the detail that may follow after a colon and a space.

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
        pa.field("media_type", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
"""The batches of a source, one row per record; ``reason`` says why a record could not be read.

``media_type`` is what the container says of the text, such as ``text/html``; no table stores it."""

TOKENIZED = pa.schema(
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
"""What ``tokenize`` makes of documents: the columns of ``tokens`` but the hash."""

TOKENS = TOKENIZED.append(pa.field("tokens_hash", pa.int64(), nullable=False))
"""Table ``tokens``: ``token_end`` is the running total of ``num_tokens`` inside one data file. Its maximum
in the statistics of the log is the number of tokens in the file. ``tokens_hash`` is XXH3-64 of the bytes of
``tokens``, which the writer of data files adds."""

LOSSES = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("sample", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("num_tokens", pa.int64(), nullable=False),
        pa.field("loss", pa.float64(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("plan", pa.string(), nullable=False),
    ]
)
"""Table ``losses``: what trainings have measured, one row for each part of a document in a sample. ``loss``
is the mean over ``num_tokens`` tokens of the document from ``start`` on. ``step`` is a step of the training
``run``; ``epoch`` and ``sample`` are numbers of the loader. ``plan`` is the fingerprint of its order, as in
its saved state."""

DUPLICATES = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("keeper_source", pa.string(), nullable=False),
        pa.field("keeper_row", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
    ]
)
"""Table ``duplicates``: ``kind`` is one of WHOLE, CUT or SHORT; ``unit`` is the key of the unit of work that
read the row, with which the names of its data files in ``texts`` begin."""

WHOLE: tuple[str, ...] = ("exact", "near")
"""The kinds of documents that are dropped in favour of another, the keeper."""

CUT = "cut"
"""The kind of a document that is kept without the units that occur in earlier documents."""

SHORT = "short"
"""The kind of a document that is dropped because too little of it would remain."""

KEYS = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("check", pa.int64(), nullable=False),
        pa.field("unit", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
    ]
)
"""Table ``keys``: the keys by which later duplicates of decided documents are found. ``unit`` is
the first 63 bits of the key of the unit of work that read ``row``. Of the documents that are not duplicates
as a whole, it has

- kind exact: ``key`` and ``check`` are the first and last 8 bytes of the content hash
- kind near: ``key`` is the key of a band of the signature, and ``check`` is 0; kind near_dropped: the same,
  of the documents that are left out as near duplicates
- kind cut: ``key`` is the hash of a unit (``UNITS``), and ``check`` is 1 if the document is SHORT, else 0;
  or ``key`` and ``check`` are the key and the chunk of an interval (``ANCHORS``), plus 1 if the document is
  SHORT; only for the first document with the unit or interval and the first of these that is not SHORT"""


def list_of(values: pa.DataType) -> pa.DataType:
    """Return the list type of the tables, whose elements are not nullable."""
    return pa.list_(pa.field("element", values, nullable=False))


TEXT_BYTES = pa.field("text_bytes", pa.int32())
"""The column of ``texts`` with the size of the text in UTF-8, to count bytes without reading texts; null in
rejected rows."""

TEXT_HASH = pa.field("text_hash", pa.int64())
"""The column of ``texts`` with XXH3-64 of the text in UTF-8; null where the text is."""

CONTENT_HASH = pa.field("content_hash", pa.binary())
"""The column of ``documents`` and ``texts`` for comparing equal texts; always there."""

SIGNATURE = pa.field("signature", pa.binary())
"""The column of ``texts`` for comparing similar texts, the MinHash; null in rejected rows."""

UNITS = pa.schema(
    [
        pa.field("unit_hashes", list_of(pa.int64())),
        pa.field("unit_chars", list_of(pa.int32())),
    ]
)
"""The columns of ``texts`` for comparing paragraphs, lines or sentences; null in rejected rows."""

ANCHORS = pa.schema(
    [
        pa.field("anchor_keys", list_of(pa.int64())),
        pa.field("anchor_chunks", list_of(pa.int64())),
        pa.field("anchor_windows", list_of(pa.int32())),
        pa.field("anchor_cores", list_of(pa.int32())),
    ]
)
"""The columns of ``texts`` for comparing substrings: its intervals of windows (``etl.kernels.hashing``), with
a key, a hash of the bytes, the number of windows and hashes of their cores; null in rejected rows."""

DEDUP_COLUMNS = pa.schema([CONTENT_HASH, SIGNATURE, *UNITS, *ANCHORS])
"""All columns of ``texts`` that deduplication stages compare documents by."""

CUTS = pa.schema([pa.field("cut", list_of(pa.int32())), pa.field("cut_chars", pa.int64())])
"""The columns of ``duplicates`` for removed units: their ordinals in the document and their code points in
total; null for the kinds of WHOLE. Of removed substrings, ``cut`` has two numbers each: the first byte of
the text in UTF-8, and the byte after the last. For CUT and SHORT, ``similarity`` is the share of code points
that are removed, and the keeper is the document with the first of the units, or for substrings an earlier
document with the beginning of the first."""


IS_ESTIMATE = pa.field("is_estimate", pa.bool_())
"""The column of ``duplicates`` that says whether ``similarity`` is an estimate from the signatures of the two
documents; null for CUT and SHORT. Without the column, no similarity is an estimate."""

COLUMN_CONTENT: Final[Mapping[str, str]] = {
    "id": "the user's id of the document",
    "source": "the URI of the input file",
    "row": "the number of the record in the file: its ordinal from 0, or in WARC files its byte offset",
    "text": "the text after all transforms; of a rejected document, only if the recipe stores it",
    "text_bytes": "its size in UTF-8",
    "text_hash": "XXH3-64 of its bytes in UTF-8, which a digest of rows has instead of the text",
    "url": "where the document was published",
    "lang": "the detected language, a code of ISO 639",
    "lang_score": "the probability of the language",
    "metadata": "the input's columns that the recipe names in `metadata`, as JSON",
    "reason": "the rule that has rejected the document, as in `gopher_quality.short`; null if it is kept",
    "content_hash": "a digest of the text, by which equal texts are found",
    "signature": "the MinHash, by which similar texts are found",
    "unit_hashes": "a hash of each paragraph, line or run of sentences",
    "unit_chars": "the code points of each of them",
    "anchor_keys": "a hash of the anchor of each run of windows with the same anchor",
    "anchor_chunks": "a hash of all bytes of these windows; 0 if they occur before in the text",
    "anchor_windows": "the number of these windows",
    "anchor_cores": "hashes of the bytes beside the anchor",
    "verdict": "`kept` or `rejected`, the partition of the table",
    "tokens": "the token ids",
    "num_tokens": "how many tokens the row is about",
    "token_end": "the running total of `num_tokens` in the data file",
    "tokens_hash": "XXH3-64 of the bytes of `tokens`, which a digest of rows has instead of them",
    "keeper_source": "the input file of the document that is kept instead, or has the text first",
    "keeper_row": "its record in that file",
    "keeper_lake": "its lake, if that is another one",
    "kind": "`exact`, `near`, `cut` (shortened) or `short` (too little of it remains)",
    "similarity": (
        "the Jaccard index with the keeper, or the containment in it; of a cut, the share of code points "
        "that are removed"
    ),
    "is_estimate": "whether `similarity` is an estimate from the signatures",
    "unit": "the unit of work that read the row: its key, in `keys` the first 63 bits of it",
    "cut": "the ordinals of the paragraphs, lines or sentences that are removed; or first and last byte",
    "cut_chars": "their code points in total",
    "key": "the beginning of a content hash, a band of a signature, the hash of a unit or an anchor",
    "check": "the end of the content hash, or the chunk of an anchor; plus 1 if the document is short",
    "epoch": "the epoch of the loader",
    "step": "the step of the training",
    "sample": "the sample of the loader",
    "start": "the token of the document at which the part begins",
    "loss": "the mean cross-entropy of the part's tokens, in nats",
    "run": "the name of the training",
    "plan": "the fingerprint of the loader's order",
}
"""What each column holds, for people; a column of several tables has one meaning."""


def duplicates(
    *, has_references: bool = False, has_cuts: bool = False, has_estimates: bool = False
) -> pa.Schema:
    """Return the schema of table ``duplicates``.

    A recipe with references adds ``keeper_lake``, the URL of the keeper's lake, null for the lake itself.
    A recipe that cuts units out of documents adds the columns of ``CUTS``, and a recipe that estimates
    similarities adds ``IS_ESTIMATE``.

    >>> duplicates(has_references=True, has_cuts=True).names[-4:]
    ['unit', 'keeper_lake', 'cut', 'cut_chars']
    """
    lake = [pa.field("keeper_lake", pa.string())] if has_references else []
    estimate = [IS_ESTIMATE] if has_estimates else []
    return pa.schema([*DUPLICATES, *estimate, *lake, *(CUTS if has_cuts else [])])


def judged(
    signals: Iterable[str], dedup_columns: Iterable[pa.Field] = (CONTENT_HASH,)
) -> pa.Schema:
    """Return the schema of documents that stages have judged: the columns of ``documents`` and ``texts``.

    ``dedup_columns`` are the columns that the deduplication stages compare documents by.
    """
    return pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("source", pa.string(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("text", pa.string()),
            TEXT_BYTES,
            pa.field("url", pa.string()),
            pa.field("lang", pa.string()),
            pa.field("lang_score", pa.float64()),
            pa.field("metadata", pa.string()),
            *(pa.field(name, pa.float64()) for name in signals),
            pa.field("reason", pa.string()),
            *dedup_columns,
            pa.field("verdict", pa.string(), nullable=False),
        ]
    )


def documents(signals: Iterable[str]) -> pa.Schema:
    """Return the schema of table ``documents`` for a recipe that computes the given signals.

    >>> documents(["num_words"]).names[-4:]
    ['num_words', 'reason', 'content_hash', 'verdict']
    """
    columns = judged(signals)
    return pa.schema([field for field in columns if field.name not in ("text", TEXT_BYTES.name)])


def texts(dedup_columns: Iterable[pa.Field] = (CONTENT_HASH,)) -> pa.Schema:
    """Return the schema of table ``texts``, whose columns no filter computes.

    >>> texts().names
    ['id', 'source', 'row', 'text', 'text_bytes', 'url', 'content_hash', 'text_hash', 'verdict']
    """
    left_out = ("lang", "lang_score", "metadata", "reason", "verdict")
    columns = judged([], dedup_columns)
    fields = [field for field in columns if field.name not in left_out]
    return pa.schema([*fields, TEXT_HASH, columns.field("verdict")])
