"""The parts of the lineage record of a commit: the recipe behind the rows, and what the commit does."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from etl import schemas
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.work_units import WorkResult
from etl.schemas import TableName
from etl.sources import Split

NO_COUNTS: Final = schemas.Counts()


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The recipe behind the rows of a table, as lineage records name it."""

    step: TableName  # the table
    recipe: str
    canonical: dict[str, Any]
    fingerprint: str  # of the table
    fingerprints: dict[TableName, str]
    tokenizer: schemas.TokenizerRecord | None
    seed: int

    @classmethod
    def of(cls, record: schemas.Lineage) -> Self:
        """Return the origin that a record names."""
        return cls(
            step=record.step,
            recipe=record.recipe,
            canonical=record.canonical,
            fingerprint=record.fingerprint,
            fingerprints=record.fingerprints,
            tokenizer=record.tokenizer,
            seed=record.seed,
        )


class OriginOf(Protocol):
    """What returns the origin of the rows of a table."""

    def __call__(
        self, step: TableName, *, tokenizer: schemas.TokenizerRecord | None = None
    ) -> Origin:
        """Return it; ``tokenizer`` is the record of the table's tokenizer, if known."""
        ...


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a commit does to its table; ``run`` is the run up to this commit."""

    action: schemas.Action
    generation: int
    input_files: Iterable[schemas.InputFile] = ()
    input_tables: Iterable[schemas.InputTable] = ()
    num_data_files: int = 0  # that it adds
    counts: schemas.Counts = NO_COUNTS
    run: schemas.RunRecord | None = None


def num_files(entries: Iterable[LedgerEntry]) -> int:
    """Return the number of data files of entries."""
    return sum(len(entry.data_files) for entry in entries)


def input_files(
    results: Iterable[WorkResult], splits: Mapping[str, Split]
) -> list[schemas.InputFile]:
    """Return the input files of results with the rows read from each; ``splits`` are by key."""
    rows: Counter[str] = Counter()
    files: dict[str, Split] = {}
    for result in results:
        rows[result.source] += result.rows
        files[result.source] = splits[result.key]
    return [
        schemas.InputFile(
            uri=uri,
            size=split.size,
            fingerprint=split.fingerprint,
            rows=rows[uri],
            version=split.version,
        )
        for uri, split in sorted(files.items())
    ]


def name_record(split: Split, address: str | None) -> schemas.InputFile:
    """Return the record of a file whose rows the lake holds under an address, perhaps the file's own."""
    return schemas.InputFile(
        uri=split.uri,
        size=split.size,
        fingerprint=split.fingerprint,
        rows=0,
        version=split.version,
        same_as=split.uri if address is None else address,
    )
