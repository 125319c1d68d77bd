"""The pass of the stage in ``title_stage.py``, which compares the hashes of first lines."""

from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl import schemas
from etl.compute.frame_shuffles import partitions_for, shuffle_by_range, task_batches
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile, address, file_of
from etl.dedup.pair_rows import PAIRS
from tests.helpers.title_stage import DedupTitle

_TITLES = pd.DataFrame(
    {
        "title": pd.Series(dtype="int64"),
        "address": pd.Series(dtype="int64"),
        "rank": pd.Series(dtype="float64"),
    }
)


def find_equal_titles(inputs: PassInput, _stage: DedupTitle, earlier: PassResult) -> PassResult:
    """Drop the undecided documents whose first line equals that of a better one."""
    numbers, rows = inputs.files.chosen(lambda file: "title" in file.kinds)
    file_parts = task_batches(numbers, rows)
    titles = inputs.files.frame(
        file_parts,
        read=partial(_read_titles, reader=inputs.reader),
        meta=_TITLES,
        label="dedup_title",
    )
    titles = earlier.leave_out(titles, file_parts, "address")
    titles = shuffle_by_range(titles, "title", partitions_for(int(rows.sum())))
    pairs = titles.map_partitions(_pair_equal_titles, settled=inputs.settled, meta=PAIRS)
    return earlier.join(pairs)


def _pair_equal_titles(titles: pd.DataFrame, *, settled: NDArray[np.int64]) -> pd.DataFrame:
    titles = titles.sort_values(["title", "rank", "address"])
    keepers = titles.groupby("title")["address"].transform("first")
    is_dropped = (titles["address"] != keepers) & (titles["rank"] > -np.inf)
    is_dropped &= ~np.isin(file_of(titles["address"].to_numpy()), settled)
    documents = titles["address"][is_dropped].to_numpy(np.int64)
    keeping = keepers[is_dropped].to_numpy(np.int64)
    return pd.DataFrame(
        {
            "document": documents,
            "keeper": keeping,
            "similarity": 1.0,
            "is_estimate": False,
            "kind": schemas.WHOLE.index("title"),
        }
    )


def _read_titles(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    table = reader.read_ranked(file, ["title_hash"])
    rows = np.asarray(table["row"].combine_chunks())
    return pd.DataFrame(
        {
            "title": np.asarray(table["title_hash"].combine_chunks()),
            "address": address(np.int64(file.number), rows),
            "rank": np.asarray(table["rank"].combine_chunks()),
        }
    )
