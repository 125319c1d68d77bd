"""A small site of overlapping runs: two or three input files of a few rows, and their lake."""

import os
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from upath import UPath

from etl.delta.table import Table
from etl.recipe.recipe import Recipe
from tests.chaos.texts import Edit, Row, Rows, grown, random_rows
from tests.helpers.corpus import write_jsonl, write_parquet
from tests.helpers.lake_rows import names, rows

_NAMES = ("a.parquet", "b.jsonl", "c.parquet", "d.jsonl")

STAGES: Mapping[str, tuple[str, ...]] = {
    "near": ("gopher_quality", "dedup_exact", "dedup_minhash"),
    "exact": ("gopher_quality", "dedup_exact"),
    "fused": ("gopher_quality",),
}
"""The stages of a recipe before its tokenizer, by the duplicates that they remove."""


FileState = tuple[str, int, int]
"""The path, the size and the time of a file."""


@dataclass
class SmallSite:
    """The input files and the lake of a case, which can be saved and restored under the same URLs."""

    folder: Path
    tokenizer: Path
    stages: str = "near"
    inputs: dict[str, Rows] = field(default_factory=dict)
    past: dict[str, list[tuple[Rows, int]]] = field(
        default_factory=dict
    )  # with the time of the file
    unfinished: set[str] = field(default_factory=set)
    """Files that were deleted when the lake did not have all rows of any of their contents."""

    sound: set[frozenset[FileState]] = field(default_factory=set)
    """States of the lake that were checked already."""

    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _saved: dict[str, tuple[dict[str, Rows], dict[str, list[tuple[Rows, int]]]]] = field(
        default_factory=dict
    )

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def recipe(self) -> Recipe:
        """A recipe with filters and tokens, in splits of two rows."""
        return Recipe(
            name="small",
            source={
                "path": str(self.raw),
                "columns": {"text": "body", "id": "doc_id", "url": "link"},
                "split_bytes": 1500,
            },
            lake=str(self.lake),
            stages=[*STAGES[self.stages], {"tokenize": str(self.tokenizer)}],
        )

    @property
    def file(self) -> Path:
        """The recipe as a file for a driver."""
        file = self.folder / f"{self.stages}.yaml"
        if not file.exists():
            file.write_text(self.recipe.to_yaml())
        return file

    @property
    def known(self) -> dict[str, Row]:
        """All rows of all contents so far, by id."""
        return {row.id: row for past in self.past.values() for rows, _ in past for row in rows}

    def state(self) -> frozenset[FileState]:
        """Return the state of all files of the lake but the leases, which say nothing of its content."""
        files = [path for path in self.lake.glob("*/**/*") if path.is_file()]
        stats = [(str(path), path.stat()) for path in files if path.parent.name != "leases"]
        return frozenset((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats)

    def clear(self) -> None:
        """Delete the input files and the lake."""
        for folder in (self.raw, self.lake):
            shutil.rmtree(folder, ignore_errors=True)
        self.raw.mkdir()
        self.inputs, self.past, self.unfinished = {}, {}, set()

    def write(self, name: str, rows: Rows) -> None:
        """Write or replace an input file; readers see the old file or the new one."""
        new = self.folder / "new"
        records = [row.record for row in rows]
        if name.endswith(".jsonl"):
            write_jsonl(UPath(new), records)
        else:
            write_parquet(UPath(new), records, group=2)
        new.replace(self.raw / name)
        self._remember(name, rows)

    def delete(self, name: str) -> None:
        """Delete an input file; its rows stay in the lake."""
        found = names(rows(str(self.lake), "documents")) if self._has_documents() else []
        ids = [str(row["id"]) for row in found if row["source"] == name]
        if ids not in ([row.id for row in content] for content, _ in self.past.get(name, ())):
            self.unfinished.add(name)
        (self.raw / name).unlink()
        del self.inputs[name]

    def edit(self, edit: Edit, rng: random.Random) -> None:
        """Change one of the input files, or add one."""
        name = rng.choice(sorted(self.inputs))
        content = f"{name[0]}{next(self._numbers)}"
        missing = [new for new in _NAMES if new not in self.past]
        if edit == "rewrite":
            self.write(name, random_rows(rng, content))
        elif edit == "grow":
            self.write(name, grown(self.inputs[name], rng, content))
        elif edit == "touch":
            self.write(name, self.inputs[name])
        elif edit == "revert":
            rows, modified = rng.choice(self.past[name])
            self.write(name, rows)
            if rng.random() < 0.5:  # a restored backup has its old time: the same fingerprint
                os.utime(self.raw / name, ns=(modified, modified))
        elif edit == "add" and missing:
            self.write(missing[0], random_rows(rng, f"{missing[0][0]}{next(self._numbers)}"))
        elif edit == "delete" and len(self.inputs) > 1:
            self.delete(name)

    def damage(self, table: str, rng: random.Random) -> bool:
        """Delete a data file of a table of the lake; return whether there was one."""
        url = str(self.lake / table)
        if not Table.exists(url):
            return False
        paths = Table.open(url).data_files()["path"].to_pylist()
        if paths:
            (self.lake / table / rng.choice(paths)).unlink()
        return bool(paths)

    def age(self, hours: float) -> None:
        """Move the times of all files of the lake to the past; no job may be running."""
        for path in self.lake.rglob("*"):
            if path.is_file():
                time = path.stat().st_mtime - hours * 3600
                os.utime(path, (time, time))

    def save(self, name: str) -> None:
        """Save the input files and the lake."""
        for part in (self.raw, self.lake):
            if part.exists():
                shutil.copytree(part, self.folder / "saved" / name / part.name)
        self._saved[name] = (dict(self.inputs), {n: list(past) for n, past in self.past.items()})

    def restore(self, name: str) -> None:
        """Restore what was saved, with the times of all files; input files that are the same stay."""
        saved = self.folder / "saved" / name
        shutil.rmtree(self.lake, ignore_errors=True)
        shutil.copytree(saved / self.lake.name, self.lake)
        inputs, past = self._saved[name]
        for file in self.raw.iterdir():
            if self.inputs.get(file.name) != inputs.get(file.name):
                file.unlink()
        for file in (saved / self.raw.name).iterdir():
            if not (self.raw / file.name).exists():
                shutil.copy2(file, self.raw)
        self.inputs, self.past = dict(inputs), {n: list(entries) for n, entries in past.items()}
        self.unfinished = set()

    def _has_documents(self) -> bool:
        return Table.exists(self.recipe.table_url("documents"))

    def _remember(self, name: str, rows: Rows) -> None:
        self.inputs[name] = rows
        modified = (self.raw / name).stat().st_mtime_ns
        self.past.setdefault(name, []).append((rows, modified))
