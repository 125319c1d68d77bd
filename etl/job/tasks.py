"""What a worker does with units of work: read, filter, tokenize, and write data files."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.compute.unit_log import UnitLog
from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.errors import ClusterError, RecipeError, WriteError
from etl.job.pack_files import PackFiles, write_cost
from etl.lake.dedup_decisions import cut_rows, duplicate_rows, without_cuts
from etl.lake.stage_costs import READ, TOKENIZE
from etl.lake.token_writer import TokenWriter
from etl.lake.work_units import WorkPart, WorkResult, WorkUnit
from etl.recipe.recipe import Recipe, Step
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
    tokens: Step | None = None  # the table of a tokenizer

    def __call__(self, *pack: tuple[Split, str, str]) -> list[WorkResult | None]:
        """Run the task for splits, each with its keys in ``documents`` and the table of the tokenizer.

        In a pack, a split that fails has no result and leaves no rows: it must be read again alone.
        """
        files = PackFiles(is_pack=len(pack) > 1)
        files.add_documents(self.recipe, pack[0][1])
        if self.tokens is not None:
            files.add_tokens(self.recipe, self.tokens, pack[0][2])
        return _do_pack(self._read, pack, files, self.recipe)

    def _read(self, files: PackFiles, split: Split, key: str, tokens_key: str) -> WorkResult:
        clock, log = StageClock(), UnitLog()
        documents = _DocumentWriter(self.recipe, key, files, clock)
        tokens = None
        if self.tokens is not None:
            write_tokens = partial(files.append, self.tokens, "", tokens_key)
            tokens = TokenWriter(self.recipe.tokenizers[self.tokens], write_tokens, clock)
        batches = read_split(split, self.recipe.source, batch_bytes=_BATCH_BYTES)
        text_bytes = 0
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
        assert documents.rows == documents.kept + documents.rejected.total(), "rows are missing"
        files.end_unit(clock)
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
            costs=clock.seconds(),
            compile_seconds=clock.compile_seconds,
        )


def _do_pack(
    do: Callable[..., WorkResult], pack: Sequence[tuple[Any, ...]], files: PackFiles, recipe: Recipe
) -> list[WorkResult | None]:
    """Do each unit of a pack, given by its arguments, and return the results with the data files.

    In a pack of several, a unit that fails has no result and leaves no rows: it must be done again alone.
    """
    results: list[WorkResult | None] = []
    for arguments in pack:
        try:
            results.append(do(files, *arguments))
        except (RecipeError, WriteError, ClusterError):
            raise
        except Exception:
            if len(pack) == 1:
                raise
            files.drop_unit()
            results.append(None)
    return _with_files(results, files, recipe)


def _with_files(
    results: list[WorkResult | None], files: PackFiles, recipe: Recipe
) -> list[WorkResult | None]:
    """Return results with their data files, which the first one has that did not fail."""
    done = [result for result in results if result is not None]
    if not done:
        return results
    clock = StageClock()
    written = files.close(clock)
    rows, kept = sum(result.rows for result in done), sum(result.kept for result in done)
    expected = {
        "documents": rows,
        "texts": rows if recipe.rejected.text else kept,
        **dict.fromkeys(recipe.tokenizers, kept),
    }
    for name, of_table in written.items():
        assert sum(file.rows for file in of_table) == expected[name], f"{name} were not written"
    clock.add(done[0].costs)
    first = replace(done[0], files=written, costs=clock.seconds())
    pack = tuple(result.key for result in done) if len(done) > 1 else ()
    packed = (first if result is done[0] else result for result in results)
    return [result and replace(result, pack=pack) for result in packed]


@lru_cache(maxsize=64)
def _sample(uri: str, size: int, _fingerprint: str) -> str:
    """Return the sample of a file, which the pieces that one process reads have in common."""
    return sample_file(uri, size)


class _DocumentWriter:
    """Applies the stages of a recipe to batches and writes their rows to ``documents`` and ``texts``."""

    def __init__(self, recipe: Recipe, key: str, files: PackFiles, clock: StageClock) -> None:
        self._recipe, self._key, self._files, self._clock = recipe, key, files, clock
        self.rows = 0
        self.kept = 0
        self.rejected: Counter[str] = Counter()  # by rule

    def append(self, batch: pa.Table) -> pa.Table:
        """Write the documents of a batch, and return those that are kept."""
        applied = apply_and_time(batch, self._recipe.stages, rejected=self._recipe.rejected)
        self._clock.add(applied.seconds)
        is_kept = pc.equal(applied.documents["verdict"], "kept")
        kept = applied.documents.filter(is_kept)
        rejected = applied.documents.filter(pc.invert(is_kept))
        with self._clock.measure(write_cost("documents")):
            for verdict, rows in (("kept", kept), ("rejected", rejected)):
                for name in ("documents", "texts"):
                    self._files.append(name, verdict, self._key, rows)
        self.rows += batch.num_rows
        self.kept += kept.num_rows
        for count in pc.value_counts(rejected["reason"]).to_pylist():
            self.rejected[schemas.rule_of(count["values"])] += count["counts"]
        return kept


@dataclass(frozen=True)
class TokenizeUnit:
    """The task that reads a unit's kept texts, drops duplicates, cuts repeats and writes tokens."""

    recipe: Recipe
    table: Step  # of the tokenizer

    def __call__(
        self, *pack: tuple[WorkUnit, str, Sequence[LogicalFile]]
    ) -> list[WorkResult | None]:
        """Run the task for units, each with its key in the table and the files that can list its duplicates.

        In a pack, a unit that fails has no result and leaves no rows: it must be done again alone.
        """
        files = PackFiles(is_pack=len(pack) > 1)
        files.add_tokens(self.recipe, self.table, pack[0][1])
        return _do_pack(self._tokenize, pack, files, self.recipe)

    def _tokenize(
        self, files: PackFiles, unit: WorkUnit, key: str, duplicates: Sequence[LogicalFile]
    ) -> WorkResult:
        clock = StageClock()
        dropped, cuts = self._decisions(unit, duplicates)
        write = partial(files.append, self.table, "", key)
        tokens = TokenWriter(self.recipe.tokenizers[self.table], write, clock)
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
        files.end_unit(clock)
        return WorkResult(
            key=key,
            source=unit.source,
            rows=rows,
            kept=kept,
            duplicates=rows - kept,
            tokens=tokens.num_tokens,
            special_texts=tokens.special_texts,
            text_bytes=text_bytes,
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
