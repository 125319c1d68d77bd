"""`PASSES`: the pass of each deduplication stage; run the passes of a recipe in order."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from distributed import Client

from etl import schemas
from etl.compute.compute_frames import restart_lost_frames
from etl.dedup.dedup_pass import DedupPass, PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.exact import find_equal
from etl.dedup.minhash import find_similar
from etl.dedup.numbered_files import NumberedFile
from etl.dedup.paragraphs import find_repeated_passages
from etl.dedup.stored_file_list import store_file_list
from etl.dedup.substrings import find_repeated_substrings
from etl.lake.keys_table import KeyFile
from etl.parquet.data_file import DataFile
from etl.stages.dedup_base import DedupStage
from etl.stages.dedup_exact import DedupExact
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.dedup_substrings import DedupSubstrings

PASSES: Final[Mapping[type[DedupStage], DedupPass]] = {
    DedupExact: find_equal,
    DedupMinhash: find_similar,
    DedupParagraphs: find_repeated_passages,
    DedupSubstrings: find_repeated_substrings,
}
"""The pass of each deduplication stage."""


def find_duplicates(
    client: Client,
    files: Iterable[NumberedFile],
    reader: DocumentReader,
    *,
    name: str,
    keys: Sequence[KeyFile] = (),
) -> list[DataFile]:
    """Run the passes of all stages; write their decisions on undecided documents to ``duplicates``.

    Returns the new data files; ``name`` is the prefix of their names. ``keys`` are data files of the table
    ``keys`` with the keys of the ``files`` that are marked as keyed; the other files are read.
    """
    with store_file_list(files, reader.duplicates, name) as stored:
        settled, _ = stored.chosen(lambda file: file.decided and not file.earlier)
        inputs = PassInput(client, reader, stored, settled, keys, name)
        return restart_lost_frames(client, partial(_run_passes, inputs), label="duplicates")


def _run_passes(inputs: PassInput) -> list[DataFile]:
    result = PassResult()
    for stage in inputs.reader.stages:
        result = PASSES[type(stage)](inputs, stage, result.hold(inputs.client))
    return list(result.write(inputs).data_files)


def count_cut(data_files: Iterable[DataFile]) -> int:
    """Return the number of documents that data files of ``duplicates`` cut.

    The rows of the kind CUT are in data files of their own.
    """
    statistics = ((file.rows, json.loads(file.statistics)) for file in data_files)
    return sum(rows for rows, values in statistics if values["maxValues"]["kind"] == schemas.CUT)
