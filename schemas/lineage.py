"""The lineage record of a commit, stored as JSON under ``tokenlake`` in the Delta log.

It contains no credentials and no signed URLs, only the plain URIs that the recipe names.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from etl.schemas.tables import TableName

FORMAT_VERSION: Literal[6] = 6
"""The version of the tables and records of a lake. A release reads and writes one version."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputFile(_Record):
    """An input file, or the part of it that the commit holds."""

    uri: str
    size: int  # bytes
    # etag, or size and mtime; for a file of a Delta table the table's id; empty if all its rows were dropped
    fingerprint: str
    rows: int  # records that the commit read from it; negative if a repair dropped them
    version: int | None = None  # version of the Delta table that it is a data file of


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
    text_bytes: int = 0
    costs: dict[str, float] = {}  # worker seconds by part of the work: etl/lake/stage_costs.py


class TokenizerRecord(_Record):
    """The tokenizer that produced the ids, and how documents begin and end."""

    name: str
    sha256: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    append_eos: bool
    prepend_bos: bool


class Lineage(_Record):
    """The record of one commit, which ``Table.history`` yields as JSON under ``tokenlake``."""

    format: Literal[6] = FORMAT_VERSION
    run_id: str
    recipe: str  # its name
    fingerprint: str  # sha256 of everything that determines the rows of the table
    fingerprints: dict[TableName, str] = {}  # of all tables that the recipe fills
    canonical: dict[str, Any]  # the recipe with all defaults filled in
    step: TableName  # the table that it wrote
    # arrival: no rows, but later documents arrive later; drop: of the rows of changed input files;
    # epoch: no rows, but an epoch of the lake starts
    action: Literal["append", "arrival", "rebuild", "drop", "epoch", "repair", "optimize"] = "append"
    generation: int
    versions: dict[str, str]  # of tokenlake and the libraries that affect the result
    input_files: list[InputFile] = []
    input_tables: list[InputTable] = []
    num_data_files: int = 0  # that it added
    counts: Counts = Counts()
    tokenizer: TokenizerRecord | None = None
    seed: int = 0
    started: str  # UTC, ISO 8601
    committed: str
