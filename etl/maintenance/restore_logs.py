"""Restore the damaged logs of a lake's tables from their sound files.

Damaged files are set aside. A table that has lost log entries states what it still holds in the commit that
starts an epoch: the units of work in lost entries are done again by the next run. If only checkpoints are
damaged, nothing is lost.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from etl import schemas, storage
from etl.audit.verify.log_checks import Logs
from etl.compact_collections import PackedKeySet
from etl.delta.log_damage import LogDamage, open_remains, remove_log, set_aside
from etl.delta.table import Table
from etl.lake.drop_units import drop_rows
from etl.lake.finished_versions import forget_finished
from etl.lake.jobs import Job
from etl.lake.lake_epochs import all_ledgers, drop_all, start_lake_epoch
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.lineage_record import Change, Origin
from etl.lake.table_specs import spec_of
from etl.lake.unit_files import unit_files, unit_keys
from etl.recipe.recipe import Recipe

_UNKNOWN = "unknown"  # the fingerprint of an input file that no longer exists


def restore_logs(lake: str, logs: Logs, job: Job) -> None:
    """Restore the logs of a lake, given what ``check_logs`` has found, as a part of a job.

    Raises ConflictError if another process commits concurrently.
    """
    recipe = logs.recipe()
    damaged: dict[str, Ledger] = {}
    for name, found in logs.damage.items():
        log = set_aside(found)
        if log.newest >= 0 and not log.lost:
            Table.open(log.url).checkpoint()
        elif recipe is None:  # no rows were ever committed
            remove_log(log)
            forget_finished(lake)
        else:
            damaged[name] = _open(name, log, logs, recipe)
    if not damaged:
        return
    sound = (_ledger(name, table, logs) for name, table in logs.tables.items())
    ledgers = all_ledgers(lake, [*sound, *damaged.values()])
    drops = {}
    for name, ledger in ledgers.items():
        origins = [damaged[each] for each in ("documents", "texts") if each in damaged]
        if spec_of(name).is_index:
            drops[name] = drop_all(ledger)
        elif made_from := [each for each in origins if _is_made_from(name, each)]:
            drops[name] = _drop_lost_units(ledger, made_from)
    if "texts" in damaged:
        drops["documents"] = _drop_without_texts(ledgers["documents"], damaged["texts"])
        if "duplicates" in ledgers:  # it may have lost that an arrival ended
            decided = max(map(abs, ledgers["duplicates"].arrivals()), default=0)
            drops["texts"] = replace(drops.get("texts", Drop()), open_arrival=1 + decided)
    start_lake_epoch(ledgers, drops, partial(_describe, logs, job))


def _open(name: str, log: LogDamage, logs: Logs, recipe: Recipe) -> Ledger:
    """Return the ledger of the table that the sound files of a log make."""
    spec, record = spec_of(name), logs.records.get(name)
    ledger = _ledger(name, open_remains(log, spec.schema(recipe), spec.layout), logs)
    if record is not None:
        ledger.generation = max(ledger.generation, record.generation)
    return ledger


def _ledger(name: str, table: Table, logs: Logs) -> Ledger:
    record = logs.records.get(name)
    fingerprint = logs.fingerprints.get(name, "") if record is None else record.fingerprint
    return Ledger(table.url, fingerprint=fingerprint, table=table)


def _drop_without_texts(documents: Ledger, texts: Ledger) -> Drop:
    """Return what ``documents`` drops so that splits whose texts are lost are read again as a whole."""
    assert documents.table is not None
    held = PackedKeySet(_units_in(texts))
    files = unit_files(documents.table, "partition.verdict")
    kept = {file["unit"] for file in files if file["partition.verdict"] == "kept"}
    lost = {key for key in kept if key not in held}
    return drop_rows(documents, lost, keys=lost)


def _is_made_from(name: str, origin: Ledger) -> bool:
    return origin.url.rpartition("/")[2] in spec_of(name).made_from


def _drop_lost_units(ledger: Ledger, origins: Sequence[Ledger]) -> Drop:
    """Return what a table drops so that units which its origins have lost are done again when they are back.

    Rows of these units are found, and dropped, when the lake is verified.
    """
    live = [PackedKeySet(map(ledger.key, _units_in(origin))) for origin in origins]
    return Drop(keys=[key for key in ledger.done() if any(key not in keys for keys in live)])


def _units_in(ledger: Ledger) -> Iterator[str]:
    """Yield the keys of the units of work that ``documents`` or ``texts`` has rows of."""
    assert ledger.table is not None
    return (key for file in ledger.table.files("units", by=()) for key in unit_keys(file))


def _describe(
    logs: Logs, job: Job, table: Table, drop: Drop, _: Sequence[LedgerEntry], generation: int
) -> schemas.Lineage | None:
    name = table.url.rpartition("/")[2]
    if not table.is_remains and (name != "documents" or not drop.paths):
        return job.record_on(table, Change(action="epoch", generation=generation))
    inputs = _missing_inputs(table, drop, logs) if name == "documents" else ()
    change = Change(action="repair", generation=generation, input_files=inputs)
    return job.record_on(table, change, default=_lost_origin(name, logs))


def _lost_origin(name: str, logs: Logs) -> Origin | None:
    """Return the origin of a table that has lost its records, as far as other tables name it."""
    if logs.newest_record is None:
        return None
    origin, fingerprint = Origin.of(logs.newest_record), logs.fingerprints.get(name)
    if fingerprint is None:
        return origin
    return replace(origin, step=spec_of(name).name, fingerprint=fingerprint, tokenizer=None)


def _missing_inputs(documents: Table, drop: Drop, logs: Logs) -> list[schemas.InputFile]:
    """Return the input files with the records by which the rows that stay and the lineage differ."""
    rows: Counter[str] = Counter()
    dropped = {*drop.keys}
    for file in unit_files(documents):
        if file["unit"] not in dropped:
            rows[str(file["min.source"])] += int(file["rows"])
    known, files = logs.inputs.files(), []
    for uri in sorted({*rows, *known}):
        before = known.get(uri)
        difference = rows[uri] - (before.rows if before is not None else 0)
        if not difference:
            continue
        if before is None:
            info = storage.file_info(uri)
            before = schemas.InputFile(
                uri=uri,
                size=0 if info is None else info.size,
                fingerprint=_UNKNOWN if info is None else info.fingerprint,
                rows=0,
            )
        files.append(before.updated(rows=difference))
    return files
