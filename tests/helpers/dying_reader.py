"""A reader of documents that kills its worker once, in the middle of a shuffle."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile


class DieOnce:
    """Reads as ``read`` does, but kills the first worker to reach file 5; then ``marker`` exists."""

    def __init__(self, marker: Path, read: Callable[..., pd.DataFrame]) -> None:
        self._marker = marker
        self._read = read

    def __call__(self, file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
        if file.number == 5 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._read(file, reader=reader)
