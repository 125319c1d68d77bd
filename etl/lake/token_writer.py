"""Tokenize documents for data files of ``tokens``, or of the table of a named tokenizer."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from etl.lake.stage_costs import TOKENIZE
from etl.stages.stage_clock import StageClock
from etl.stages.tokenize import Encoder, Tokenize, tokenize_and_count


class TokenWriter:
    """Tokenizes documents and passes their rows of ``tokens`` on; checks the tokenizer on the first batch."""

    def __init__(
        self, stage: Tokenize, write: Callable[[pa.Table], None], clock: StageClock
    ) -> None:
        self._write, self._clock = write, clock
        self._encoder = Encoder.of(stage)
        self._is_checked = False
        self.num_tokens = 0
        self.special_texts = 0

    def append(self, documents: pa.Table) -> None:
        """Tokenize and write documents."""
        if documents.num_rows == 0:
            return
        with self._clock.measure(TOKENIZE):
            if not self._is_checked:
                self._encoder.check(documents)
                self._is_checked = True
            rows, special_texts = tokenize_and_count(documents, self._encoder)
        self.special_texts += special_texts
        self.num_tokens += int(pc.sum(rows["num_tokens"]).as_py())
        with self._clock.measure(f"{TOKENIZE}.write"):
            self._write(rows)
