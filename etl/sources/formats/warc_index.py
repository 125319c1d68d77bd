"""Read which records of WARC files an index lists: Parquet files like Common Crawl's columnar index.

The index is read where a run is planned, and takes about 50 bytes of memory a record. Rows without a valid
name, offset and length are left out, and reported by file.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.errors import SourceError, StorageError, error_line
from etl.plural import many

COLUMNS: Final = ("warc_filename", "warc_record_offset", "warc_record_length")

_BATCH_ROWS: Final = 1 << 18
_MAX_OFFSET: Final = 1 << 48  # by the names of parts in the log of a lake
_MAX_LENGTH: Final = 1 << 40

_Records = npt.NDArray[np.int64]


def read_index(uris: Sequence[str], problems: list[StorageError]) -> Mapping[str, _Records]:
    """Return the offsets and lengths (n, 2) of the records of each WARC file, by its name.

    An error of each index file with invalid rows is added to ``problems``. Raises SourceError if a file
    cannot be read as Parquet, or lacks a column.
    """
    codes: dict[str, int] = {}
    names: list[npt.NDArray[np.int32]] = []
    records: list[_Records] = []
    for uri in uris:
        row, invalid, first = 0, 0, 0
        for batch in _read_batches(uri):
            valid = _are_valid(batch)
            if bad := len(valid) - (pc.sum(valid).as_py() or 0):
                first = first if invalid else row + valid.index(False).as_py()
                invalid += bad
            row += len(valid)
            files, offsets, lengths = (column.filter(valid) for column in batch)
            packed = files.dictionary_encode()
            own = [codes.setdefault(name, len(codes)) for name in packed.dictionary.to_pylist()]
            names.append(np.array(own, np.int32)[packed.indices.to_numpy()])
            records.append(np.stack((offsets.to_numpy(), lengths.to_numpy()), axis=1))
        if invalid:
            rows = many(invalid, "row")
            what = f"{rows} without a valid {', '.join(COLUMNS)}; the first is row {first}"
            problems.append(
                StorageError(what, where=uri, hint="correct the index; its other rows are read")
            )
    return _by_name([*codes], np.concatenate(names), np.concatenate(records)) if codes else {}


def _by_name(
    names: Sequence[str], codes: npt.NDArray[np.int32], records: _Records
) -> Mapping[str, _Records]:
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    return dict(zip(names, np.split(records[order], ends), strict=True))


def _read_batches(uri: str) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    """Yield the columns of an index, of the types string, int64 and int64."""
    try:
        with storage.open_input(uri) as file, pq.ParquetFile(file) as parquet:
            missing = [name for name in COLUMNS if name not in parquet.schema_arrow.names]
            if missing:
                raise SourceError(
                    f"the index has no column {', '.join(missing)}",
                    where=uri,
                    hint="give a Parquet file with the columns of Common Crawl's columnar index: "
                    + ", ".join(COLUMNS),
                )
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=[*COLUMNS]):
                name, offset, length = (batch.column(column) for column in COLUMNS)
                name = name.cast(pa.string())
                name.validate(full=True)  # the writer may not have checked that it is UTF-8
                yield name, offset.cast(pa.int64()), length.cast(pa.int64())
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"cannot be read as an index ({error_line(error)})",
            where=uri,
            hint="source.index takes Parquet files with a string and two integers a record",
        ) from error


def _are_valid(columns: tuple[pa.Array, pa.Array, pa.Array]) -> pa.BooleanArray:
    """Return which rows name a record."""
    name, offset, length = columns
    is_named = pc.greater(pc.binary_length(pc.utf8_trim_whitespace(name)), 0)
    starts = pc.and_(pc.greater_equal(offset, 0), pc.less(offset, _MAX_OFFSET))
    has_length = pc.and_(pc.greater(length, 0), pc.less(length, _MAX_LENGTH))
    return pc.fill_null(pc.and_(is_named, pc.and_(starts, has_length)), False)
