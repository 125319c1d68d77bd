"""The lineage record of a commit, stored as JSON under ``tokenlake`` in the Delta log.

It contains no credentials and no signed URLs, only the plain URIs that the recipe names.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from etl.schemas.names import TableName, is_tokens

FORMAT_VERSION: Literal[12] = 12
"""The version of the tables and records of a lake. A release reads and writes one version."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputFile(_Record):
    """An input file, or the part of it that the commit holds."""

    uri: str
    size: int  # bytes
    # etag, or size, times and inode; for a file of a Delta table the table's id; empty: all rows were dropped
    fingerprint: str
    rows: int  # records that the commit read from it; negative if a repair dropped them
    version: int | None = None  # version of the Delta table that it is a data file of
    same_as: str | None = None  # the address of its rows, if it was copied, moved or touched

    def updated(self, *, rows: int | None = None, fingerprint: str | None = None) -> "InputFile":
        """Return the record of the same file with other values."""
        return InputFile(
            uri=self.uri,
            size=self.size,
            fingerprint=self.fingerprint if fingerprint is None else fingerprint,
            rows=self.rows if rows is None else rows,
            version=self.version,
            same_as=self.same_as,
        )


class InputTable(_Record):
    """An input table and its version: of the lake itself, or of a lake that it is compared with."""

    name: str  # relative to the lake; the URL for a table of another lake
    url: str
    version: int

    @property
    def is_elsewhere(self) -> bool:
        """Whether the table belongs to another lake."""
        return self.name == self.url


class Counts(_Record):
    """Rows in = kept + rejected, with rejected rows by reason; tokens and bytes where known."""

    rows: int = 0
    kept: int = 0
    rejected: dict[str, int] = {}
    duplicates: int = 0
    tokens: int = 0
    special_texts: int = 0  # documents with tokens whose text spells a special token
    text_bytes: int = 0
    costs: dict[str, float] = {}  # worker seconds by part of the work: etl/lake/stage_costs.py


class Usage(_Record):
    """What a run needs of workers and storage: an estimate, or what it has used."""

    core_seconds: float = 0.0  # how long the cores of workers are at its disposal
    cpu_seconds: float = 0.0  # that workers compute; an estimate does not tell it from core_seconds
    # Of object stores; a run on local files only: of the files that its tasks read and write
    read_bytes: int = 0
    written_bytes: int = 0
    read_requests: int = 0  # GET and HEAD of S3
    write_requests: int = 0  # PUT, POST, COPY and LIST of S3
    stored_bytes: int = 0  # of the data files that it adds to the tables


class RunRecord(_Record):
    """A run up to a commit: its estimated needs, what it has used, and the sums of its counts by table."""

    estimate: Usage | None = None
    used: Usage = Usage()
    input_bytes: int = 0  # of the splits that it has read
    documents: Counts = Counts()
    duplicates: Counts = Counts()
    tokens: dict[TableName, Counts] = {}  # by table of a tokenizer
    stored: dict[TableName, int] = {}  # bytes of the data files that it added
    quarantined: int = 0
    skipped_items: dict[str, int] = {}  # of files that stages read, without a usable text


class TokenizerRecord(_Record):
    """The tokenizer that produced the ids, and how documents begin and end."""

    name: str
    sha256: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    append_eos: bool
    prepend_bos: bool


Action = Literal[
    "append",
    "arrival",
    "rebuild",
    "drop",
    "change",
    "strike",
    "epoch",
    "repair",
    "optimize",
    "names",
]
"""What a commit does to its table.

arrival: no rows, but later documents arrive later; drop: of the rows of changed input files;
change: rows are replaced as another recipe demands; strike: rows are
struck, or live again, as the input tables in their versions demand; epoch: no rows, but an epoch of the lake
starts; names: no rows, but names of input files.
"""


def fingerprint_of(fingerprints: Mapping[TableName, str]) -> str | None:
    """Return the fingerprint of a recipe, given the tables that it fills; None if it fills none.

    It is that of the last table, which covers the others. Tables of several tokenizers do not cover each
    other: then it is the sha256 of their fingerprints.

    >>> fingerprint_of({"documents": "a", "tokens": "b"})
    'b'
    """
    tokens = sorted(value for name, value in fingerprints.items() if is_tokens(name))
    if len(tokens) > 1:
        return hashlib.sha256("".join(tokens).encode()).hexdigest()
    filled = [
        fingerprints[name] for name in ("documents", "texts", "duplicates") if name in fingerprints
    ]
    return next(iter([*tokens, *reversed(filled)]), None)


class Lineage(_Record):
    """The record of one commit, which ``Table.history`` yields as JSON under ``tokenlake``."""

    format: Literal[12] = FORMAT_VERSION
    run_id: str
    recipe: str  # its name
    fingerprint: str  # sha256 of everything that determines the rows of the table
    fingerprints: dict[TableName, str] = {}  # of all tables that the recipe fills
    canonical: dict[str, Any]  # the recipe with all defaults filled in
    step: TableName  # the table that it wrote
    action: Action = "append"
    generation: int
    versions: dict[str, str]  # of tokenlake and the libraries that affect the result
    input_files: list[InputFile] = []
    input_tables: list[InputTable] = []
    num_data_files: int = 0  # that it added
    counts: Counts = Counts()
    tokenizer: TokenizerRecord | None = None
    digest: str | None = None  # of the rows of the table after the commit
    seed: int = 0
    run: RunRecord | None = None  # None: the commit of a command for lake maintenance
    started: str  # UTC, ISO 8601
    committed: str

    @property
    def recipe_fingerprint(self) -> str:
        """The fingerprint of the recipe, which covers all tables that it fills."""
        return fingerprint_of(self.fingerprints) or self.fingerprint
