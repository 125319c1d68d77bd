"""Recognize the files of a source that a lake holds already, whatever their names and times are.

A listed file is **known** if its name is, and it is listed as it was when it was last read or compared. That
costs no request. Any other file may still have content that the lake holds: it was touched, moved or copied.
A sample of its bytes can only prove it different; otherwise it is a **doubt**, until its rows are compared.
What an overlapping run reads at the same time is compared when it is committed: ``etl.lake.copied_inputs``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple, TypeVar

from etl.delta.table import Table
from etl.errors import StorageError
from etl.lake.input_log import InputLog
from etl.lake.ledger import Ledger
from etl.lake.unit_files import unit_files
from etl.lake.work_units import split_key
from etl.sources import Source, Split
from etl.sources.content_digests import sample_file
from etl.sources.parts import is_complete

_CHUNK = 1024  # files that are looked up together
_THREADS = 32  # they wait for storage

T = TypeVar("T")


class Comparison(NamedTuple):
    """A listed file, as it was listed, and the identity of a file that the lake holds."""

    real_uri: str
    fingerprint: str
    identity: int

    @classmethod
    def of(cls, file: Split, identity: int) -> "Comparison":
        """Return the comparison of a listed file with a file that the lake holds."""
        return cls(file.real_uri, file.fingerprint, identity)


@dataclass(frozen=True, kw_only=True)
class KnownFiles:
    """The files of a source, compared with what the lake holds.

    ``files`` are to be read, or were read before. ``doubts`` must be compared first with the files of the
    lake whose identities they have. ``postponed`` are the URIs of files that may be copies of new ones in
    ``files``, which must be read before. ``changed`` and ``missing`` are the addresses of files that the lake
    holds, and that have other content now or are not listed.
    """

    files: Sequence[Split]
    doubts: Sequence[Split]
    postponed: Sequence[str]
    changed: AbstractSet[str]
    missing: Sequence[str]


def identify_files(
    files: Iterable[Split],
    source: Source,
    inputs: InputLog,
    documents: Table | None,
    *,
    different: AbstractSet[Comparison] = frozenset(),
    postpones: bool = True,
) -> KnownFiles:
    """Compare the listed files of a source with the log of ``documents``; None: nothing was read.

    ``different`` are the comparisons that have found other rows. With ``postpones``, new files that may be
    copies of other new ones are not to be read yet.
    """
    # Links to a file have its real URI: it is read once.
    resolved = {file.real_uri: file for file in files}
    known, unknown = _look_up_names(resolved.values(), inputs)
    resolved |= {file.real_uri: file for file in known}
    listed = {file.identity for file in known}
    doubts: list[Split] = []
    differing: list[tuple[Split, int]] = []  # from the rows known by their name
    new: list[Split] = []
    for file, own, same in _sample_unknown(unknown, inputs):
        if own is not None:
            # The name is known, but its fingerprint has changed. If the sample is equal, probably only
            # the time has changed: the rows are compared. Otherwise the content has.
            if own in same and Comparison.of(file, own) not in different:
                doubts.append(replace(file, identity=own))
                continue
            differing.append((file, own))
        # The name is new or has other content. If the sample is known by another name, the file was
        # moved or copied.
        live = [each for each in same if inputs.is_live(each)]
        if source.copies == "keep":  # but a file that was moved is read once
            live = [each for each in live if each not in listed]
        candidates = [each for each in live if Comparison.of(file, each) not in different]
        if candidates:
            doubts.append(replace(file, identity=candidates[0]))
            if source.copies == "keep":
                listed.add(candidates[0])
            continue
        identity = inputs.new_identity(file)
        is_distinct = bool(live) or source.copies == "keep"
        new.append(replace(file, identity=identity, former=own or 0, is_distinct=is_distinct))
    resolved |= {file.real_uri: file for file in new}
    # Of new files with equal samples, the first is read now. The next plan compares the others with it.
    postponed = _find_copies(new) if postpones and source.copies == "once" else []
    for uri in (*postponed, *(file.real_uri for file in doubts)):
        del resolved[uri]
    listed |= {file.identity for file in doubts}
    held = HeldFiles(documents, inputs)
    changing = held.changed(differing, listed)
    changed = {*changing.values()}
    return KnownFiles(
        files=held.with_addresses(resolved.values()),
        # A file may have become a copy of another one: not before its old rows are dropped.
        doubts=[file for file in doubts if file.real_uri not in changing],
        postponed=postponed,
        changed=changed,
        missing=held.missing(listed, changed),
    )


def _look_up_names(
    files: Iterable[Split], inputs: InputLog
) -> tuple[list[Split], list[tuple[Split, int | None]]]:
    """Return the files that are known, and the others, each with the identity that its name has if any."""
    known: list[Split] = []
    unknown: list[tuple[Split, int | None]] = []
    for chunk in _chunks(files):
        names = [(inputs.identity_of(f.real_uri), _owner(f, inputs)) for f in chunk]
        live = _live(inputs, {each for pair in names for each in pair if each is not None})
        for file, (real, address) in zip(chunk, names, strict=True):
            if real in live and inputs.is_current(file):
                known.append(replace(file, identity=real))
            else:
                unknown.append((file, next((n for n in (real, address) if n in live), None)))
    return known, unknown


def _owner(file: Split, inputs: InputLog) -> int | None:
    """Return the identity of the file whose rows have the address of a link, if any."""
    return None if file.real is None else inputs.identity_of(file.uri)


def _live(inputs: InputLog, identities: Collection[int]) -> set[int]:
    """Return the identities of files of which the lake holds a part."""
    parts = inputs.parts(identities)
    return {each for each, known in parts.items() if any(part.is_done for part in known)}


def _sample_unknown(
    unknown: Sequence[tuple[Split, int | None]], inputs: InputLog
) -> Iterator[tuple[Split, int | None, Sequence[int]]]:
    """Yield the files, each with its name's identity, and the identities of files with the same sample.

    Only a file with the size of a file that was read is sampled. One that cannot be read is perhaps
    unchanged.
    """
    for chunk in _chunks(unknown):
        contents = inputs.with_sizes({file.size for file, _ in chunk})
        samples = _samples([file for file, _ in chunk if file.size in contents])
        for file, own in chunk:
            sample = samples.get(file.real_uri, "")
            same = [each for known, each in contents.get(file.size, ()) if known == sample]
            yield file, own, same if sample is not None or own is None else [own]


def _find_copies(files: Iterable[Split]) -> list[str]:
    """Return the real URIs of new files that may be copies of others, which come first."""
    sizes: dict[int, list[Split]] = {}
    for file in files:
        if not file.is_distinct:
            sizes.setdefault(file.size, []).append(file)
    similar = [file for group in sizes.values() if len(group) > 1 for file in group]
    samples = _samples(similar)
    seen: set[tuple[int, str | None]] = set()
    copies = []
    for file in similar:
        sample = samples[file.real_uri]
        if sample is not None and (file.size, sample) in seen:
            copies.append(file.real_uri)
        seen.add((file.size, sample))
    return copies


def _samples(files: Sequence[Split]) -> dict[str, str | None]:
    """Return the sample of each file by real URI; None if it cannot be read."""

    def sample(file: Split) -> str | None:
        try:
            return sample_file(file.uri, file.size)
        except StorageError:
            return None

    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(sample, files)
        return {file.real_uri: each for file, each in zip(files, found, strict=True)}


class HeldFiles:
    """The addresses of the files that the lake holds rows of."""

    def __init__(self, documents: Table | None, inputs: InputLog) -> None:
        self._documents, self._inputs = documents, inputs

    @cached_property
    def _addresses(self) -> dict[str, int]:
        """The identities of the files by address; found by a pass over the log."""
        if self._documents is None:
            return {}
        files = unit_files(self._documents)
        sources = dict.fromkeys(file["min.source"] for file in files if file["rows"])
        return {source: self._inputs.identity_of(source) or 0 for source in sources}

    def by_identity(self) -> dict[int, str]:
        """Return the address of each file by its identity."""
        return {identity: source for source, identity in self._addresses.items()}

    def with_addresses(self, files: Iterable[Split]) -> list[Split]:
        """Return listed files, those with the address of their rows that were not read completely."""
        listed = list(files)
        moved = {f.identity for f in listed if f.identity != self._inputs.new_identity(f)}
        parts = self._inputs.parts(moved)
        moved = {each for each in moved if not is_complete(parts.get(each, ()))}
        if not moved:
            return listed
        addresses = self.by_identity()
        return [
            replace(f, address=addresses.get(f.identity)) if f.identity in moved else f
            for f in listed
        ]

    def changed(
        self, differing: Sequence[tuple[Split, int]], listed: AbstractSet[int]
    ) -> dict[str, str]:
        """Return the addresses of files with other content now, by real URI.

        A copy or a moved file that has other content is a new file if the old content is listed.
        """
        if not differing:
            return {}
        addresses = self.by_identity()
        found = ((file, own, addresses.get(own)) for file, own in differing)
        return {
            file.real_uri: address
            for file, own, address in found
            if address is not None and (address == file.uri or own not in listed)
        }

    def missing(self, listed: AbstractSet[int], changed: AbstractSet[str]) -> list[str]:
        """Return the addresses of files that are not listed by any name."""
        if self._inputs.num_identities() <= len(listed):
            return []
        return [a for a, each in self._addresses.items() if each not in listed and a not in changed]


def unread(splits: Iterable[Split], documents: Ledger, texts: Ledger) -> Iterator[Split]:
    """Yield the splits whose rows are not in both tables, each unit of work once."""
    addresses: Mapping[int, str] | None = None
    without_texts = set[str]()
    for split in splits:
        key = split_key(documents, split)
        if not documents.is_done(key):
            yield split
        # A run ended before it had committed the texts. Copies of a file are the same unit, and its rows
        # have the address that they have in documents.
        elif not texts.is_done(texts.key(key)) and key not in without_texts:
            if addresses is None:
                addresses = HeldFiles(documents.table, documents.inputs).by_identity()
            without_texts.add(key)
            yield replace(split, address=addresses.get(split.identity))


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
