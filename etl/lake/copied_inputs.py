"""Recognize input files that a table holds under another name, when units of work are committed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from etl.errors import MismatchError
from etl.lake.input_log import InputLog
from etl.lake.ledger_entry import LedgerEntry
from etl.sources.content import Content
from etl.sources.parts import KnownPart
from etl.sources.split import Split


def tell_copies(entries: Sequence[LedgerEntry], inputs: InputLog) -> list[LedgerEntry]:
    """Return entries to commit: a file with the rows of another one that is held becomes a name of it.

    Two files have the same content if they have equal samples, and the rows of each, read as one unit, have
    equal digests. Entries of files that may be the same, but were read in parts, are left out: the next plan
    compares the files. Raises MismatchError if another run has read different content of a file, or parts
    that overlap.
    """
    told: list[LedgerEntry] = []
    first: dict[tuple[int, str], _Held] = {}  # in these entries, by size and sample
    known = inputs.parts({entry.split.identity for entry in entries if entry.split is not None})
    for entry in entries:
        split, content = entry.split, entry.content
        if split is None:
            told.append(entry)
            continue
        if entry.is_name:
            if inputs.is_live(split.identity):
                told.append(entry)
            continue
        _check_input(split, inputs, known.get(split.identity, ()))
        if content is None or split.is_distinct:
            told.append(entry)
            continue
        held = _find_held(split, content, inputs)
        if held is None:
            own = _Held(split.identity, content.rows if split.is_whole else None)
            held = first.setdefault((split.size, content.sample), own)
        if held.identity == split.identity:
            told.append(entry)
        elif split.is_whole and held.rows is not None:
            if held.rows != content.rows:
                told.append(entry)
            else:
                same = replace(split, identity=held.identity)
                told.append(replace(entry, data_files=(), split=same, is_name=True))
    return told


class _Held(NamedTuple):
    """A file with a certain sample: its identity, and the digest of its rows if it was read as one unit."""

    identity: int
    rows: int | None


def _find_held(split: Split, content: Content, inputs: InputLog) -> _Held | None:
    """Return the file of the table that has the sample of a split, if any."""
    identity = inputs.with_content(split.size, content.sample)
    return None if identity is None else _Held(identity, inputs.rows_digest(identity, 0, None))


def _check_input(split: Split, inputs: InputLog, known: Sequence[KnownPart]) -> None:
    """Raise MismatchError if the table holds other content or overlapping parts of an input file."""
    for name in {split.source, split.real_uri}:
        held = inputs.identity_of(name)
        if held not in (None, split.identity, split.former) and inputs.is_live(held):
            raise MismatchError(
                "another run has committed different content of this input file",
                where=split.uri,
                hint="run again when the file no longer changes",
            )
    for part in known:
        is_same = (part.start, part.stop) == (split.start, split.stop)
        if not is_same and part.overlaps(split.start, split.stop):
            raise MismatchError(
                "another run has committed a part of this input file that overlaps with ours",
                where=split.uri,
                hint="run again: a run reads what no other has read, whatever its split_bytes",
            )
