"""The side of each document in a split into training and validation: a function of its text and a seed.

A document's position, from 0 to 1, is a hash of its ``content_hash``: other documents, versions and lakes do
not change it, and equal texts are on one side. Clusters of near-duplicates need no rule: `dedup_exact` and
`dedup_minhash` keep one document of each, and only that one has tokens. `dedup_paragraphs` cuts what two
documents have in common out of the later one, so that these may be on different sides.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.lake.random_keys import mix, random_keys, seed_for, uniform
from etl.loader.views.view import Split

COLUMNS = (*schemas.ADDRESS, schemas.CONTENT_HASH.name)
"""The columns of ``documents`` that decide the sides."""

_SEED = -6  # of the keys of addresses
_HASH_BYTES = 16


def are_on_side(rows: pa.Table, split: Split) -> np.ndarray:
    """Return which documents are on the side of a split, (n,) bool, given their ``COLUMNS``.

    Documents without a content hash have a position by their address.
    """
    keys = random_keys(rows, _SEED)
    hashes = rows[schemas.CONTENT_HASH.name].combine_chunks()
    is_valid = np.asarray(pc.equal(pc.fill_null(pc.binary_length(hashes), 0), _HASH_BYTES))
    content = b"".join(hashes.filter(pa.array(is_valid)).to_pylist())
    keys[is_valid] = np.frombuffer(content, "<u8")[::2]
    positions = uniform(mix(mix(keys) ^ np.uint64(seed_for("split", split.seed))))
    are_in_validation: np.ndarray = positions < split.share
    return are_in_validation if split.side == "validation" else ~are_in_validation
