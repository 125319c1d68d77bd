"""The base classes of stages: Stage, Filter and Transform; what is stored of rejected documents."""

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Self, get_args

import polars as pl
import pyarrow as pa

from etl.errors import StorageError
from etl.settings_files.settings import Settings
from etl.storage.file_sets import FileSet, describe_path

Phase = Literal["documents", "dedup", "tokens"]
"""When a stage runs: on each batch of documents, on all documents together, on the documents that remain."""

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
"""The phases in the order of a recipe."""

Rules = dict[str, pl.Expr]
"""Rule name -> a boolean expression over signals; the first rule that holds rejects the document."""

Limit = float | pl.Expr | None
"""A limit for a signal: a number or an expression over columns; None and null mean no limit."""


def below(signal: pl.Expr, limit: Limit) -> pl.Expr:
    """Return the rule that a signal is less than a limit; with None the rule never holds."""
    return signal < (limit if isinstance(limit, pl.Expr) else pl.lit(limit))


def above(signal: pl.Expr, limit: Limit) -> pl.Expr:
    """Return the rule that a signal is more than a limit; with None the rule never holds."""
    return signal > (limit if isinstance(limit, pl.Expr) else pl.lit(limit))


def map_strings(function: Callable[[str], Any], value: Any) -> Any:
    """Apply a function to a path, a list of paths, or a mapping to paths; leave other values.

    >>> map_strings(str.upper, {"a": ("b", None)})
    {'a': ('B', None)}
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, list | tuple):
        return tuple(map_strings(function, each) for each in value)
    if isinstance(value, Mapping):
        return {name: map_strings(function, each) for name, each in value.items()}
    return function(value) if isinstance(value, str) else value


def _columns_read(rules: Rules) -> list[str]:
    """Return the columns that rules read."""
    return list(dict.fromkeys(n for rule in rules.values() for n in rule.meta.root_names()))


class Stage(Settings):
    """One step of a recipe."""

    kind: str
    phase: ClassVar[Phase] = "documents"
    example: ClassVar[str] = ""  # an entry of a recipe as YAML; empty if the kind alone is one
    shorthand: ClassVar[str | None] = None  # the field that a bare value in a recipe sets
    paths: ClassVar[
        tuple[str, ...]
    ] = ()  # the fields that hold a path or URL, their defaults included
    costly: ClassVar[bool] = False  # if so, documents that are already rejected are skipped
    # Fields that only rules() reads. Set by stages that compute signals or rewrite text; in other
    # stages every field is a threshold.
    thresholds: ClassVar[tuple[str, ...]] = ()

    def columns(self) -> dict[str, str]:
        """Return the stage's own signals (float64) and their units; names begin with its kind."""
        return {}

    def rules(self) -> Rules:
        """Return the rules in order; the first that holds rejects with the reason ``kind.rule``."""
        return {}

    def signals(self) -> list[str]:
        """Return the columns that the stage reads, by default the columns of its rules."""
        return _columns_read(self.rules())

    def reasons(self, table: pa.Table) -> pa.Array:
        """Return for each row null (kept) or ``kind.rule`` of the first rule that holds.

        The table has the columns that the rules read. A rule that is null does not reject.
        """
        rules = self.rules()
        if not rules:
            return pa.nulls(table.num_rows, pa.string())
        verdict = pl.coalesce(
            [pl.when(rule).then(pl.lit(f"{self.kind}.{name}")) for name, rule in rules.items()]
        ).cast(pl.String)
        frame = pl.DataFrame(table.select(_columns_read(rules)))
        column = frame.select(reason=verdict)["reason"].to_arrow()
        return column.cast(pa.string())

    def sees_kept_only(self) -> bool:
        """Return whether the stage skips documents that an earlier stage has rejected.

        It does if it is costly, or if it reads the text and has no columns: such a stage stores no signal
        that other thresholds could be tried on.
        """
        return self.costly or (not self.columns() and "text" in self.signals())

    def check(self) -> None:
        """Raise an error that the user can fix, such as a missing file, function or label, before the run."""

    def identity(self) -> dict[str, Any]:
        """Return the values that determine the result, for the fingerprint; a file counts by its content."""
        return self.model_dump(mode="json")

    def skipped_items(self) -> dict[str, int]:
        """Return how many items of its files the stage leaves out, by set and reason."""
        return {}

    def unreadable_files(self) -> list[StorageError]:
        """Return why files cannot be read that the stage leaves out of a folder or glob."""
        return []

    def user_code(self) -> str | None:
        """Return the user's own code that the stage runs, as ``module:function of FILE``, or None."""
        return None

    def files(self) -> dict[str, FileSet]:
        """Return the files that the stage reads, by the path in its settings that names them.

        Raises RecipeError if a file does not exist.
        """
        paths: list[str] = []
        for name in self.paths:
            map_strings(paths.append, getattr(self, name))
        return {path: describe_path(path) for path in paths}

    def with_paths(self, paths: Mapping[str, str]) -> Self:
        """Return the stage with other paths in place of some in its settings."""
        mapped = {
            name: map_strings(lambda path: paths.get(path, path), getattr(self, name))
            for name in self.paths
        }
        return self.model_copy(update=mapped)


class Filter(Stage):
    """A stage that keeps or rejects documents and does not change them."""

    def measure(self, table: pa.Table) -> pa.Table:
        """Compute the stage's own signals for each row: the columns of ``columns()``, null where unknown.

        ``table`` has those columns of ``signals()`` that are already computed.
        """
        raise NotImplementedError


class Transform(Stage):
    """A stage that rewrites documents; signals needed after it are computed again.

    Its rules read its own signals and judge the rewritten document.
    """

    # If so, and the table has the counts of words of each line (``WORDS_OF_LINES``), apply() adds the
    # counts of words of the rewritten text (``WORDS_OF_TEXT``).
    counts_words: ClassVar[bool] = False
    # If so, the table has the column ``media_type`` of ``schemas.RAW``.
    reads_media_type: ClassVar[bool] = False

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the same rows with their text rewritten and the columns of ``columns()`` filled."""
        raise NotImplementedError


class Rejected(Settings):
    """What the table stores about rejected documents besides their address and reason.

    ``signals``: all signals, also of stages after the stage that rejected the document. Without them a
    run is faster, but ``etl tune`` cannot evaluate these documents. ``text``: the text as it was before
    the stage that rejected the document.
    """

    signals: bool = True
    """Whether to store all signals of rejected documents, which ``etl tune`` needs; without them,
    a run is faster."""
    text: bool = False
    """Whether to store the text of rejected documents; ``etl plan`` says how much storage that takes."""
