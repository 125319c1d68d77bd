"""The lake whose files are damaged: several increments, and one of each kind of file and commit.

The input has files of several formats, a Delta table that its owner compacts, and a file that cannot be
read. Families of similar texts cross all increments, and later files sort before earlier ones: which
document of a family is kept depends on the order of arrival.
"""

import gzip
import json
import os
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from deltalake import DeltaTable, write_deltalake
from distributed import Client
from upath import UPath

from etl import storage
from etl.compute.listener import Progress
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.job import commit_policy
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake import releases
from etl.lake.table_specs import SPECS
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.parquet.data_file import DataFileWriter
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_parquet
from tests.helpers.listeners import Calls
from tests.helpers.strikes import replace_by_us, strike_by_us

Record = dict[str, str | None]

UNREADABLE = "broken.parquet"
"""An input file that each run tries to read, and quarantines."""

CUTTING: tuple[list[Any], ...] = (
    [],
    ["dedup_paragraphs"],
    [{"dedup_substrings": {"min_bytes": 60, "min_chars": 100}}],
)
"""What cuts repeated passages from the documents, by the seed."""

_FAMILIES = 6
_WORDS = 150  # one other word among them leaves a similarity of 0.93
_NOTICE = "This notice ends many of the pages, and the readers of the pages know that they have it."
_DAY = 86_400
_LONG_AGO = 1_600_000_000


@dataclass
class Lakes:
    """The lakes of one history, by name, and the recipe that made them all.

    ``complete`` has the whole history. ``reading`` and ``between`` are what a kill of its first run leaves
    while documents are read, and before the first tokens. ``older`` is a copy from before the last runs.
    """

    recipe: Recipe
    folder: Path
    live_leases: set[str] = field(default_factory=set)

    def folder_of(self, name: str) -> Path:
        return self.folder / name

    def recipe_of(self, lake: Path) -> Recipe:
        return self.recipe.model_copy(update={"lake": str(lake)})

    def move_input(self, folder: Path, lake: Path) -> Recipe:
        """Copy all input files but the unreadable one; return the recipe of a lake that reads the copies."""
        raw = self.folder / "raw"
        shutil.copytree(raw, folder, ignore=shutil.ignore_patterns(UNREADABLE))
        paths = (str(folder), str(raw / UNREADABLE), str(self.folder / "table"))
        source = self.recipe.source.model_copy(update={"path": paths})
        return self.recipe.model_copy(update={"lake": str(lake), "source": source})


def make_lakes(folder: Path, client: Client, tokenizer: Path, *, cutting: Sequence[Any]) -> Lakes:
    """Make the lakes of a history; ``cutting`` has the stage that cuts repeated passages, or none."""
    lakes = Lakes(_recipe(folder, tokenizer, cutting), folder)
    _make_complete(lakes, client)
    return lakes


def make_at_once(lakes: Lakes, client: Client) -> None:
    """Make the lake ``at_once`` from all input files in a single run."""
    recipe = lakes.recipe_of(lakes.folder_of("at_once"))
    run(recipe, cluster=client)
    shuffle(recipe.lake, cluster=client)
    optimize(recipe.lake)
    _write_checkpoints(recipe)


def _make_complete(lakes: Lakes, client: Client) -> None:
    recipe, complete = lakes.recipe, lakes.folder_of("complete")
    kills = _Kills(lakes)
    for increment in (1, 2, 3, 4):
        _write_increment(lakes.folder, increment)
        kills.increment = increment
        with pytest.MonkeyPatch.context() as patch:
            if increment == 1:  # a commit for each unit of work
                patch.setattr(commit_policy, "_MOST_RESULTS", 1)
            run(recipe, cluster=client, listener=Calls(progress=kills.observe))
        if increment == 1:
            shuffle(recipe.lake, cluster=client)
            _write_checkpoints(recipe)
        elif increment == 2:
            optimize(recipe.lake)
            shuffle(recipe.lake, cluster=client)
            _make_older(complete, days=2)
            vacuum(recipe.lake, retain=timedelta(days=1), delete=True)
            releases.create_release(recipe.lake, "first")
            shutil.copytree(complete, lakes.folder_of("older"))
        elif increment == 3:
            _repair_one_file(recipe, client)
            shuffle(recipe.lake, cluster=client)
            optimize(recipe.lake)
            _strike_a_row(recipe)
            _write_checkpoints(recipe)
    shuffle(recipe.lake, cluster=client)
    _strike_a_row(recipe)
    tokens = Table.open(recipe.table_url("tokens")).data_files()["path"].to_pylist()[0]
    orphan = complete / "tokens" / f"{tokens[:32]}-0123456789ab-0.parquet"
    shutil.copy(complete / "tokens" / tokens, orphan)
    kills.write_leases()


def _repair_one_file(recipe: Recipe, client: Client) -> None:
    """Lose a data file of the newest increment, and repair the lake, which starts an epoch."""
    documents = Table.open(recipe.table_url("documents"))
    path = next(c.add for c in reversed(list(documents.commits())) if c.add)[0].path
    (storage.local_path(documents.url) / path).unlink()
    assert repair(recipe.lake, drop=True).sources
    run(recipe, cluster=client)


