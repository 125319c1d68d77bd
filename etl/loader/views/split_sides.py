"""The side of each document in a split into training and validation: a function of texts and a seed.

A document's position, from 0 to 1, is a hash of its ``content_hash``, so that equal texts are on one side.
Near-duplicates need no rule: of those that a recipe finds, only one has tokens. `dedup_paragraphs`, however,
cuts units out of a document that an earlier one has, and keeps both. Such a document has the position of the
earlier one, or of the one from which that was cut in turn.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.lake.random_keys import mix, random_keys, seed_for, uniform
from etl.loader.views.pinned_documents import PinnedTable, RowGroups
from etl.loader.views.view import Split

COLUMNS = (*schemas.ADDRESS, schemas.CONTENT_HASH.name)
"""The columns of ``documents`` that decide the sides."""

_SEED = -6  # of the keys of addresses
_HASH_BYTES = 16
_MAX_DOUBLINGS = 64


@dataclass(frozen=True)
class Clusters:
    """Documents that share units, by the keys of their addresses: 16 bytes for each duplicate of the lake."""

    members: np.ndarray  # (m,) uint64, ascending: documents that were cut
    cluster: np.ndarray  # (m,) int64: the cluster of each
    firsts: np.ndarray  # (c,) uint64, ascending: the first document of each cluster


class Sides(NamedTuple):
    """The sides of the documents of a file: true is validation."""

    own: np.ndarray  # (n,) bool: by their own texts
    members: tuple[np.ndarray, np.ndarray]  # rows whose side is that of a cluster, and the clusters
    firsts: tuple[
        np.ndarray, np.ndarray
    ]  # rows that decide the side of a cluster, and the clusters


def read_clusters(duplicates: PinnedTable | None) -> Clusters:
    """Return the clusters of documents that share units."""
    parts = [(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, bool))]
    if duplicates is not None:
        lake = [name for name in ("keeper_lake",) if name in duplicates.schema.names]
        columns = ["source", "row", "keeper_source", "keeper_row", "kind", *lake]
        parts += [part for _, part in duplicates.read(columns, _read_duplicates)]
    keys, keepers, is_cut = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not is_cut.any():
        return Clusters(keys[:0], np.empty(0, np.int64), keys[:0])
    keys, order = np.unique(keys, return_index=True)
    keepers, is_cut = keepers[order], is_cut[order]
    # The keeper of a document may have been cut, or left out, in favour of another one.
    places = np.minimum(np.searchsorted(keys, keepers), len(keys) - 1)
    last = np.where(keys[places] == keepers, places, np.arange(len(keys)))
    for _ in range(_MAX_DOUBLINGS):
        further = last[last]
        if np.array_equal(further, last):
            break
        last = further
    firsts, cluster = np.unique(keepers[last][is_cut], return_inverse=True)
    return Clusters(keys[is_cut], cluster.astype(np.int64), firsts)


def sides_of(rows: pa.Table, split: Split, clusters: Clusters) -> Sides:
    """Return the sides of documents, given their ``COLUMNS``; without a hash, the address decides."""
    keys = random_keys(rows, _SEED)
    hashes = rows[schemas.CONTENT_HASH.name].combine_chunks()
    is_valid = np.asarray(pc.equal(pc.fill_null(pc.binary_length(hashes), 0), _HASH_BYTES))
    bytes_ = b"".join(hashes.filter(pa.array(is_valid)).to_pylist())
    contents = keys.copy()
    contents[is_valid] = np.frombuffer(bytes_, "<u8").reshape(-1, _HASH_BYTES // 8)[:, 0]
    return Sides(
        _is_validation(contents, split),
        _find(keys, clusters.members, clusters.cluster),
        _find(keys, clusters.firsts, np.arange(len(clusters.firsts))),
    )


def default_sides(clusters: Clusters, split: Split) -> np.ndarray:
    """Return the sides of clusters whose first document is not in this lake, (c,) bool: by its address."""
    return _is_validation(clusters.firsts, split)


def _is_validation(keys: np.ndarray, split: Split) -> np.ndarray:
    salt = np.uint64(seed_for("split", split.seed))
    is_validation: np.ndarray = uniform(mix(mix(keys) ^ salt)) < split.share
    return is_validation


def _find(keys: np.ndarray, known: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some keys are among the known ones, ascending, and the values of those."""
    if not len(known):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    rows = np.flatnonzero(known[places] == keys)
    return rows, values[places[rows]]


def _read_duplicates(groups: RowGroups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the keys of the documents, the keys of their keepers, and which were cut."""
    parts = [(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, bool))]
    for rows in groups:
        source = rows["keeper_source"]
        if "keeper_lake" in rows.column_names:  # of a document in another lake
            elsewhere = pc.binary_join_element_wise(rows["keeper_lake"], source, "\x00")
            source = pc.coalesce(elsewhere, source)
        keepers = pa.table({"source": source, "row": rows["keeper_row"]})
        is_cut = np.asarray(pc.equal(rows["kind"].combine_chunks(), schemas.CUT))
        parts.append((random_keys(rows, _SEED), random_keys(keepers, _SEED), is_cut))
    keys, keepers_, cut = (np.concatenate(column) for column in zip(*parts, strict=True))
    return keys, keepers_, cut
