"""Find the documents whose decisions may change when documents leave or come.

Two documents are compared only if their texts are equal or they share a band key. A decision depends on such
neighbours, on their neighbours, and so on; a duplicate is also a neighbour of its keeper. So all documents
that are connected with a document that leaves or comes are affected. All others keep their decisions: no
pass compares an affected document with any of them.

The neighbours are found in the table ``keys``, which has the keys of all documents but exact duplicates;
these are found by their keepers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from etl.dedup.document_reader import DocumentReader
from etl.dedup.keep_preference import KeepPreference
from etl.dedup.key_index import KeyIndex, KeyRows
from etl.dedup.key_lookup import halves, keys_of_bands
from etl.dedup.numbered_files import FileList, address, file_of, row_of
from etl.kernels.hashing.sorted_sets import among, distinct
from etl.lake.keys_table import Kind
from etl.stages.dedup_base import find_dedup_stage
from etl.stages.dedup_minhash import DedupMinhash

BANDS_KINDS: Final[tuple[Kind, ...]] = ("near", "near_dropped")
"""The kinds of keys that are keys of bands."""


class ComparedDocuments(NamedTuple):
    """What some documents are compared by, in the order of their addresses."""

    addresses: NDArray[np.int64]  # (n,)
    hashes: NDArray[np.int64]  # (n, 2) the first and the last 8 bytes of the content hashes
    ranks: NDArray[np.float64]  # (n,) lower is better
    signed: NDArray[np.int64]  # (m,) indices of the documents with a signature
    signatures: NDArray[np.uint32]  # (m, 1 + permutations)
    bands: NDArray[np.int64]  # (m, bands) their keys

    def join(self, other: Self) -> Self:
        """Return these and other documents, in the order of their addresses."""
        addresses = np.concatenate([self.addresses, other.addresses])
        order = np.argsort(addresses)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        signed = place[np.concatenate([self.signed, len(self.addresses) + other.signed])]
        of_signed = np.argsort(signed)
        return type(self)(
            addresses[order],
            np.concatenate([self.hashes, other.hashes])[order],
            np.concatenate([self.ranks, other.ranks])[order],
            signed[of_signed],
            np.concatenate([self.signatures, other.signatures])[of_signed],
            np.concatenate([self.bands, other.bands])[of_signed],
        )


@dataclass(frozen=True)
class DocumentSource:
    """The files of ``texts`` that documents are read from, given by their addresses."""

    files: FileList
    reader: DocumentReader

    @property
    def minhash(self) -> DedupMinhash | None:
        """The stage that compares signatures, if there is one."""
        return find_dedup_stage(self.reader.stages, DedupMinhash)

    def read(self, addresses: NDArray[np.int64]) -> ComparedDocuments:
        """Return documents, given by their addresses (ascending)."""
        stage, preference = self.minhash, KeepPreference.of(self.reader.stages)
        width, bands = (0, 0) if stage is None else (1 + stage.permutations, stage.bands)
        found = ComparedDocuments(
            np.empty(0, np.int64),
            np.empty((0, 2), np.int64),
            np.empty(0),
            np.empty(0, np.int64),
            np.empty((0, width), np.uint32),
            np.empty((0, bands), np.int64),
        )
        names = ["content_hash", *([] if stage is None else ["signature"])]
        parts = [found]
        numbers, first = file_of(addresses), 0
        for file in self.files.take(distinct(numbers)):
            rows = row_of(addresses[numbers == file.number])
            table = self.reader.take(file, rows, *names)
            signed, signatures, keys = found.signed, found.signatures, found.bands
            if stage is not None:
                column = table["signature"].combine_chunks()
                signed = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
                signatures = stage.numbers(column.drop_null())
                keys = keys_of_bands(stage, column.drop_null())
            parts.append(
                ComparedDocuments(
                    address(np.int64(file.number), rows),
                    halves(table["content_hash"].combine_chunks()),
                    preference.rank(file, table),
                    signed + first,
                    signatures,
                    keys,
                )
            )
            first += len(rows)
        return ComparedDocuments(*map(np.concatenate, zip(*parts, strict=True)))


class Links(NamedTuple):
    """Duplicates and their keepers by their addresses; a keeper that has left is -1."""

    documents: NDArray[np.int64]  # (n,)
    keepers: NDArray[np.int64]  # (n,)


class Affected(NamedTuple):
    """The documents to decide again, those that have left, and the rows of ``keys`` of both."""

    documents: ComparedDocuments
    addresses: NDArray[np.int64]  # (n,) of these documents and of those that have left, ascending
    rows: KeyRows  # of both


def find_affected(
    live: NDArray[np.int64], links: Links, index: KeyIndex, source: DocumentSource, limit: int
) -> Affected | None:
    """Return the affected documents; None if there are more than ``limit``.

    ``live`` has the addresses of all documents to decide on (ascending). What was decided on before is known
    from ``keys`` and from ``duplicates``, whose rows are ``links``.
    """
    exact = index.of_kind("exact")
    exact = exact.take(exact.documents >= 0)
    stays, dropped = distinct(exact.documents), distinct(links.documents)
    decided = distinct(np.concatenate([stays, dropped]))
    gone = decided[~among(decided, live)]
    has_no_keeper = ~among(links.keepers, stays[among(stays, live)])
    starts = [live[~among(live, decided)], stays[among(stays, dropped)]]
    new = _among_live([*starts, links.documents[has_no_keeper]], live)
    hashes = exact.keys[among(exact.documents, gone)]
    bands = index.of_documents(gone, *BANDS_KINDS).keys
    documents, found, seen = source.read(new[:0]), list[KeyRows](), [hashes[:0], bands[:0]]
    while len(new) or len(hashes) or len(bands):
        if len(documents.addresses) + len(new) > limit:
            return None
        read = source.read(new)
        documents = documents.join(read)
        hashes = _not_seen([hashes, read.hashes[:, 0]], seen[0])
        bands = _not_seen([bands, read.bands.ravel()], seen[1])
        seen = [np.append(seen[0], hashes), np.append(seen[1], bands)]
        found += [index.matching(hashes, "exact"), index.matching(bands, *BANDS_KINDS)]
        neighbours = [rows.documents for rows in found[-2:]]
        neighbours += [
            links.keepers[among(links.documents, new)],
            links.documents[among(links.keepers, new)],
        ]
        new = _among_live(neighbours, live)
        new = new[~among(new, documents.addresses)]
        hashes, bands = hashes[:0], bands[:0]
    rows = KeyRows.concatenate(found)
    addresses = distinct(np.concatenate([documents.addresses, gone]))
    return Affected(documents, addresses, rows.take(among(rows.documents, addresses)))


def _among_live(parts: Sequence[NDArray[np.int64]], live: NDArray[np.int64]) -> NDArray[np.int64]:
    found = distinct(np.concatenate(parts))
    return found[among(found, live)]


def _not_seen(parts: Sequence[NDArray[np.int64]], seen: NDArray[np.int64]) -> NDArray[np.int64]:
    keys = distinct(np.concatenate(parts))
    return keys[~among(keys, seen)]
