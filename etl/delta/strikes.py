"""Strike rows of data files: the files with new deletion vectors, for a commit."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from etl import storage
from etl.delta.deletion_vectors import write_vectors
from etl.errors import TableError
from etl.parquet.data_file import DataFile
from etl.parquet.data_file_reader import Positions


def strike_rows(
    url: str, files: Mapping[str, DataFile], positions: Mapping[str, Iterable[int]]
) -> list[DataFile]:
    """Write deletion vectors, and return the data files with them.

    ``files`` are the live data files by path. ``positions`` has all struck rows of some files, in any order;
    a file without any has no vector. Raises TableError for a path that is not live and for a position that is
    not in the file, WriteError if the vectors cannot be written.
    """
    struck = {path: _checked(url, files.get(path), path, each) for path, each in positions.items()}
    vectors = write_vectors(url, struck.values())
    return [
        replace(files[path], vector=vector, statistics=_bounded(files[path].statistics, vector))
        for path, vector in zip(struck, vectors, strict=True)
    ]


def _checked(url: str, file: DataFile | None, path: str, each: Iterable[int]) -> Positions:
    where = storage.join(url, path)
    if file is None:
        raise TableError("rows of a data file that is not live cannot be struck", where=where)
    positions = np.unique(np.fromiter(each, np.int64) if not isinstance(each, np.ndarray) else each)
    if len(positions) and not (positions[0] >= 0 and positions[-1] < file.rows):
        outside = positions[0] if positions[0] < 0 else positions[-1]
        what = f"row {outside} cannot be struck: the data file has {file.rows} rows"
        raise TableError(what, where=where)
    return positions.astype(np.int64, copy=False)


def _bounded(statistics: str, vector: str | None) -> str:
    """Return statistics that say whether the bounds are values of live rows, as they are by default."""
    fields = json.loads(statistics)
    fields.pop("tightBounds", None)
    if vector is not None:
        fields["tightBounds"] = False
    return json.dumps(fields, ensure_ascii=False)
