"""The moves of rows in Delta sources that a lake relies on: one JSON file in ``LAKE/source_moves`` per table.

A lake holds rows of files that were compacted later. Only the log of the source says that the new files
hold the same rows, and its entries are deleted after some weeks. Moves are facts about immutable files: if
an update is lost, the next run reads the log again.
"""

import hashlib
from collections.abc import Mapping, Sequence

from etl import storage
from etl.delta.moved_rows import Move
from etl.storage import checked_json

_FOLDER = "source_moves"


def read_moves(lake: str, table_id: str) -> list[Move]:
    """Return the moves in a source table that were written last, newest first.

    Raises TableError if they are damaged, StorageError if they cannot be read.
    """
    hint = f"`etl repair {lake} --yes` deletes it; the next run reads the log of the source again"
    return [
        Move(move["version"], frozenset(move["origins"]), move["targets"])
        for move in checked_json.read(_uri(lake, table_id), hint=hint) or ()
    ]


def write_moves(lake: str, moves: Mapping[str, Sequence[Move]]) -> None:
    """Replace the moves of source tables, given by table id; raise WriteError if that fails."""
    for table_id, table_moves in moves.items():
        records = [
            {"version": move.version, "origins": sorted(move.origins), "targets": move.targets}
            for move in table_moves
        ]
        checked_json.write(_uri(lake, table_id), records)


def _uri(lake: str, table_id: str) -> str:
    name = hashlib.sha256(table_id.encode()).hexdigest()[:24]
    return storage.join(storage.normalize(lake), _FOLDER, f"{name}.json")
