"""Read the input files of a lake again, and compare their rows."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from etl.audit.source_texts import as_split
from etl.audit.verify.file_checks import Problem
from etl.delta.table import Table
from etl.errors import TokenlakeError
from etl.lake.commit_info import find_record
from etl.lake.input_locations import find_input
from etl.lake.input_log import ReadPart
from etl.lake.known_files import HeldFiles
from etl.lake.ledger import Ledger
from etl.lake.table_versions import LiveInputs
from etl.sources import Source, Split
from etl.sources.list_splits import list_source
from etl.sources.read_split import digest_rows
from etl.sources.split import RECORDS_MARK

_THREADS = 2  # readers of Parquet and of compressed files compute without the interpreter


def check_sources(documents: Table, inputs: LiveInputs) -> Iterator[Problem]:
    """Read all input files again, and yield those that are missing, or have other rows now.

    A file is read under the newest of its names by which it is there as it was recorded.
    """
    record = find_record(documents)
    if record is None:
        return
    source = Source(**record.canonical["source"])
    ledger = Ledger(documents.url, fingerprint="", table=documents)
    listed = _listed_files(source, ledger)

    def check(address: str, identity: int) -> str | None:
        try:
            whole = listed.get(identity)
            if whole is None:
                if any(RECORDS_MARK in file.fingerprint for file in inputs.recorded(address)):
                    return f"the index of the source does not name its input file: {address}"
                samples = partial(ledger.inputs.samples, identity)
                file, why = find_input(inputs.recorded(address), address, samples)
                if file is None:
                    return why
                whole = as_split(file, source)
            is_same = all(
                _has_rows(whole, part, source) for part in ledger.inputs.digests(identity)
            )
        except TokenlakeError as error:
            return f"its input file cannot be read: {error.where or address}: {error.what}"
        return None if is_same else f"its input file has other rows now: {whole.uri}"

    addresses = HeldFiles(documents, ledger.inputs).by_identity()
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = pool.map(check, addresses.values(), addresses)
        for address, why in zip(addresses.values(), answers, strict=True):
            if why is not None:
                yield Problem("documents", None, f"rows of {address}: {why}")


def _listed_files(source: Source, ledger: Ledger) -> dict[int, Split]:
    """Return files of the source by identity: of Delta tables and indexes, which say more than the file."""
    try:
        files = list_source(source).files
    except TokenlakeError:
        return {}
    described = (file for file in files if file.format == "delta" or file.records is not None)
    return {ledger.inputs.identity_of(file.real_uri) or 0: file for file in described}


def _has_rows(whole: Split, part: ReadPart, source: Source) -> bool:
    """Return whether a part of a file has the rows that were read from it."""
    piece = replace(whole, start=part.start, stop=part.stop, first_row=0)
    return digest_rows(piece, source) == part.rows
