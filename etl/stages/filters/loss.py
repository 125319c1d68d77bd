"""The Loss stage: filter documents by the loss that a training has measured."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl import storage
from etl.delta.live_rows import live_rows, read_live_rows
from etl.delta.table import Table
from etl.errors import RecipeError, TableError
from etl.stages.base import Filter, Rules, above, below
from etl.storage.file_sets import FileSet

_TABLE: Final = "losses"
_COLUMNS: Final = ["source", "row", "epoch", "num_tokens", "loss", "run"]
_loss = pl.col("loss")


class Loss(Filter):
    """Keep documents whose loss in a training is within limits; a document without a loss is kept.

    ``lake`` is a lake with a table `losses`, and ``version`` a version of that table: `etl losses` commits
    what trainings have logged, and `etl history LAKE/losses` lists the versions. The column ``loss`` is the
    mean over the tokens of the document with the same address that the training ``run`` has seen in its last
    epoch with the document, or in ``all`` epochs. Losses that are not finite do not count.

    Stages after this one, such as ``where``, can read the column ``loss``, which is null for a document
    without a loss: ``where: "loss IS NULL OR loss < 2 * lang_score"``.

    RHO-LOSS (Mindermann et al. 2022, arXiv 2206.07137) and perplexity-based pruning (Marion et al. 2023,
    arXiv 2309.04564) choose documents by losses that a smaller model has measured. There are no limits by
    default, because losses depend on the model.
    """

    kind: Literal["loss"] = "loss"
    example = "loss: {lake: web, version: 3, run: small, max: 6.5}"
    paths = ("lake",)
    thresholds = ("min", "max")
    lake: str
    """The lake whose table `losses` holds what trainings have logged."""
    version: int = Field(ge=0)
    """A version of that table."""
    run: str
    """The name of the training."""
    epochs: Literal["last", "all"] = "last"
    """Average the losses of the ``last`` epoch that has the document, or of ``all``."""
    min: float | None = None
    """The lowest mean loss to keep; null means no limit."""
    max: float | None = None
    """The highest mean loss to keep; null means no limit."""

    def columns(self) -> dict[str, str]:
        """Return the column ``loss``."""
        return {"loss": "nats per token"}

    def rules(self) -> Rules:
        """Return the rules ``loss.low`` and ``loss.high``."""
        return {"low": below(_loss, self.min), "high": above(_loss, self.max)}

    def signals(self) -> list[str]:
        """Return the address and ``loss``."""
        return ["source", "row", "loss"]

    def identity(self) -> dict[str, Any]:
        """Return the settings, with a hash of the data files of the version in place of the lake's URL.

        Data files have unique names, and never change. Raises RecipeError if the version does not exist.
        """
        paths = "\n".join(file["path"] for file in self._open().files("path"))
        return {**super().identity(), "lake": hashlib.sha256(paths.encode()).hexdigest()}

    def files(self) -> dict[str, FileSet]:
        """Return nothing: workers read the lake themselves, as they read the recipe's lake."""
        return {}

    def check(self) -> None:
        """Raise RecipeError if the table does not have the version, or the version does not have the run."""
        table = self._open()
        runs: set[str] = set()
        for file in table.files("vector"):
            rows = read_live_rows(table.url, file, ["run"])
            runs.update(rows["run"].unique().to_pylist())
            if self.run in runs:
                return
        raise RecipeError(
            f"the table has no losses of the run {self.run!r} in version {self.version}",
            where=table.url,
            hint=f"its runs are {', '.join(sorted(runs)) or 'none'}",
        )

    def measure(self, table: pa.Table) -> pa.Table:
        """Return the loss of each document, null without one."""
        rows = pl.DataFrame(table.select(["source", "row"]))
        url = storage.normalize(self.lake)
        sources = rows["source"].unique(maintain_order=True).to_list()
        losses = [_read(url, self.version, self.run, self.epochs, source) for source in sources]
        joined = rows.join(
            pl.concat(losses), on=["source", "row"], how="left", maintain_order="left"
        )
        return joined.select("loss").to_arrow()

    def _open(self) -> Table:
        return _open(storage.normalize(self.lake), self.version)


def _open(lake: str, version: int) -> Table:
    url = storage.join(lake, _TABLE)
    try:
        return Table.open(url, version)
    except TableError as error:
        hint = f"`etl losses {lake}` commits the losses that trainings have logged"
        raise RecipeError(error.what, where=error.where, hint=hint) from error


@lru_cache(maxsize=4)  # a split has one input file
def _read(lake: str, version: int, run: str, epochs: str, source: str) -> pl.DataFrame:
    """Return the loss of each document of an input file that has one."""
    table = _open(lake, version)
    parts = [pl.DataFrame(schema={"source": pl.String, "row": pl.Int64, "loss": pl.Float64})]
    rows = pl.concat(
        [part.filter(run=run, source=source) for part in _parts(table, source)] or parts
    )
    if rows.is_empty():
        return parts[0]
    rows = rows.filter(_loss.is_finite())
    if epochs == "last":
        rows = rows.filter(pl.col("epoch") == pl.col("epoch").max().over("row"))
    tokens = pl.col("num_tokens")
    return rows.group_by("source", "row").agg((_loss * tokens).sum() / tokens.sum())


def _parts(table: Table, source: str) -> Iterator[pl.DataFrame]:
    """Yield the row groups of the table that may have rows of an input file, which they are sorted by."""
    for entry in table.files("vector", "min.source", "max.source"):
        if not entry["min.source"] <= source <= entry["max.source"]:
            continue
        with live_rows(table.url, entry, _COLUMNS) as file:
            for number in range(file.num_row_groups):
                if file.may_hold(number, "source", source, source):
                    yield pl.DataFrame(file.row_group(number))
