"""The input files that the last run did not find in its source: ``LAKE/missing_inputs/files.json``.

Their rows stay. A run commits the documents of a split first, then their texts. If it dies between the two
commits, the next run reads the split again, for which it needs the file: without it, the documents have no
texts, and are neither compared nor tokenized.
"""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from etl import schemas, storage
from etl.errors import TableError
from etl.lake.commit_info import find_record
from etl.lake.ledger import Ledger
from etl.lake.unit_files import unit_files
from etl.storage import checked_json

FOLDER: Final = "missing_inputs"

_MAX_FILES = 1000  # of each list; chosen here


@dataclass(frozen=True, kw_only=True)
class MissingInputs:
    """The input files of a lake that are not listed any more, by address."""

    count: int = 0
    files: list[str] = field(default_factory=list)  # the first 1000
    num_incomplete: int = 0  # of these files, that have documents without texts
    incomplete: list[str] = field(default_factory=list)  # the first 1000 of them
    without_texts: int = 0  # documents whose texts no run has committed

    @classmethod
    def of(cls, addresses: Sequence[str], documents: Ledger, texts: Ledger) -> Self:
        """Describe the files with these addresses, given the ledgers of the tables that hold their rows."""
        lacking = count_without_texts(documents, texts, {*addresses}) if addresses else {}
        return cls(
            count=len(addresses),
            files=[*addresses[:_MAX_FILES]],
            num_incomplete=len(lacking),
            incomplete=[*lacking][:_MAX_FILES],
            without_texts=sum(lacking.values()),
        )


def count_without_texts(
    documents: Ledger, texts: Ledger, sources: Container[str] | None = None
) -> dict[str, int]:
    """Return how many documents have no texts, by the address of their input file.

    Their units of work are not in ``texts``, perhaps not yet. Rejected documents count if the recipe stores
    their texts. With ``sources``, only these input files are considered.
    """
    counts: Counter[str] = Counter()
    if documents.table is None:
        return counts
    record = find_record(documents.table)
    has_rejected = record is not None and record.canonical["rejected"]["text"]
    verdicts = schemas.VERDICTS if has_rejected else ("kept",)
    for file in unit_files(documents.table, "partition.verdict"):
        source = file["min.source"]
        if file["partition.verdict"] in verdicts and (sources is None or source in sources):
            is_whole = texts.is_done(texts.key(file["unit"]))
            counts.update({} if is_whole else {source: file["rows"]})
    return dict(sorted(counts.items()))


def write_missing(lake: str, missing: MissingInputs) -> None:
    """Record the files that are not listed any more; raises WriteError if that fails.

    A lake from which no file was ever missing has no such file.
    """
    if not is_recorded(lake, missing):
        checked_json.write(_uri(lake), asdict(missing))


def is_recorded(lake: str, missing: MissingInputs) -> bool:
    """Return whether these are the files that a lake has recorded last."""
    try:
        before = _read(lake)
    except TableError:  # damaged
        return False
    return bool(before == asdict(missing)) or not (missing.count or before is not None)


def read_missing(lake: str) -> MissingInputs:
    """Return the files that were recorded last.

    Raises TableError if the record is damaged, StorageError if it cannot be read.
    """
    return MissingInputs(**(_read(lake) or {}))


def _read(lake: str) -> Any:
    hint = f"`etl repair {lake} --yes` deletes it; the next run writes it again"
    return checked_json.read(_uri(lake), hint=hint)


def _uri(lake: str) -> str:
    return storage.join(storage.normalize(lake), FOLDER, "files.json")
