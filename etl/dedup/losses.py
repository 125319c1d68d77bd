"""Count what deduplication would remove of each input file, folder and language, before it is committed.

The tasks do not read texts, but of each document its size, its language, and what the new data files of
``duplicates`` say of it. An exact copy of a document in another file loses nothing, whether a site was
crawled again or two sources overlap: it counts neither as a document nor as lost. Copies within a file count,
so that a file is found whose pages all are the same notice.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from distributed import Client
from numpy.typing import NDArray

from etl import schemas, storage
from etl.compute.compute_frames import compute_frame
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile, number_files
from etl.dedup.stored_file_list import StoredFileList, store_file_list
from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.lake.row_ranges import RangeIndex
from etl.parquet.data_file import DataFile
from etl.recipe.guard import LANGUAGE, Guard, groups_of

NUM_EXAMPLES: Final = 3
"""The removed documents that show what happens to a group."""

LOST: Final = (
    pl.len().alias("documents"),
    pl.col("is_lost").sum().alias("lost"),
    pl.col("text_bytes").cast(pl.Int64).sum(),
    pl.col("lost_bytes").sum(),
)
"""The values of ``Losses``, from the columns that ``count_lost`` returns."""

_DECISIONS: Final = pa.schema(
    field
    for field in schemas.duplicates(has_references=True, has_estimates=True)
    if field.name not in ("id", "unit")
)
_LANGUAGES: Final = pa.schema([schemas.documents([]).field(n) for n in (*schemas.ADDRESS, "lang")])
_ROWS_PER_TASK = 1 << 19
_ROWS_PER_FILE = 1 << 13  # it takes as long to open the files of a unit of work as to count these
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


class Example(NamedTuple):
    """A document that would be removed or shortened, and its keeper."""

    source: str
    row: int
    kind: str
    similarity: float
    keeper_source: str
    keeper_row: int
    keeper_lake: str | None


@dataclass(slots=True)
class Losses:
    """The documents and bytes of a group, and those that would go, with the first examples."""

    documents: int = 0
    lost: int = 0
    text_bytes: int = 0
    lost_bytes: int = 0
    examples: tuple[Example, ...] = ()

    def add(self, other: "Losses") -> None:
        """Add the documents of another part of the group."""
        self.documents += other.documents
        self.lost += other.lost
        self.text_bytes += other.text_bytes
        self.lost_bytes += other.lost_bytes
        self.examples = tuple(sorted({*self.examples, *other.examples}))[:NUM_EXAMPLES]

    def without(self, others: Iterable["Losses"]) -> "Losses":
        """Return the losses of the rest of the group, without examples."""
        rest = Losses(self.documents, self.lost, self.text_bytes, self.lost_bytes)
        for other in others:
            rest.documents -= other.documents
            rest.lost -= other.lost
            rest.text_bytes -= other.text_bytes
            rest.lost_bytes -= other.lost_bytes
        return rest

    def exceed(self, max_share: float) -> bool:
        """Return whether more than a share of the documents or the bytes would go."""
        return (
            self.lost > max_share * self.documents or self.lost_bytes > max_share * self.text_bytes
        )


def find_collapsed(
    client: Client,
    files: Iterable[NumberedFile],
    reader: DocumentReader,
    written: Sequence[DataFile],
    guard: Guard,
    *,
    name: str,
) -> dict[str, Losses]:
    """Return the groups of which more would go than the guard allows (``collapsed_groups``).

    ``files`` are those whose documents are decided, and ``written`` the new data files of ``duplicates``; the
    work is done by tasks, for which the list of files is stored with the prefix ``name``.
    """
    spans = RangeIndex(map(_span, written))
    with store_file_list(number_files(files), reader.duplicates, name) as stored:
        numbers, rows = stored.chosen(lambda _: True)
        work = np.cumsum(rows + _ROWS_PER_FILE) // _ROWS_PER_TASK
        parts = np.split(numbers, 1 + np.flatnonzero(np.diff(work)))
        decisions = [_decisions_of(stored, part, spans) for part in parts]
        count = _Count(stored, reader, guard)
        frame = dd.from_map(count, parts, decisions, meta=_RESULT, label="losses")
        results = compute_frame(client, frame, label="duplicates")["result"]
    return collapsed_groups(_sum_up(map(json.loads, results)), guard)


def collapsed_groups(groups: Mapping[str, Losses], guard: Guard) -> dict[str, Losses]:
    """Return the languages, files and folders that lose too much, of folders the fewest that explain it.

    A folder is left out if it loses too much only because folders or files in it do, and these if it does so
    without them, too.
    """
    found = {
        group: losses
        for group, losses in groups.items()
        if losses.documents >= guard.min_documents and losses.exceed(guard.max_share)
    }
    inside: dict[str | None, list[str]] = defaultdict(list)  # the next ones in a group, or in none
    for group in sorted(found):
        folders = (each for each in groups_of(group.rstrip("/"))[-2::-1] if each in found)
        inside[next(folders, None)].append(group)

    def explain(group: str) -> list[str]:
        inner = inside[group]
        others = found[group].without(found[each] for each in inner)
        is_same = len(inner) == 1 and not others.documents
        if not inner or (not is_same and (not others.documents or others.exceed(guard.max_share))):
            return [group]
        return [each for within in inner for each in explain(within)]

    return {each: found[each] for outer in inside[None] for each in explain(outer)}


def _span(file: DataFile) -> tuple[tuple[str, int], tuple[str, int], LogicalFile]:
    """Return the first and the last address in a data file of ``duplicates``."""
    bounds = json.loads(file.statistics)
    low, high = (
        (bounds[which]["source"], bounds[which]["row"]) for which in ("minValues", "maxValues")
    )
    return low, high, LogicalFile(file.path)


def _decisions_of(
    stored: StoredFileList, part: NDArray[np.int64], spans: RangeIndex
) -> tuple[LogicalFile, ...]:
    """Return the data files of ``duplicates`` that may list documents of neighbouring files."""
    ends = stored.fields(np.unique(part[[0, -1]]), ["source"])["source"]
    return spans.files_between((ends.iloc[0], -1), (ends.iloc[-1], np.iinfo(np.int64).max))


def _sum_up(results: Iterable[Mapping[str, dict[str, Any]]]) -> dict[str, Losses]:
    """Return the losses of all groups, given the losses of files and languages in each part."""
    groups: dict[str, Losses] = defaultdict(Losses)
    for result in results:
        for name, values in result.items():
            examples = tuple(Example(*each) for each in values.pop("examples"))
            losses = Losses(**values, examples=examples)
            for group in [name] if name.startswith(LANGUAGE) else groups_of(name):
                groups[group].add(losses)
    return groups


@dataclass(frozen=True)
class _Count:
    """Partition task that counts what would go of the files and languages of a part."""

    files: StoredFileList
    reader: DocumentReader
    guard: Guard

    def __call__(self, part: NDArray[np.int64], decisions: Sequence[LogicalFile]) -> pd.DataFrame:
        files = self.files.take(part)
        documents = count_lost(self._documents(files), self._decisions(decisions))
        is_exempt = [self.guard.is_exempt(file.source) for file in files]
        exempt = [file.source for file, is_it in zip(files, is_exempt, strict=True) if is_it]
        documents = documents.filter(
            ~pl.col("source").is_in(exempt)
            & ~pl.col("lang").is_in(self.guard.exempt_languages).fill_null(value=False)
        )
        languages = documents.drop_nulls("lang").with_columns(lang=LANGUAGE + pl.col("lang"))
        found = {**self._losses(documents, "source"), **self._losses(languages, "lang")}
        text = json.dumps({name: asdict(losses) for name, losses in found.items()})
        return pd.DataFrame({"result": pd.Series([text], dtype=object)})

    def _documents(self, files: Sequence[NumberedFile]) -> pl.DataFrame:
        """Return the address, size and language of all documents of some files."""
        columns = [*schemas.ADDRESS, schemas.TEXT_BYTES.name]
        texts = pa.concat_tables(self.reader.read_all(file, columns) for file in files)
        url = storage.join(self.reader.lake, "documents")
        judged = dict.fromkeys(each for file in files for each in file.judged)
        languages = _read(url, judged, _LANGUAGES)
        return pl.DataFrame(texts).join(languages, on=schemas.ADDRESS, how="left")

    def _decisions(self, files: Sequence[LogicalFile]) -> pl.DataFrame:
        stored = self.reader.duplicates_schema.names
        columns = pa.schema([field for field in _DECISIONS if field.name in stored])
        missing = [pl.lit(None).alias(name) for name in _DECISIONS.names if name not in stored]
        return _read(self.reader.duplicates, files, columns).with_columns(missing)

    def _losses(self, documents: pl.DataFrame, by: str) -> dict[str, Losses]:
        """Return the losses by file or language, with examples of those that lose too much in this part.

        A group that loses too much as a whole does so in one part at least.
        """
        counts = documents.group_by(by).agg(LOST)
        found = {name: Losses(*values) for name, *values in counts.iter_rows()}
        collapsed = [name for name in found if found[name].exceed(self.guard.max_share)]
        lost = documents.filter(pl.col(by).is_in(collapsed) & (pl.col("lost_bytes") > 0))
        examples = lost.sort(schemas.ADDRESS).group_by(by).head(NUM_EXAMPLES)
        for name, *values in examples.select(
            pl.col(by).alias("group"), *Example._fields
        ).iter_rows():
            found[name].examples += (Example(*values),)
        return found


def _read(url: str, files: Iterable[LogicalFile], columns: pa.Schema) -> pl.DataFrame:
    tables = (read_live_rows(url, file, columns) for file in files)
    return pl.DataFrame(pa.concat_tables([columns.empty_table(), *tables]))


def count_lost(documents: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Return the documents that count, with their decisions and the columns ``is_lost`` and ``lost_bytes``.

    ``documents`` has the columns ``source``, ``row``, ``text_bytes`` and ``lang``, and ``decisions`` the
    columns of ``duplicates``. Of a shortened document, the share of its characters that is cut counts as
    bytes.
    """
    kind = pl.col("kind")
    is_copy = (
        kind.is_in(schemas.WHOLE)
        & (pl.col("similarity") == 1.0)
        & pl.col("is_estimate").cast(pl.Boolean).not_().fill_null(value=True)
    )
    is_elsewhere = (pl.col("keeper_source") != pl.col("source")) | pl.col(
        "keeper_lake"
    ).is_not_null()
    cut = pl.when(kind == schemas.CUT).then(pl.col("similarity")).otherwise(0.0)
    share = pl.when("is_lost").then(1.0).otherwise(cut)
    return (
        documents.join(decisions, on=schemas.ADDRESS, how="left")
        .filter((is_copy & is_elsewhere).fill_null(value=False).not_())
        .with_columns(is_lost=kind.is_in([*schemas.WHOLE, schemas.SHORT]).fill_null(value=False))
        .with_columns(lost_bytes=(pl.col("text_bytes") * share).round().cast(pl.Int64))
    )
