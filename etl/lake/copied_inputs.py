"""Recognize input files that a table holds under another name, when units of work are committed."""

from collections.abc import Sequence
from dataclasses import replace

from etl.errors import MismatchError
from etl.lake.input_log import InputLog
from etl.lake.ledger_entry import LedgerEntry
from etl.sources.parts import KnownPart
from etl.sources.split import Split


def tell_copies(entries: Sequence[LedgerEntry], inputs: InputLog) -> list[LedgerEntry]:
    """Return entries to commit: a file with the rows of another file in the table becomes a name of that.

    Two files have the same content if they have equal samples, and the rows of each, read as one unit, have
    equal digests. Entries of files that may be the same, but were read in parts, are left out: the next plan
    compares the files. Raises MismatchError if another run has read different content of a file, or parts
    that overlap.
    """
    told: list[LedgerEntry] = []
    held = _held_files(entries, inputs)
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
        rows = content.rows if split.is_whole else None
        files = held.setdefault((split.size, content.sample), {})
        if split.identity in files or not files:
            files[split.identity] = rows
            told.append(entry)
        elif rows is not None and rows in files.values():
            original = next(identity for identity, each in files.items() if each == rows)
            same = replace(split, identity=original)
            told.append(replace(entry, data_files=(), split=same, is_name=True))
        elif rows is not None and None not in files.values():
            files[split.identity] = rows
            told.append(entry)
    return told


def tell_whole_packs(entries: Sequence[LedgerEntry], inputs: InputLog) -> list[LedgerEntry]:
    """Return what ``tell_copies`` does, without the packs of which only a part would be committed."""
    while True:
        told = tell_copies(entries, inputs)
        added = {entry.key for entry in told if not entry.is_name}
        broken = {entry.key for entry in entries if not added.issuperset(entry.pack)}
        if not broken:
            return told
        # Others may have become names of the files of a broken pack: they are compared again.
        entries = [entry for entry in entries if entry.key not in broken]


_Held = dict[tuple[int, str], dict[int, int | None]]
"""Files by size and sample: by identity the digest of the rows, None if the file was read in parts."""


def _held_files(entries: Sequence[LedgerEntry], inputs: InputLog) -> _Held:
    """Return the files of the table that have the sizes and samples of entries."""
    contents = {
        (entry.split.size, entry.content.sample)
        for entry in entries
        if entry.split is not None and entry.content is not None
    }
    return {
        content: {each: inputs.rows_digest(each, 0, None) for each in identities}
        for content, identities in inputs.with_contents(contents).items()
    }


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
