"""Tables that annotate records, by any key that they can have."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from etl.recipe.stage_list import StageList
from etl.stages.apply import apply
from tests.helpers.raw_rows import raw

KEYS = ("id", "url", "address", "content_hash")


def annotations(
    files: Mapping[str, Sequence[Mapping[str, str | None]]],
    key: str,
    modulus: int,
    transforms: Sequence[Sequence[Any]] = ((),),
) -> pa.Table:
    """Return annotations of every second record of some files, which have their records by URI.

    Hashes are those of the texts as each list of ``transforms`` leaves them.
    """
    all_rows = [(uri, n, row) for uri, rows in files.items() for n, row in enumerate(rows)]
    numbers, chosen = [*range(0, len(all_rows), 2)], all_rows[::2]
    keys: dict[str, Any] = {
        "id": [row["doc_id"] for _, _, row in chosen],
        "url": [row["link"] for _, _, row in chosen],
        "source": [uri for uri, _, _ in chosen],
        "row": [number for _, number, _ in chosen],
    }
    if key == "content_hash":
        hashes: set[bytes] = set()
        for stages in transforms:
            documents = raw([row["body"] for _, _, row in chosen])
            made = apply(documents, TypeAdapter(StageList).validate_python(stages))
            hashes |= {*made["content_hash"].drop_null().to_pylist()}
        keys = {key: pa.array(sorted(hashes), pa.binary())}
        numbers = [each[0] for each in sorted(hashes)]
    values = {
        "score": [None if number % 5 == 3 else number % modulus for number in numbers],
        "is_even": [number % 4 == 0 for number in numbers],
        "topic": [["law", "art", None][number % 3] for number in numbers],
    }
    return pa.table({**keys, **values})


def annotate(path: object, key: str, **others: Any) -> dict[str, Any]:
    """Return a stage that adds the column ``annotate_score``."""
    return {"annotate": {"table": str(path), "key": key, "values": ["score"], **others}}
