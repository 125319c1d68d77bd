"""How many bytes of text input files have per byte, for estimates of costs."""

from itertools import islice
from typing import Final

import pyarrow as pa

from etl import storage
from etl.errors import StorageError
from etl.job.plan import Plan
from etl.parquet.parquet_file import read_footer
from etl.sources import Split
from etl.sources.split import split_compression

_SAMPLED_FILES: Final = 4
_EXPANSION: Final = {"gzip": 3.0, "zstd": 3.5, "parquet": 2.5}
_JSON: Final = 0.9  # text in JSON Lines and CSV, the rest is syntax and other columns


def expansion_of(split: Split, parquet: float) -> float:
    """Return the bytes of text per byte of a split; ``parquet``: if it is of a Parquet file."""
    if split.format in ("parquet", "delta"):
        return parquet
    compression = split_compression(split.uri)[1]
    expansion = _EXPANSION.get(compression or split.format, 1.0)
    return expansion * (_JSON if split.format in ("jsonl", "csv") else 1.0)


def parquet_expansion(plan: Plan) -> float:
    """Return the uncompressed bytes of the text column per byte of a few of the Parquet files."""
    uris = dict.fromkeys(each.uri for each in plan.splits if each.format in ("parquet", "delta"))
    column, text, size = plan.recipe.source.columns.text, 0, 0
    spread = islice(uris, 0, None, max(1, len(uris) // _SAMPLED_FILES))
    for uri in islice(spread, _SAMPLED_FILES):
        try:
            with storage.open_input(uri) as file:
                footer, num_bytes = read_footer(file), file.size()
        except (StorageError, pa.ArrowException, OSError):
            continue  # its splits will be quarantined
        groups = (footer.row_group(index) for index in range(footer.num_row_groups))
        chunks = (group.column(i) for group in groups for i in range(group.num_columns))
        text += sum(c.total_uncompressed_size for c in chunks if c.path_in_schema == column)
        size += num_bytes
    return text / size if text else _EXPANSION["parquet"]
