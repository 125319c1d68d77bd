"""The lineage record: what one commit says of itself, under ``tokenlake`` in the Delta log.

It holds no credential and no signed URL: addresses are the plain URIs that the recipe names.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FORMAT_VERSION: Literal[3] = 3


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputFile(_Record):
    """One input file, or the part of it that this commit holds."""

    uri: str
    size: int  # bytes
    fingerprint: str  # etag, or size and mtime
    rows: int  # records read of it by this commit; less than 0: taken back by a repair


class InputTable(_Record):
    """One input table at the version that was read: of the lake, or of one that it is compared with."""

    name: str  # inside the lake; of another lake's table its URL
    url: str
    version: int

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is another lake's."""
        return self.name == self.url


class Counts(_Record):
    """Rows in = kept + rejected, rejected by reason; tokens and bytes where they are known."""

    rows: int = 0
    kept: int = 0
    rejected: dict[str, int] = {}
    duplicates: int = 0
    tokens: int = 0
    text_bytes: int = 0
    costs: dict[str, float] = {}  # seconds of workers by part of the work: etl/job/costs.py


class TokenizerRecord(_Record):
    """Which tokenizer made the ids, and how documents begin and end."""

    name: str
    sha256: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    append_eos: bool
    prepend_bos: bool


class Lineage(_Record):
    """One commit's record, as ``history()`` of the table shows it under ``tokenlake``."""

    format: Literal[1, 2, 3] = FORMAT_VERSION  # 2: with counts.costs; 3: repair, optimize
    run_id: str
    recipe: str  # its name
    fingerprint: str  # sha256 of what decides the rows of this table
    canonical: dict[str, Any]  # the recipe with every default written out
    step: Literal["documents", "duplicates", "keys", "tokens"]
    action: Literal["append", "rebuild", "replace", "repair", "optimize"] = "append"
    generation: int
    versions: dict[str, str]  # tokenlake and the libraries that decide the result
    input_files: list[InputFile] = []
    input_tables: list[InputTable] = []
    num_fragments: int = 0
    counts: Counts = Counts()
    tokenizer: TokenizerRecord | None = None
    seed: int = 0
    started: str  # UTC, ISO 8601
    committed: str
