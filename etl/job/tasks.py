"""TODO."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.delta.data_file import DataFile, DataFileWriter
from etl.lake.dedup_decisions import cut_rows, duplicate_rows
from etl.lake.stage_costs import READ, TOKENIZE, WRITE, clock, clocked
from etl.lake.tables import ARCHIVED_TOKENS, DOCUMENTS, TOKENS
from etl.lake.work_units import WorkResult, WorkUnit
from etl.recipe.recipe import Recipe
from etl.sources import Split, read_split
from etl.stages.apply import apply
from etl.stages.dedup import find_cutting_stage
from etl.stages.document_columns import documents_schema
from etl.stages.tokenize import Encoder, tokenize

_BATCH_BYTES = 16 << 20  # of text; this bounds a worker's memory, whatever the size of its input


@dataclass(frozen=True)
class ReadSplit:
    """The task that reads a split, applies the stages, and writes its documents and optionally tokens."""

    recipe: Recipe
    with_tokens: bool

    def __call__(self, split: Split, key: str, tokens_key: str) -> str:
        """Run the task for one split and return its ``WorkResult`` as JSON."""
        result = WorkResult(key, source=split.uri)
        self._run(split, tokens_key, result)
        return result.to_json()

    def _run(self, split: Split, tokens_key: str, result: WorkResult) -> None:
        recipe = self.recipe
        schema = documents_schema(recipe.stages)
        url = recipe.table_url("documents")
        kept, rejected = (
            DataFileWriter(
                url, schema, DOCUMENTS.layout, name=result.key, partition={"verdict": verdict}
            )
            for verdict in schemas.VERDICTS
        )
        tokens = None
        if self.with_tokens and recipe.tokenize_stage is not None:
            tokens = _TokenWriter(recipe, tokens_key, result.costs)
        batches = read_split(split, recipe.source, batch_bytes=_BATCH_BYTES)
        for batch in clocked(batches, result.costs, READ):
            table = apply(batch, recipe.stages, rejected=recipe.rejected, costs=result.costs)
            result.rows += batch.num_rows
            result.text_bytes += batch["text"].nbytes
            is_kept = pc.equal(table["verdict"], "kept")
            good, bad = table.filter(is_kept), table.filter(pc.invert(is_kept))
            with clock(result.costs, WRITE):
                kept.append(good)
                rejected.append(bad)
            result.kept += good.num_rows
            for count in pc.value_counts(bad["reason"]).to_pylist():
                rule = schemas.rule_of(count["values"])
                result.rejected[rule] = result.rejected.get(rule, 0) + count["counts"]
            if tokens is not None:
                tokens.append(good)
        with clock(result.costs, WRITE):
            result.documents = kept.close() + rejected.close()
        if tokens is not None:
            result.tokens, result.token_files = tokens.close()
        assert result.rows == result.kept + sum(result.rejected.values()), "rows are missing"
        assert result.rows == sum(f.rows for f in result.documents), "rows were not written"


@dataclass(frozen=True)
class TokenizeUnit:
    """The task that reads a unit's kept documents, drops duplicates, cuts repeats and writes tokens."""

    recipe: Recipe

    def __call__(self, unit: WorkUnit, key: str, duplicates: Sequence[str]) -> str:
        """Run the task for one unit and return its ``WorkResult`` as JSON.

        ``duplicates`` are the data files that can list rows of the unit.
        """
        result = WorkResult(key, source=unit.source)
        self._run(unit, duplicates, result)
        return result.to_json()

    def _run(self, unit: WorkUnit, duplicates: Sequence[str], result: WorkResult) -> None:
        url = self.recipe.table_url("documents")
        dropped, cuts = np.empty(0, np.int64), None
        if duplicates:
            files = self.recipe.table_url("duplicates"), duplicates, unit.paths
            dropped = duplicate_rows(*files)
            stage = find_cutting_stage(self.recipe.dedup_stages)
            cuts = cut_rows(*files) if stage is not None else None
        tokens = _TokenWriter(self.recipe, result.key, result.costs)
        for path in unit.paths:
            tables = _kept_documents(storage.join(url, path))
            for table in clocked(tables, result.costs, f"{TOKENIZE}.read"):
                is_new = ~np.isin(np.asarray(table["row"].combine_chunks()), dropped)
                new = table.filter(pa.array(is_new))
                result.rows += table.num_rows
                result.kept += new.num_rows
                result.text_bytes += new["text"].nbytes
                tokens.append(new if cuts is None else self._cut(new, cuts))
        result.duplicates = result.rows - result.kept
        assert result.rows == unit.rows, "the row count differs from the log of documents"
        assert result.duplicates == len(dropped), "a duplicate does not occur in documents"
        result.tokens, result.token_files = tokens.close()

    def _cut(self, documents: pa.Table, cuts: pa.Table) -> pa.Table:
        """Return the documents without the paragraphs that are repeated from other documents."""
        stage = find_cutting_stage(self.recipe.dedup_stages)
        rows = documents["row"].combine_chunks()
        assert stage is not None
        indexes = pc.index_in(rows, cuts["row"].combine_chunks())
        text = stage.cut(documents["text"], cuts["cut"].combine_chunks().take(indexes))
        return documents.set_column(documents.column_names.index("text"), "text", text)


class _TokenWriter:
    """Tokenizes documents and writes them to ``tokens``; checks the tokenizer on the first batch."""

    def __init__(self, recipe: Recipe, key: str, costs: dict[str, float]) -> None:
        stage = recipe.tokenize_stage
        assert stage is not None
        self._costs = costs
        self._encoder = Encoder.of(stage)
        layout = ARCHIVED_TOKENS if stage.archive else TOKENS.layout
        self._writer = DataFileWriter(recipe.table_url("tokens"), schemas.TOKENS, layout, name=key)
        self._tokens = 0
        self._checked = False

    def append(self, documents: pa.Table) -> None:
        if documents.num_rows == 0:
            return
        with clock(self._costs, TOKENIZE):
            if not self._checked:
                self._encoder.check(documents)
                self._checked = True
            rows = tokenize(documents, self._encoder)
        self._tokens += int(pc.sum(rows["num_tokens"]).as_py())
        with clock(self._costs, f"{TOKENIZE}.write"):
            self._writer.append(rows)

    def close(self) -> tuple[int, list[DataFile]]:
        """Close the writer and return the number of tokens and the files."""
        with clock(self._costs, f"{TOKENIZE}.write"):
            return self._tokens, self._writer.close()


def _kept_documents(uri: str) -> Iterator[pa.Table]:
    """Yield the columns that tokens are made from, one row group (16 MB of text) at a time."""
    with storage.open_input(uri) as source:
        file = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
        names = ["id", "source", "row", "text"]
        for group in range(file.num_row_groups):  # batches must not span row groups
            yield file.read_row_group(group, columns=names, use_threads=False)