def _strike_a_row(recipe: Recipe) -> None:
    """Write a data file of shuffled tokens again with one row more, and strike that row."""
    url = recipe.table_url("tokens_shuffled")
    table = Table.open(url)
    file = next(file for file in table.files("vector") if file["vector"] is None)
    rows = read_live_rows(url, file, table.schema)
    name = re.sub(r"-[0-9a-f]{12}-\d+\.parquet$", "", file["path"])
    writer = DataFileWriter(table.url, table.schema, SPECS["tokens_shuffled"].layout, name=name)
    writer.append(pa.concat_tables([rows, rows.slice(0, 1)]))
    (longer,) = writer.close()
    replace_by_us(table.url, [longer], [file["path"]])
    strike_by_us(table.url, {longer.path: [rows.num_rows]})
    replace_by_us(table.url, [], [])  # without the newest commit, the row is struck all the same


def _recipe(folder: Path, tokenizer: Path, cutting: Sequence[Any]) -> Recipe:
    return Recipe(
        name="history",
        source={
            "path": [str(folder / "raw"), str(folder / "table")],
            "columns": {"text": "body", "id": "doc_id"},
            "split_bytes": 4096,
        },
        lake=str(folder / "complete"),
        stages=[
            "gopher_quality",
            "dedup_exact",
            "dedup_minhash",
            *cutting,
            {"tokenize": str(tokenizer)},
        ],
    )


def _write_checkpoints(recipe: Recipe) -> None:
    for name in SPECS:
        if Table.exists(url := storage.join(recipe.lake, name)):
            Table.open(url).checkpoint()


def _make_older(folder: Path, *, days: int) -> None:
    """Move the times of all files to the past, so that a vacuum may delete those it does not need."""
    for path in folder.rglob("*"):
        time = path.stat().st_mtime - days * _DAY
        os.utime(path, (time, time))


def _records(increment: int, part: int, count: int) -> list[Record]:
    """Return records with texts of all families, some of them with a notice that others have, too."""
    rng = random.Random(f"{increment}.{part}")
    rows: list[Record] = []
    for number in range(count):
        text = _text(
            rng.randrange(_FAMILIES), rng.randrange(2), own=rng.random() < 0.3 and rng.random()
        )
        if rng.random() < 0.3:
            text = f"{text}\n\n{_NOTICE}"
        if rng.random() < 0.15:
            text = "too short to keep"
        rows.append({"doc_id": f"{increment}.{part}.{number}", "body": text})
    return rows


def _text(family: int, variant: int, own: float) -> str:
    if own:
        return prose(int(own * 1e9), _WORDS)
    words = prose(family, _WORDS).split()
    if variant:
        words[_WORDS // 2] = "variant"
    return " ".join(words)


def _write_increment(folder: Path, increment: int) -> None:
    """Write the input files of an increment; files of later increments sort before files of earlier ones."""
    raw, table = folder / "raw", folder / "table"
    raw.mkdir(exist_ok=True)
    if increment == 1:
        _write_parquet(raw / "m.parquet", _records(1, 0, 8))
        lines = "".join(json.dumps(row) + "\n" for row in _records(1, 1, 5))
        (raw / "n.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
        (raw / UNREADABLE).write_bytes(b"PAR1 not a parquet file PAR1")
        for part in (2, 3):
            write_deltalake(str(table), _arrow(_records(1, part, 3)), mode="append")
    elif increment == 2:
        (raw / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _records(2, 0, 5)))
        DeltaTable(str(table)).optimize.compact()
        write_deltalake(str(table), _arrow(_records(2, 1, 3)), mode="append")
    elif increment == 3:
        _write_parquet(raw / "a.parquet", _records(3, 0, 6))
    else:
        pa_csv.write_csv(_arrow(_records(4, 0, 5)), raw / "b.csv")
        _write_parquet(raw / "c.parquet", _records(4, 1, 4))


def _write_parquet(path: Path, rows: list[Record]) -> None:
    write_parquet(UPath(path), [{**row, "link": None} for row in rows], group=2)


def _arrow(rows: list[Record]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema({"doc_id": pa.string(), "body": pa.string()}))


@dataclass
class _Kills:
    """What a kill leaves: copies of a lake in the middle of its first run, and leases."""

    lakes: Lakes
    increment: int = 0
    leases: dict[str, bytes] = field(default_factory=dict)  # of the first and the last run

    def observe(self, progress: Progress) -> None:
        """Copy the lake while documents are read, and when they are deduplicated but have no tokens."""
        lake = self.lakes.folder_of("complete")
        if self.increment in (1, 4):
            self.leases |= {path.name: path.read_bytes() for path in lake.glob("leases/*")}
        if self.increment == 1 and progress.step == "documents" and progress.done == 3:
            self._copy(lake, "reading")
        elif self.increment == 1 and progress.step == "tokens":
            self._copy(lake, "between")

    def write_leases(self) -> None:
        """Write the lease of the first run, which has expired, and that of the last, which is alive."""
        (dead, first), *_, (live, last) = self.leases.items()
        folder = self.lakes.folder_of("complete") / "leases"
        (folder / dead).write_bytes(first)
        os.utime(folder / dead, (_LONG_AGO, _LONG_AGO))
        (folder / live).write_bytes(last)
        self.lakes.live_leases.add(live)

    def _copy(self, lake: Path, name: str) -> None:
        if not self.lakes.folder_of(name).exists():
            shutil.copytree(lake, self.lakes.folder_of(name))
