"""View an Arrow column as one chunk."""

import pyarrow as pa


def one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the array as a single chunk, without a copy if it has one chunk already."""
    if isinstance(array, pa.Array):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
