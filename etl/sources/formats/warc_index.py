"""Read which records of WARC files an index lists: Parquet files like Common Crawl's columnar index.

The index is read where a run is planned, and takes about 100 bytes of memory a record. Rows without a valid
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
        for files, offsets, lengths in _read_batches(uri):
            valid = _are_valid(files, offsets, lengths)
            if bad := int(np.count_nonzero(~valid)):
                first = first if invalid else row + int(np.argmin(valid))
                invalid += bad
            row += len(valid)
            own = [
                codes.setdefault(name or "", len(codes)) for name in files.dictionary.to_pylist()
            ]
            indices = pc.fill_null(files.indices, 0).to_numpy()[valid]
            names.append(np.array(own, np.int32)[indices])
            columns = (pc.fill_null(column, 0).to_numpy()[valid] for column in (offsets, lengths))
            records.append(np.stack([*columns], axis=1))
        if invalid:
            what = f"{many(invalid, 'row')} without a valid {', '.join(COLUMNS)}; the first is row {first}"
            hint = "correct the index; its other rows are read"
            problems.append(StorageError(what, where=uri, hint=hint))
    return _by_name([*codes], np.concatenate(names), np.concatenate(records)) if codes else {}


def _by_name(
    names: Sequence[str], codes: npt.NDArray[np.int32], records: _Records
) -> Mapping[str, _Records]:
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    by_name = zip(names, np.split(records[order], ends), strict=True)
    return {name: own for name, own in by_name if len(own)}


def _read_batches(uri: str) -> Iterator[tuple[pa.DictionaryArray, pa.Array, pa.Array]]:
    """Yield the columns of an index: strings by their codes, and two of the type int64."""
    try:
        with (
            storage.open_input(uri) as file,
            pq.ParquetFile(
                file, read_dictionary=COLUMNS[:1], page_checksum_verification=True
            ) as parquet,
        ):
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
                if not pa.types.is_dictionary(name.type):
                    name = name.cast(pa.string()).dictionary_encode()
                name.validate(full=True)  # the writer may not have checked that it is UTF-8
                yield name, offset.cast(pa.int64()), length.cast(pa.int64())
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise SourceError(
            f"cannot be read as an index ({error_line(error)})",
            where=uri,
            hint="source.index takes Parquet files with a string and two integers a record",
        ) from error


def _are_valid(
    files: pa.DictionaryArray, offsets: pa.Array, lengths: pa.Array
) -> npt.NDArray[np.bool_]:
    """Return which rows name a record."""
    is_name = [bool(name and name.strip()) for name in files.dictionary.to_pylist()]
    named: npt.NDArray[np.bool_] = np.array([*is_name, False])[
        pc.fill_null(files.indices, len(is_name)).to_numpy()
    ]
    starts = pc.and_(pc.greater_equal(offsets, 0), pc.less(offsets, _MAX_OFFSET))
    has_length = pc.and_(pc.greater(lengths, 0), pc.less(lengths, _MAX_LENGTH))
    given = pc.fill_null(pc.and_(starts, has_length), False).to_numpy(zero_copy_only=False)
    named &= given
    return named
