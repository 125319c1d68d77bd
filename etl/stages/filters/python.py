"""Keep what a Python function of the user's own keeps, or scores well."""

import difflib
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from etl.errors import RecipeError, StageError
from etl.kernels.bytes.utf8 import one_chunk
from etl.stages.base import Filter, Rules, above, below

Verdict = bool | str | None

_A_SCORE = "return a number, or None"
_A_VERDICT = "return True to keep, or False or a reason (a string) to reject"


class Python(Filter):
    """Keep documents by a function ``module:function`` over the table, or over one document at a time.

    The table is a ``pyarrow.Table`` of the documents still kept, with the columns of ``documents`` up to
    ``reason``; signals that no stage has asked for so far are null. The function returns a value per
    row: True or null keeps, False rejects with the reason ``python.<name>``, a string rejects with
    ``python.<string>``. Per document it takes a dict of the columns and returns one such value; that
    costs about 10 us a document, mostly for the dict, and what the function takes.

    With ``min_score`` or ``max_score`` the function returns a number instead, which is stored as column
    ``python_<name>``; too small a one rejects as ``python.<name>_low``, too large a one as
    ``python.<name>_high``, and null or NaN keeps. With ``sees: all`` rejected documents get a score, too.
    """

    kind: Literal["python"] = "python"
    shorthand = "call"
    paths = ("folder",)
    thresholds = ("min_score", "max_score")
    call: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    per: Literal["table", "document"] = "table"
    name: str | None = Field(default=None, min_length=1)  # the function's, unless given
    folder: str | None = None  # where modules are looked up first; None: the working folder
    min_score: float | None = Field(default=None, allow_inf_nan=False)  # both limits are kept
    max_score: float | None = Field(default=None, allow_inf_nan=False)
    sees: Literal["kept", "all"] = "kept"  # all: a score for what is rejected already, too

    @property
    def costly(self) -> bool:  # type: ignore[override]
        """Whether it sees only what no filter before it has rejected."""
        return self.sees == "kept"

    @model_validator(mode="after")
    def _check_score(self) -> Self:
        if self.sees == "all" and not self._has_score:
            raise ValueError("`sees: all` is for a score: set min_score or max_score")
        if self._has_score and not re.fullmatch(r"[A-Za-z_]\w*", self._label, re.ASCII):
            raise ValueError(f"the name of a score is a column's: letters, not {self._label!r}")
        return self

    @property
    def _label(self) -> str:
        return self.name or self.call.partition(":")[2]

    @property
    def _has_score(self) -> bool:
        return self.min_score is not None or self.max_score is not None

    def columns(self) -> dict[str, str]:
        """``python_<name>``, if the function gives a score."""
        return {f"{self.kind}_{self._label}": "score"} if self._has_score else {}

    def rules(self) -> Rules:
        """``python.<name>_low`` and ``python.<name>_high``, if the function gives a score."""
        found: Rules = {}
        for column in self.columns():
            found[f"{self._label}_low"] = below(pl.col(column), self.min_score)
            found[f"{self._label}_high"] = above(pl.col(column), self.max_score)
        return found

    def signals(self) -> list[str]:
        """None by name: the function sees every column that is there."""
        return []

    def identity(self) -> dict[str, Any]:
        """What is called, and the sha256 of its module's file; not where the file lies.

        Raises RecipeError if there is no such module.
        """
        found = {name: value for name, value in super().identity().items() if name != "folder"}
        return {**found, "sha256": self._file()[1]}

    def file(self) -> Path:
        """The file whose code is run; raises RecipeError if there is no such module."""
        return Path(str(self._file()[0].origin))

    def check(self) -> None:
        """Load the function once."""
        self.load()

    def load(self) -> Callable[[Any], Any]:
        """The function; raises RecipeError if its module fails to import, or does not have it."""
        name, _, function = self.call.partition(":")
        spec, sha256 = self._file()
        module = _import(name, str(spec.origin), sha256, self._folder())
        found: Callable[[Any], Any] | None = getattr(module, function, None)
        if not callable(found):
            known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
            near = difflib.get_close_matches(function, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise RecipeError(f"no function {function!r}", where=str(spec.origin), hint=hint)
        return found

    def measure(self, table: pa.Table) -> pa.Table:
        """The score of each row, float64; null where the function gives null or NaN.

        Raises StageError if the function returns anything but a number per row, or fails on a document.
        """
        function = self.load()
        if self.per == "document":
            values = [self._call(function, row, _is_score, _A_SCORE) for row in table.to_pylist()]
            scores = pa.array([None if v is None else float(v) for v in values], pa.float64())
        else:
            scores = self._column(function(table), table.num_rows)
            kind = scores.type
            if not (
                pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)
            ):
                raise self._refused(f"values of type {kind}", table.num_rows)
            scores = scores.cast(pa.float64())
        scores = pc.if_else(pc.is_nan(scores), pa.scalar(None, pa.float64()), scores)
        return pa.table(dict.fromkeys(self.columns(), scores))

    def reasons(self, table: pa.Table) -> pa.Array:
        """For each row null (kept), ``python.<name>``, or what the rules over the score say.

        Raises StageError if the function returns anything but a verdict per row, or fails on a document.
        """
        if self._has_score:
            return super().reasons(table)
        function = self.load()
        label = f"{self.kind}.{self._label}"
        if self.per == "document":
            found = [
                self._call(function, row, _is_verdict, _A_VERDICT) for row in table.to_pylist()
            ]
            return pa.array([_reason(verdict, label) for verdict in found], pa.string())
        return self._reasons_of(function(table), table.num_rows, label)

    def _call(
        self,
        function: Callable[[Any], Any],
        row: dict[str, Any],
        is_answer: Callable[[Any], bool],
        hint: str,
    ) -> Any:
        where = f"{row.get('source')} row {row.get('row')}"
        try:
            answer = function(row)
        except Exception as error:
            what = f"{self.kind} ({self.call}) failed: {type(error).__name__}: {error}"
            raise StageError(what, where=where) from error
        if answer is not None and not is_answer(answer):
            what = f"{self.kind} ({self.call}) returned {answer!r}"
            raise StageError(what, where=where, hint=hint)
        return answer

    def _column(self, result: Any, num_rows: int) -> pa.Array:
        """What a function over the table returned, as one array of as many values as the table has rows."""
        try:
            arrow = isinstance(result, pa.Array | pa.ChunkedArray)
            column = one_chunk(result if arrow else pa.array(result))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._refused(f"{type(result).__name__} ({error})", num_rows) from error
        if len(column) != num_rows:
            raise self._refused(f"{len(column)} values", num_rows)
        return column

    def _reasons_of(self, result: Any, num_rows: int, label: str) -> pa.Array:
        column = self._column(result, num_rows)
        if pa.types.is_boolean(column.type):
            return pc.if_else(column, pa.scalar(None, pa.string()), label)
        if pa.types.is_null(column.type):
            return column.cast(pa.string())
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            named = pc.binary_join_element_wise(self.kind, column.cast(pa.string()), ".")
            return named.cast(pa.string())
        raise self._refused(f"values of type {column.type}", num_rows)

    def _refused(self, found: str, num_rows: int) -> StageError:
        verdicts = "return one boolean (True keeps) or one string (a reason; null keeps) per row"
        if not self._has_score:
            verdicts += "; a number is a score, for min_score or max_score"
        return StageError(
            f"{self.kind} ({self.call}) returned {found} for a table of {num_rows} rows",
            hint="return one number (or null) per row" if self._has_score else verdicts,
        )

    def _file(self) -> tuple[ModuleSpec, str]:
        """Where the module stands, and the sha256 of its file."""
        name = self.call.partition(":")[0]
        folder = self._folder()
        spec = _find(name, folder)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            modules = sorted(path.stem for path in Path(folder).glob("*.py"))
            near = difflib.get_close_matches(name, modules, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "put it beside the recipe"
            raise RecipeError(f"no Python module {name!r}", where=folder, hint=hint)
        return spec, hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()

    def _folder(self) -> str:
        return str(Path(self.folder or ".").absolute())


def _is_verdict(answer: Any) -> bool:
    return isinstance(answer, bool | np.bool_ | str)


def _is_score(answer: Any) -> bool:
    return isinstance(answer, int | float | np.integer | np.floating) and not isinstance(
        answer, bool
    )


def _reason(verdict: Verdict, label: str) -> str | None:
    if isinstance(verdict, str):
        return f"{label.partition('.')[0]}.{verdict}"
    return None if verdict is None or verdict else label


def _find(module: str, folder: str) -> ModuleSpec | None:
    """The module's place, in the folder before others of the same name that are loaded already."""
    importlib.invalidate_caches()  # the file may have been written a moment ago
    package = module.rpartition(".")[0]
    if not package:
        return PathFinder.find_spec(module, [folder, *sys.path])
    above = _find(package, folder)
    inside = above.submodule_search_locations if above else None
    return PathFinder.find_spec(module, inside) if inside else None


@cache
def _import(module: str, origin: str, sha256: str, folder: str) -> ModuleType:  # noqa: ARG001
    """Run a module's file; a file of other content is another module, as in a notebook."""
    with _search(folder):
        try:
            if package := module.rpartition(".")[0]:
                importlib.import_module(package)
            spec = _find(module, folder)
            assert spec is not None
            assert spec.loader is not None
            found = module_from_spec(spec)
            sys.modules[module] = found
            spec.loader.exec_module(found)
        except Exception as error:
            sys.modules.pop(module, None)
            what = f"{module} cannot be imported: {type(error).__name__}: {error}"
            raise RecipeError(what, where=origin) from error
    return found


@contextmanager
def _search(folder: str) -> Iterator[None]:
    """The folder in front of ``sys.path``, for the time of an import."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
