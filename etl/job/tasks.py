"""What a worker does with one unit of work: read, filter, tokenize, and write data files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.compute.unit_log import UnitLog
from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.lake.dedup_decisions import cut_rows, duplicate_rows, without_cuts
from etl.lake.stage_costs import READ, TOKENIZE, WRITE
from etl.lake.table_specs import DOCUMENTS, TEXTS, TableSpec
from etl.lake.token_writer import TokenWriter
from etl.lake.work_units import WorkPart, WorkResult, WorkUnit
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.recipe.recipe import Recipe
from etl.schemas import TableName
from etl.sources import Split
from etl.sources.content_digests import Content, RowsDigest, sample_file
from etl.sources.read_split import read_split
from etl.stages.apply import apply_and_time
from etl.stages.dedup_base import find_cutting_stage
from etl.stages.stage_clock import StageClock

_BATCH_BYTES = 16 << 20  # of text; this bounds a worker's memory, whatever the size of its input


@dataclass(frozen=True)
class ReadSplit:
    """The task that reads a split, applies the stages, and writes its documents, texts, optionally tokens."""

    recipe: Recipe
    with_tokens: bool

    def __call__(self, split: Split, key: str, tokens_key: str) -> WorkResult:
        """Run the task for one split, whose units of work in ``documents`` and ``tokens`` have these keys."""
        clock = StageClock()
        documents = _DocumentWriter(self.recipe, key, clock)
        tokens = TokenWriter(self.recipe, tokens_key, clock) if self.with_tokens else None
        batches = read_split(split, self.recipe.source, batch_bytes=_BATCH_BYTES)
        log, text_bytes = UnitLog(), 0
        rows = RowsDigest()
        for batch in clock.measure_each(READ, batches):
            rows.update(batch)
            text_bytes += batch["text"].nbytes
            kept = documents.append(batch)
            if tokens is not None:
                tokens.append(kept)
            share = text_bytes / max(split.work, 1)
            counts = documents.rows, documents.kept, text_bytes
            seconds = clock.total_seconds, clock.compile_seconds
            log.send(WorkPart(key, share, *counts, *seconds))
        with clock.measure(READ):
            sample = _sample(split.uri, split.size, split.fingerprint)
        files = documents.close()
        if tokens is not None:
            files["tokens"] = tokens.close()
        return WorkResult(
            key=key,
            source=split.source,
            content=Content(sample, rows.value()),
            rows=documents.rows,
            kept=documents.kept,
            rejected=dict(documents.rejected),
            tokens=tokens.num_tokens if tokens is not None else 0,
            special_texts=tokens.special_texts if tokens is not None else 0,
            text_bytes=text_bytes,
            files=files,
            costs=clock.seconds(),
            compile_seconds=clock.compile_seconds,
        )


@lru_cache(maxsize=64)
def _sample(uri: str, size: int, _fingerprint: str) -> str:
    """Return the sample of a file, which the pieces that one process reads have in common."""
    return sample_file(uri, size)


class _DocumentWriter:
    """Applies the stages of a recipe to batches and writes their rows to ``documents`` and ``texts``."""

    def __init__(self, recipe: Recipe, key: str, clock: StageClock) -> None:
        self._recipe, self._clock = recipe, clock
        self._documents, self._texts = (
            {verdict: self._writer(spec, key, verdict) for verdict in verdicts}
            for spec, verdicts in (
                (DOCUMENTS, schemas.VERDICTS),
                (TEXTS, schemas.VERDICTS if recipe.rejected.text else schemas.VERDICTS[:1]),
            )
        )
        self.rows = 0
        self.kept = 0
        self.rejected: Counter[str] = Counter()  # by rule

    def _writer(self, spec: TableSpec, key: str, verdict: str) -> DataFileWriter:
        url, schema = self._recipe.table_url(spec.name), spec.schema(self._recipe)
        return DataFileWriter(url, schema, spec.layout, name=key, partition={"verdict": verdict})

    def append(self, batch: pa.Table) -> pa.Table:
        """Write the documents of a batch, and return those that are kept."""
        applied = apply_and_time(batch, self._recipe.stages, rejected=self._recipe.rejected)
        self._clock.add(applied.seconds)
        is_kept = pc.equal(applied.documents["verdict"], "kept")
        kept = applied.documents.filter(is_kept)
        rejected = applied.documents.filter(pc.invert(is_kept))
        with self._clock.measure(WRITE):
            for table in (self._documents, self._texts):
                for verdict, writer in table.items():
                    writer.append(kept if verdict == "kept" else rejected)
        self.rows += batch.num_rows
        self.kept += kept.num_rows
        for count in pc.value_counts(rejected["reason"]).to_pylist():
            self.rejected[schemas.rule_of(count["values"])] += count["counts"]
        return kept

    def close(self) -> dict[TableName, list[DataFile]]:
        """Finish the data files and return them by table."""
        with self._clock.measure(WRITE):
            documents, texts = (
                [file for writer in table.values() for file in writer.close()]
                for table in (self._documents, self._texts)
            )
        assert self.rows == self.kept + self.rejected.total(), "rows are missing"
        assert self.rows == sum(file.rows for file in documents), "rows were not written"
        num_texts = self.rows if self._recipe.rejected.text else self.kept
        assert num_texts == sum(file.rows for file in texts), "texts were not written"
        return {"documents": documents, "texts": texts}


@dataclass(frozen=True)
class TokenizeUnit:
    """The task that reads a unit's kept texts, drops duplicates, cuts repeats and writes tokens."""

    recipe: Recipe

    def __call__(self, unit: WorkUnit, key: str, duplicates: Sequence[LogicalFile]) -> WorkResult:
        """Run the task for one unit, which has this key in ``tokens``.

        ``duplicates`` are the data files that can list rows of the unit.
        """
        clock = StageClock()
        dropped, cuts = self._decisions(unit, duplicates)
        tokens = TokenWriter(self.recipe, key, clock)
        url = self.recipe.table_url("texts")
        log, rows, kept, text_bytes = UnitLog(), 0, 0, 0
        for file in unit.files:
            tables = read_live_row_groups(url, file, ["id", "source", "row", "text"])
            for table in clock.measure_each(f"{TOKENIZE}.read", tables):
                is_new = ~np.isin(np.asarray(table["row"].combine_chunks()), dropped)
                new = table if is_new.all() else table.filter(pa.array(is_new))
                rows += table.num_rows
                kept += new.num_rows
                text_bytes += new["text"].nbytes
                tokens.append(new if cuts is None else self._cut(new, cuts))
                counts = rows, kept, text_bytes
                seconds = clock.total_seconds, clock.compile_seconds
                log.send(WorkPart(key, rows / unit.rows, *counts, *seconds))
        assert rows == unit.rows, "the row count differs from the log of texts"
        is_whole = all(file.vector is None for file in unit.files)
        assert rows - kept == len(dropped) or not is_whole, "a duplicate does not occur in texts"
        files: dict[TableName, list[DataFile]] = {"tokens": tokens.close()}
        return WorkResult(
            key=key,
            source=unit.source,
            rows=rows,
            kept=kept,
            duplicates=rows - kept,
            tokens=tokens.num_tokens,
            special_texts=tokens.special_texts,
            text_bytes=text_bytes,
            files=files,
            costs=clock.seconds(),
            compile_seconds=clock.compile_seconds,
        )

    def _decisions(
        self, unit: WorkUnit, duplicates: Sequence[LogicalFile]
    ) -> tuple[npt.NDArray[np.int64], pa.Table | None]:
        """Return the rows of a unit that are duplicates, and the paragraphs to cut from others."""
        if not duplicates:
            return np.empty(0, np.int64), None
        files = self.recipe.table_url("duplicates"), duplicates, unit.key
        has_cuts = find_cutting_stage(self.recipe.dedup_stages) is not None
        return duplicate_rows(*files), cut_rows(*files) if has_cuts else None

    def _cut(self, documents: pa.Table, cuts: pa.Table) -> pa.Table:
        """Return the documents without the paragraphs that are repeated from other documents."""
        stage = find_cutting_stage(self.recipe.dedup_stages)
        assert stage is not None
        return without_cuts(documents, cuts, stage)
