"""The Python stage: filter documents by a user's Python function."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PrivateAttr, model_validator

from etl.errors import RecipeError, StageError, nearest_names
from etl.kernels.bytes.one_chunk import one_chunk
from etl.plural import many
from etl.stages.base import Filter, Rules, above, below
from etl.stages.user_code import UserModule, find_module, hint_for, name_function
from etl.storage.file_sets import FileSet
from etl.storage.referenced_files import Paths

Verdict = bool | str | None

_SCORE_HINT = "return a number or None"
_VERDICT_HINT = "return True to keep the document, or False or a reason (a string) to reject it"


class Python(Filter):
    """Keep documents for which a function ``module:function`` returns true, or a score within limits.

    The function takes a ``pyarrow.Table`` of the documents still kept, with ``text`` and the columns of
    ``documents`` up to ``reason``; signals that no earlier stage has computed are null. It returns one value
    per row: True or null keeps the document, False rejects it with the reason ``python.<name>``, a string
    rejects it with ``python.<string>``. With ``per: document`` it takes a dict of the columns of one document
    and returns one such value; the call adds about 10 us per document, mostly for the dict.

    With ``min_score`` or ``max_score`` the function returns numbers instead, stored in the column
    ``python_<name>``. Smaller ones reject as ``python.<name>_low``, larger ones as ``python.<name>_high``;
    null and NaN keep the document. With ``sees: all`` rejected documents get a score too.

    Workers need not have the module: a run sends it to them, with all files of its package or, without a
    package, the modules beside it that it imports and the files that its string literals name, as in
    ``Path(__file__).with_name("words.txt")``. ``data`` names other files and folders beside the module.
    The fingerprint covers all of them. Libraries must be installed on every machine; those that are missing
    are reported before the run.

    A recipe that is made in Python may have the function itself in place of its name, if a module defines it:
    the run reads the file of that module. A function of a notebook or a script has no such file, and is
    accepted by ``etl.apply`` only.
    """

    kind: Literal["python"] = "python"
    example = "python: {call: my_filters:is_prose, per: document}"
    shorthand = "call"
    paths = ("folder",)
    thresholds = ("min_score", "max_score")
    call: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """The function, as ``module:function``."""
    per: Literal["table", "document"] = "table"
    """What the function takes: a ``table`` of many documents, or one ``document`` as a dict."""
    name: str | None = Field(default=None, min_length=1)
    """The name in reasons and of the score's column; by default the function's name."""
    folder: str = "."
    """The folder that is searched first for the module; by default the recipe's."""
    data: Paths = ()
    """Other files and folders beside the module that it reads."""
    min_score: float | None = Field(default=None, allow_inf_nan=False)
    """The lowest score to keep (inclusive); null means no limit."""
    max_score: float | None = Field(default=None, allow_inf_nan=False)
    """The highest score to keep (inclusive); null means no limit."""
    sees: Literal["kept", "all"] = "kept"
    """Which documents the function gets: those still ``kept``, or ``all``, so that rejected ones have a
    score, too."""

    _is_copy: bool = PrivateAttr(default=False)

    @property
    def costly(self) -> bool:  # type: ignore[override]
        """Whether documents that an earlier stage has rejected are skipped."""
        return self.sees == "kept"

    @model_validator(mode="before")
    @classmethod
    def _name_function(cls, data: Any) -> Any:
        """Write a function as its module and name, and the folder in which that module is found."""
        if not isinstance(data, Mapping) or not callable(function := data.get("call")):
            return data
        call, folder = name_function(function)
        return {**data, "call": call, "folder": folder}

    @model_validator(mode="after")
    def _check_score(self) -> Self:
        if self.sees == "all" and not self._has_score:
            raise ValueError("`sees: all` requires a score: set min_score or max_score")
        if self._has_score and not re.fullmatch(r"[A-Za-z_]\w*", self._label, re.ASCII):
            raise ValueError(
                f"{self._label!r} cannot name the column of a score: "
                "use letters, digits and underscores, and no digit first"
            )
        return self

    @property
    def _label(self) -> str:
        return self.name or self.call.partition(":")[2]

    @property
    def _has_score(self) -> bool:
        return self.min_score is not None or self.max_score is not None

    def columns(self) -> dict[str, str]:
        """Return ``python_<name>`` if the function returns a score."""
        return {f"{self.kind}_{self._label}": "score"} if self._has_score else {}

    def rules(self) -> Rules:
        """Return ``python.<name>_low`` and ``python.<name>_high`` if the function returns a score."""
        rules: Rules = {}
        for column in self.columns():
            rules[f"{self._label}_low"] = below(pl.col(column), self.min_score)
            rules[f"{self._label}_high"] = above(pl.col(column), self.max_score)
        return rules

    def signals(self) -> list[str]:
        """Return no names: the function receives every existing column."""
        return []

    def identity(self) -> dict[str, Any]:
        """Return the settings and the sha256 of the module and the files that it needs, without paths.

        Raises RecipeError if the module does not exist.
        """
        identity = super().identity()
        fields = {name: v for name, v in identity.items() if name not in ("folder", "data")}
        return {**fields, "sha256": self._module().sha256}

    def files(self) -> dict[str, FileSet]:
        """Return the module and the files that it needs; none if it is installed."""
        files = self._module().files
        return {} if files is None else {self.folder: files}

    def with_paths(self, paths: Mapping[str, str]) -> Self:
        """Return the stage with the folder of copies, which do not change."""
        stage = super().with_paths(paths)
        stage._is_copy = True  # noqa: SLF001 - of the same class
        return stage

    def user_code(self) -> str:
        """Return ``module:function of FILE``, without running it.

        Raises RecipeError if the module does not exist.
        """
        return f"{self.call} of {self._module().origin}"

    def check(self) -> None:
        """Load the function once, and check that the libraries that it imports are installed."""
        self.load()
        self._module().check_libraries(self.call.partition(":")[2])

    def load(self) -> Callable[[Any], Any]:
        """Return the function; raise RecipeError if its module cannot be imported or does not have it."""
        return self._function_of(self._module())

    @contextmanager
    def loaded(self) -> Iterator[Callable[[Any], Any]]:
        """Yield the function, with the folder of its module importable."""
        module = self._module()
        function = self._function_of(module)
        with module.importable():
            yield function

    def _function_of(self, module: UserModule) -> Callable[[Any], Any]:
        function_name = self.call.partition(":")[2]
        loaded = module.load()
        function: Callable[[Any], Any] | None = getattr(loaded, function_name, None)
        if not callable(function):
            known = [key for key, value in vars(loaded).items() if inspect.isfunction(value)]
            hint = nearest_names(function_name, known) or "the module defines no functions"
            raise RecipeError(
                f"the module has no function {function_name!r}", where=module.origin, hint=hint
            )
        return function

    def _results(self, table: pa.Table, is_valid: Callable[[Any], bool], hint: str) -> Any:
        """Return what the function returns for a table, or a list of what it returns for each document.

        Raises StageError if it fails on a document, or if a library or a file that it needs is missing.
        """
        with self.loaded() as function:
            if self.per == "document":
                return [self._call(function, row, is_valid, hint) for row in table.to_pylist()]
            try:
                return function(table)
            except Exception as error:
                raise StageError(self._failed(error), hint=hint_for(error)) from error

    def measure(self, table: pa.Table) -> pa.Table:
        """Return the score of each row (float64), null where the function returns null or NaN.

        Raises StageError if the function returns anything but a number per row or fails on a document.
        """
        values = self._results(table, _is_score, _SCORE_HINT)
        if self.per == "document":
            scores = pa.array([None if v is None else float(v) for v in values], pa.float64())
        else:
            scores = self._as_array(values, table.num_rows)
            type_ = scores.type
            if not (
                pa.types.is_floating(type_) or pa.types.is_integer(type_) or pa.types.is_null(type_)
            ):
                raise self._wrong_result(f"values of type {type_}", table.num_rows)
            scores = scores.cast(pa.float64())
        scores = pc.if_else(pc.is_nan(scores), pa.scalar(None, pa.float64()), scores)
        return pa.table(dict.fromkeys(self.columns(), scores))

    def reasons(self, table: pa.Table) -> pa.Array:
        """Return for each row null (kept), the reason from the function, or that of the score's rules.

        Raises StageError if the function returns anything but a verdict per row or fails on a document.
        """
        if self._has_score:
            return super().reasons(table)
        verdicts = self._results(table, _is_verdict, _VERDICT_HINT)
        label = f"{self.kind}.{self._label}"
        if self.per == "document":
            return pa.array([_reason(verdict, label) for verdict in verdicts], pa.string())
        return self._as_reasons(verdicts, table.num_rows, label)

    def _call(
        self,
        function: Callable[[Any], Any],
        row: dict[str, Any],
        is_valid: Callable[[Any], bool],
        hint: str,
    ) -> Any:
        where = f"{row.get('source')} row {row.get('row')}"
        try:
            value = function(row)
        except Exception as error:
            raise StageError(self._failed(error), where=where, hint=hint_for(error)) from error
        if value is not None and not is_valid(value):
            what = f"{self.kind} ({self.call}) returned {value!r}"
            raise StageError(what, where=where, hint=hint)
        return value

    def _failed(self, error: Exception) -> str:
        """Return what an exception of the user's code was, and the last line of that code."""
        line = self._module().line_of(error)
        at = "" if line is None else f" at {line}"
        return f"{self.kind} ({self.call}) failed{at}: {type(error).__name__}: {error}"

    def _as_array(self, result: Any, num_rows: int) -> pa.Array:
        """Return the result of a function over a table as one array with a value per row."""
        try:
            is_arrow = isinstance(result, pa.Array | pa.ChunkedArray)
            array = one_chunk(result if is_arrow else pa.array(result))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._wrong_result(f"{type(result).__name__} ({error})", num_rows) from error
        if len(array) != num_rows:
            raise self._wrong_result(f"{many(len(array), 'value')}", num_rows)
        return array

    def _as_reasons(self, result: Any, num_rows: int, label: str) -> pa.Array:
        verdicts = self._as_array(result, num_rows)
        if pa.types.is_boolean(verdicts.type):
            return pc.if_else(verdicts, pa.scalar(None, pa.string()), label)
        if pa.types.is_null(verdicts.type):
            return verdicts.cast(pa.string())
        if pa.types.is_string(verdicts.type) or pa.types.is_large_string(verdicts.type):
            reasons = pc.binary_join_element_wise(self.kind, verdicts.cast(pa.string()), ".")
            return reasons.cast(pa.string())
        raise self._wrong_result(f"values of type {verdicts.type}", num_rows)

    def _wrong_result(self, result: str, num_rows: int) -> StageError:
        hint = "return one number (or null) per row"
        if not self._has_score:
            hint = (
                "return one boolean (True keeps) or one string (a reason; null keeps) per row; "
                "to return numbers, set min_score or max_score; to get one document at a time, set "
                "`per: document`"
            )
        what = f"{self.kind} ({self.call}) returned {result} for a table of {many(num_rows, 'row')}"
        return StageError(what, hint=hint)

    def _module(self) -> UserModule:
        folder = str(Path(self.folder).absolute())
        find = _find_copy if self._is_copy else find_module
        return find(self.call.partition(":")[0], folder, self.data)


_find_copy = lru_cache(maxsize=64)(find_module)  # a package of 100 files takes 9 ms


def _is_verdict(value: Any) -> bool:
    return isinstance(value, bool | np.bool_ | str)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _reason(verdict: Verdict, label: str) -> str | None:
    if isinstance(verdict, str):
        return f"{label.partition('.')[0]}.{verdict}"
    return None if verdict is None or verdict else label
