"""Four small input files, added one after the other; their records have every kind of outcome."""

from collections.abc import Callable

from upath import UPath

from tests.helpers.corpus import prose, records, write_jsonl, write_parquet

Record = dict[str, str | None]

_SIZE = 40
_WRITERS: dict[str, Callable[[UPath, list[Record]], UPath]] = {
    "a.parquet": write_parquet,
    "b.jsonl": write_jsonl,
    "c.parquet": write_parquet,
    "d.jsonl": write_jsonl,
}

RECORDS = {
    name: [
        # Near copies repeat records of the same or an earlier file, so keepers come first.
        row if number % 13 != 8 else {**row, "body": f"{prose(max(number - 20, 0))} Once more."}
        for number, row in enumerate(records(start, start + _SIZE), start)
    ]
    for start, name in zip(range(0, 4 * _SIZE, _SIZE), _WRITERS, strict=True)
}
"""File name -> records."""


def write(folder: UPath, name: str) -> UPath:
    """Write one of the files and return its path."""
    return _WRITERS[name](folder / name, RECORDS[name])
