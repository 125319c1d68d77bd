"""Find documents without texts that no run can read again: a run died, and then their input file went."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from etl.audit.verify.file_checks import Problem
from etl.delta.table import Table
from etl.errors import TableError, TokenlakeError
from etl.lake.input_locations import find_input
from etl.lake.ledger import Ledger
from etl.lake.missing_inputs import count_without_texts, read_missing
from etl.lake.table_versions import LiveInputs
from etl.plural import many

_THREADS = 16  # they wait for storage
_HINT: Final = "put the file back and run again, or drop them: --drop-missing, --replace-changed"


def check_texts_are_there(documents: Table, texts: Table, inputs: LiveInputs) -> Iterator[Problem]:
    """Yield a problem for each input file that is gone, and whose documents have no texts.

    If the file is there, the next run reads it: that is unfinished work. Cost: a request for each file of
    which documents have no texts.
    """
    ledger = Ledger(documents.url, fingerprint="", table=documents)
    lacking = count_without_texts(ledger, Ledger(texts.url, fingerprint="", table=texts))
    unlisted = _unlisted(documents.url.rpartition("/")[0]) if lacking else set()

    def why_gone(address: str) -> str | None:
        samples = partial(ledger.inputs.samples, ledger.inputs.identity_of(address))
        try:
            _, why = find_input(inputs.recorded(address), address, samples)
        except TokenlakeError as error:
            return f"its input file cannot be read: {error.where or address}: {error.what}"
        if why is None and address in unlisted:
            why = "the last run did not find its input file in the source"
        return why

    with ThreadPoolExecutor(_THREADS) as pool:
        for (address, count), why in zip(lacking.items(), pool.map(why_gone, lacking), strict=True):
            if why is not None:
                what = f"{many(count, 'document')} of {address} without texts: {why}"
                yield Problem("documents", None, what, hint=_HINT)


def _unlisted(lake: str) -> set[str]:
    """Return the files that the last run did not find, if the record of them is sound."""
    with suppress(TableError):
        return {*read_missing(lake).incomplete}
    return set()
