"""The new data files of the units of work of a task: of one unit, or of a pack of small ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from etl import schemas
from etl.errors import LimitError
from etl.lake.stage_costs import TOKENIZE, WRITE
from etl.lake.table_specs import DOCUMENTS, TEXTS, token_layout
from etl.lake.unit_files import UnitRows, to_tag
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout
from etl.recipe.recipe import Recipe, Step
from etl.schemas import TableName
from etl.stages.stage_clock import StageClock

_MOST_BYTES: Final = 32 << 20  # that a unit of a pack holds back: its texts, and all the rest
_ONE_FILE: Final = 1 << 62


def write_cost(name: TableName) -> str:
    """Return the name of the part of the work that writes a table, as ``etl.lake.stage_costs`` has it.

    >>> write_cost("texts"), write_cost("tokens")
    ('write', 'tokenize.write')
    """
    return f"{TOKENIZE}.{WRITE}" if schemas.is_tokens(name) else WRITE


class PackFiles:
    """Data files in which the rows of units of work follow one another.

    The rows of a unit of a pack are held back until it ends, so that a unit which fails leaves none.
    """

    def __init__(self, *, is_pack: bool) -> None:
        self._is_pack = is_pack
        self._writers: dict[tuple[TableName, str], DataFileWriter] = {}
        self._units: dict[tuple[TableName, str], list[UnitRows]] = {}
        self._waiting: list[tuple[TableName, str, str, pa.Table]] = []
        self._waiting_bytes = 0

    def add_documents(self, recipe: Recipe, key: str) -> None:
        """Add the files of ``documents`` and ``texts``; ``key`` is that of the first unit."""
        kept_only = schemas.VERDICTS[:1]
        for spec, verdicts in (
            (DOCUMENTS, schemas.VERDICTS),
            (TEXTS, schemas.VERDICTS if recipe.rejected.text else kept_only),
        ):
            for verdict in verdicts:
                url, schema = recipe.table_url(spec.name), spec.schema(recipe)
                self._add(spec.name, verdict, url, schema, spec.layout, key)

    def add_tokens(self, recipe: Recipe, step: Step, key: str) -> None:
        """Add the file of a tokenizer's table; ``key`` is that of the first unit in this table."""
        layout = token_layout(recipe.tokenizers[step])
        self._add(step, "", recipe.table_url(step), schemas.TOKENS, layout, key)

    def _add(
        self, name: TableName, verdict: str, url: str, schema: pa.Schema, layout: Layout, key: str
    ) -> None:
        if self._is_pack:
            layout = replace(layout, file_bytes=_ONE_FILE)  # a pack is small
        partition = {"verdict": verdict} if verdict else None
        self._writers[name, verdict] = DataFileWriter(
            url, schema, layout, name=key, partition=partition
        )
        self._units[name, verdict] = []

    def append(self, name: TableName, verdict: str, key: str, rows: pa.Table) -> None:
        """Append rows of the unit with this key in the names of the table's files.

        Raises LimitError if the unit is too large for a pack.
        """
        if rows.num_rows == 0 or (name, verdict) not in self._writers:
            return
        if not self._is_pack:
            self._writers[name, verdict].append(rows)
            return
        self._waiting.append((name, verdict, key, rows))
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > _MOST_BYTES:
            raise LimitError("the unit of work is too large for a pack")

    def end_unit(self, clock: StageClock) -> None:
        """Write the rows of a unit that has been read completely; add the seconds to a clock."""
        for name, verdict, key, rows in self._waiting:
            with clock.measure(write_cost(name)):
                self._writers[name, verdict].append(rows)
            numbers = rows["row"]
            unit = UnitRows(
                key,
                rows["source"][0].as_py(),
                rows.num_rows,
                numbers[0].as_py(),
                numbers[-1].as_py(),
            )
            self._units[name, verdict].append(unit)
        self.drop_unit()

    def drop_unit(self) -> None:
        """Forget the rows of a unit that are held back."""
        self._waiting, self._waiting_bytes = [], 0

    def close(self, clock: StageClock) -> Mapping[TableName, Sequence[DataFile]]:
        """Finish the data files and return them by table; the files of a pack list their units.

        The seconds are added to a clock.
        """
        files: dict[TableName, list[DataFile]] = {name: [] for name, _ in self._writers}
        for (name, verdict), writer in self._writers.items():
            with clock.measure(write_cost(name)):
                written = writer.close()
            if self._is_pack:
                tag = to_tag(self._units[name, verdict])
                written = [replace(file, units=tag) for file in written]
            files[name] += written
        return files
