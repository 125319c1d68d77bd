"""The pass of the stage in ``title_stage.py``, which compares the hashes of first lines on the driver."""

from functools import partial

import numpy as np
import pandas as pd

from etl import schemas
from etl.compute.shuffle import task_batches
from etl.compute.submit import compute_frame
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile, address, file_of, row_of
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
    earlier = earlier.collect(inputs.client)
    numbers, rows = inputs.files.chosen(lambda file: "title" in file.kinds)
    frame = inputs.files.frame(
        task_batches(numbers, rows),
        read=partial(_read_titles, lake=inputs.lake),
        meta=_TITLES,
        label="dedup_title",
    )
    titles = compute_frame(inputs.client, frame, label="dedup_title")
    titles = titles[~np.isin(titles["address"], earlier.dropped())]
    titles = titles.sort_values(["title", "rank", "address"])
    keepers = titles.groupby("title")["address"].transform("first")
    is_dropped = (titles["address"] != keepers) & (titles["rank"] > -np.inf)
    is_dropped &= ~np.isin(file_of(titles["address"].to_numpy()), inputs.settled)
    documents = titles["address"][is_dropped].to_numpy(np.int64)
    keeping = keepers[is_dropped].to_numpy(np.int64)
    pairs = pd.DataFrame(
        {
            "file": file_of(documents),
            "row": row_of(documents),
            "keeper_file": file_of(keeping),
            "keeper_row": row_of(keeping),
            "similarity": 1.0,
            "is_estimate": False,
            "kind": schemas.WHOLE.index("title"),
        }
    )
    return earlier.join(inputs.client, pairs)


def _read_titles(file: NumberedFile, *, lake: DocumentReader) -> pd.DataFrame:
    table = lake.read_ranked(file, ["title_hash"])
    rows = np.asarray(table["row"].combine_chunks())
    return pd.DataFrame(
        {
            "title": np.asarray(table["title_hash"].combine_chunks()),
            "address": address(np.int64(file.number), rows),
            "rank": np.asarray(table["rank"].combine_chunks()),
        }
    )
