"""A table to which random changes add rows and in which they strike rows, and the rows of each version."""

import os
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from upath import UPath

from etl.delta.table import Table
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout
from tests.helpers.delta_queries import Answers, answer_from_arrow

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("verdict", pa.string(), nullable=False),
    ]
)
LAYOUT = Layout(
    partition_by=("verdict",), statistics=("number",), bulk="text", row_group_bytes=100_000
)
LARGE = (100_000, 70_000)
"""The rows of two files: their vectors have two containers, which are bitmaps if many rows are struck."""

SMALL = (10, 500, 4000, 500, 1, 90)
TEXTS = np.array(["", "a", "null", None, "é", "e\u0301", "😀😀", "z" * 20, "a'b", "文章"], object)
CHECKPOINT = 11
PLAIN = 2
"""The last version before the first strike."""


class Version(NamedTuple):
    """What the queries of a version return, and what they would return if no row was struck."""

    live: Answers
    physical: Answers


class Chain:
    """A table and a naive model of it: the rows of each data file, and which of them are struck."""

    def __init__(self, place: UPath, seed: int) -> None:
        self.versions: dict[int, Version] = {}
        self._random = np.random.default_rng(seed)
        self._rows: dict[str, pa.Table] = {}
        self._struck: dict[str, np.ndarray] = {}  # a bool for each row
        self._next_number = 0
        self.table = Table.create(str(place), SCHEMA, LAYOUT)
        self._commit({}, add=[self._write(size) for size in (*LARGE, *SMALL)])

    def change_twenty_times(self) -> None:
        """Add rows, strike some, make more changes in a random order, and write a checkpoint among them."""
        self.add()
        self.strike()
        changes = [
            *[self.strike] * 3,
            *[partial(self.strike, share=0.3)] * 3,
            *[self.strike_whole_files] * 2,
            *[self.restore] * 4,
            *[self.remove] * 2,
            *[self.add] * 1,
            *[self.change_at_once] * 3,
        ]
        for index in self._random.permutation(len(changes)):
            changes[index]()
            if self.table.version == CHECKPOINT:
                self.table = self.table.checkpoint()

    def add(self) -> None:
        """Add a data file."""
        self._commit({}, add=[self._write(int(self._random.integers(1, 3000)))])

    def strike(self, share: float = 0.01) -> None:
        """Strike a share of the rows of some files, among them the smallest and the largest number."""
        first, *_, last = self._rows
        paths = [first, last, *self._choose([*self._rows], 3)]
        masks = {path: self._struck[path] | self._mask(path, share) for path in paths}
        for mask in masks.values():
            mask[[0, -1]] = True
        self._commit(masks)

    def strike_whole_files(self) -> None:
        """Strike all rows of two files."""
        self._commit({path: self._mask(path, 1) for path in self._choose(self._small(), 2)})

    def restore(self) -> None:
        """Restore half of the struck rows of some files, and all of another."""
        struck = [path for path, mask in self._struck.items() if mask.any()]
        first, *others = self._choose(struck, 3) or [self._large()]
        masks = {path: self._struck[path] & self._mask(path, 0.5) for path in others}
        self._commit({first: self._mask(first, 0), **masks})

    def remove(self) -> None:
        """Remove a file, with its vector if it has one."""
        self._commit({}, remove=self._choose(self._small(), 1))

    def change_at_once(self) -> None:
        """Strike, restore, remove and add in one commit."""
        large = self._large()
        removed, whole, restored = self._choose(self._small(), 3)
        masks = {
            large: self._struck[large] | self._mask(large, 0.05),
            whole: self._mask(whole, 1),
            restored: self._struck[restored] & self._mask(restored, 0.5),
        }
        self._commit(masks, add=[self._write(700), self._write(1)], remove=[removed])

    def _large(self) -> str:
        """Return the large file with the most live rows."""
        return max(self._struck, key=lambda path: int((~self._struck[path]).sum()))

    def _small(self) -> list[str]:
        return [path for path, rows in self._rows.items() if rows.num_rows not in LARGE]

    def _choose(self, paths: list[str], count: int) -> list[str]:
        return [str(path) for path in self._random.permutation(paths)[:count]]

    def _mask(self, path: str, share: float) -> np.ndarray:
        return np.asarray(self._random.random(len(self._struck[path])) < share)

    def _write(self, count: int) -> DataFile:
        numbers = np.arange(self._next_number, self._next_number + count)
        self._next_number += count
        verdict = str(self._random.choice(["kept", "rejected"]))
        texts = self._random.choice(TEXTS, count)
        rows = pa.table([numbers, pa.array(texts), [verdict] * count], schema=SCHEMA)
        writer = DataFileWriter(
            self.table.url, SCHEMA, LAYOUT, name="f", partition={"verdict": verdict}
        )
        writer.append(rows)
        (file,) = writer.close()
        self._rows[file.path], self._struck[file.path] = rows, np.zeros(count, bool)
        return file

    def _commit(
        self,
        masks: Mapping[str, np.ndarray],
        add: Iterable[DataFile] = (),
        remove: Iterable[str] = (),
    ) -> None:
        """Commit which rows of some files are struck from now on, and files that are added or removed."""
        struck = self.table.strike({path: np.flatnonzero(mask) for path, mask in masks.items()})
        self._struck |= masks
        for path in remove:
            del self._rows[path], self._struck[path]
        self.table = self.table.commit([*struck, *add], remove=[*masks, *remove], transactions={})
        self.versions[self.table.version] = Version(
            answer_from_arrow(self.live_rows()),
            answer_from_arrow(pa.concat_tables(self._rows.values())),
        )

    def live_rows(self) -> pa.Table:
        """Return the rows of the newest version."""
        masks = self._struck
        return pa.concat_tables(
            rows.filter(pa.array(~masks[path])) for path, rows in self._rows.items()
        )


def link_versions(table: Path, versions: Iterable[int], folder: Path) -> list[Path]:
    """Return tables whose newest versions are the given versions of a table, with links to its files."""
    linked = [folder / str(version) for version in versions]
    for version, target in zip(versions, linked, strict=True):
        shutil.copytree(table, target, copy_function=os.link)
        for file in (target / "_delta_log").iterdir():
            number = file.name[:20]
            if (number.isdigit() and int(number) > version) or not number.isdigit():
                file.unlink()
    return linked


def write_struck_lake(folder: UPath) -> None:
    """Write ``texts`` and ``documents`` of a lake, with other texts struck in version 3 than in version 4."""
    layout = Layout(partition_by=("verdict",), statistics=("row",))
    tables = {}
    for name, column in {"documents": "num_words", "texts": "text"}.items():
        content = pa.array([400, 600, 800] if column == "num_words" else ["a", "b", "c"])
        address = [("id", pa.string()), ("source", pa.string()), ("row", pa.int64())]
        schema = pa.schema([*address, (column, content.type), ("verdict", pa.string())])
        table = Table.create(str(folder / name), schema, layout)
        for source, verdict in (("a", "kept"), ("b", "rejected")):
            writer = DataFileWriter(
                table.url, schema, layout, name=source, partition={"verdict": verdict}
            )
            ids = [f"{source}{row}" for row in range(3)]
            writer.append(pa.table([ids, [source] * 3, range(3), content], names=schema.names[:-1]))
            table = table.commit(writer.close(), transactions={})
        tables[name] = table
    texts = tables["texts"]
    first = next(path for file in texts.files("path") if "kept" in (path := str(file["path"])))
    for row in (0, 1):
        files = texts.strike({first: [row]})
        texts = texts.commit(files, remove=[first], transactions={})
