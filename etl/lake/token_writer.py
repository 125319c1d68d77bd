"""Tokenize documents and write them to data files of ``tokens``."""

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.lake.stage_costs import TOKENIZE
from etl.lake.table_specs import ARCHIVED_TOKENS, TOKENS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.recipe.recipe import Recipe
from etl.stages.stage_clock import StageClock
from etl.stages.tokenize import Encoder, tokenize_and_count


class TokenWriter:
    """Tokenizes documents and writes them to ``tokens``; checks the tokenizer on the first batch."""

    def __init__(self, recipe: Recipe, key: str, clock: StageClock) -> None:
        stage = recipe.tokenize_stage
        assert stage is not None
        self._clock = clock
        self._encoder = Encoder.of(stage)
        layout = ARCHIVED_TOKENS if stage.archive else TOKENS.layout
        self._writer = DataFileWriter(recipe.table_url("tokens"), schemas.TOKENS, layout, name=key)
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
            self._writer.append(rows)

    def close(self) -> list[DataFile]:
        """Finish the data files and return them."""
        with self._clock.measure(f"{TOKENIZE}.write"):
            return self._writer.close()
