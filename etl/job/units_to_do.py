"""Count the units of work that later steps have not processed yet, and check where they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etl import storage
from etl.compact_collections import PackedKeySet, SpilledList
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger
from etl.lake.table_names import token_tables
from etl.lake.unit_files import unit_files
from etl.lake.work_units import WorkUnit, kept_units
from etl.recipe.recipe import Step


@dataclass(frozen=True, kw_only=True)
class UnitsToDo:
    """How many units of ``texts`` later steps have not processed yet; a unit is a split's kept rows."""

    undecided: int = 0  # not deduplicated
    unkeyed: int = 0  # deduplicated, but their keys are not written
    untokenized: int = 0  # once for each tokenizer
    num_bytes: int = 0  # of the files of the units that are undecided or untokenized
    undecided_bytes: int = 0
    untokenized_bytes: int = 0  # once for each tokenizer
    unkeyed_bytes: int = 0  # of the files of the unkeyed units


def count_units(ledgers: Mapping[Step, Ledger], begin: Sequence[Step]) -> UnitsToDo:
    """Count the units of ``texts`` that later steps have not processed yet."""
    table = ledgers["texts"].table
    if table is None or "texts" in begin:
        return UnitsToDo()  # no unit exists
    units = SpilledList(kept_units(table))
    _check_documents(ledgers["documents"], table, units)
    duplicates, tokens = ledgers.get("duplicates"), token_tables(ledgers)
    unkeyed: list[int] = []  # bytes
    if duplicates is not None and "duplicates" not in begin:
        keys = KeysTable(duplicates)
        decided = (unit for unit in units if duplicates.is_done(duplicates.key(unit.key)))
        unkeyed = [unit.size for unit in decided if not keys.has(unit.key)]
    # Until the tokens follow a change of the recipe, they may be of documents that are rejected now.
    for name in tokens:
        if name not in begin and ledgers[name].change == ledgers["texts"].change:
            _check_origins(ledgers[name], units)
    undecided = _count_open(units, duplicates, is_new="duplicates" in begin)
    untokenized = [_count_open(units, ledgers[name], is_new=name in begin) for name in tokens]
    return UnitsToDo(
        undecided=undecided[0],
        unkeyed=len(unkeyed),
        untokenized=sum(count for count, _ in untokenized),
        num_bytes=max([undecided[1], *(size for _, size in untokenized)]),
        undecided_bytes=undecided[1],
        untokenized_bytes=sum(size for _, size in untokenized),
        unkeyed_bytes=sum(unkeyed),
    )


def _check_documents(documents: Ledger, texts: Table, units: SpilledList[WorkUnit]) -> None:
    """Raise MismatchError if ``texts`` holds units that a damaged log of ``documents`` has lost."""
    for unit in units:
        if not documents.is_done(unit.key):
            raise _of_no_documents("texts", storage.join(texts.url, unit.files[0].path))


def _check_origins(tokens: Ledger, units: SpilledList[WorkUnit]) -> None:
    """Raise MismatchError if the table holds tokens of documents that do not exist."""
    assert tokens.table is not None
    # A damaged log of ``texts`` may have lost units whose tokens were committed.
    live = PackedKeySet(tokens.key(unit.key) for unit in units)
    for file in unit_files(tokens.table):
        if file["rows"] and file["unit"] not in live:
            raise _of_no_documents("tokens", storage.join(tokens.url, file["path"]))


def _of_no_documents(what: str, file: str) -> MismatchError:
    return MismatchError(
        f"the file holds {what} of documents that do not exist",
        where=file,
        hint="run `etl repair LAKE`, then run again",
    )


def _count_open(
    units: SpilledList[WorkUnit], ledger: Ledger | None, *, is_new: bool
) -> tuple[int, int]:
    """Return how many units a table does not hold yet, and their bytes; 0 if the recipe does not fill it."""
    count = num_bytes = 0
    for unit in units if ledger is not None else ():
        if is_new or (ledger is not None and not ledger.is_done(ledger.key(unit.key))):
            count += 1
            num_bytes += unit.size
    return count, num_bytes
