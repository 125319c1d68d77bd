"""The exceptions that Tokenlake raises for errors a user can fix.

TokenlakeError
├── RecipeError        the recipe or a file that it names is invalid; the run stops
├── SourceError        an input cannot be listed or read; its split is quarantined
├── StorageError       a URL cannot be reached, read or written
│   └── WriteError     a URL cannot be written; the run stops, since no input is at fault
├── TableError         a table is missing or damaged, or does not have the expected format
│   ├── ConflictError  another writer committed first
│   ├── DamagedLogError files of a table's log are missing or damaged
│   └── MismatchError  the table belongs to another recipe, or its input files have changed
├── StageError         a stage failed on a batch
├── QuarantineError    the first units of work all failed in the same way; the run stops
├── CollapseError      deduplication would remove nearly all of a group; nothing is committed
├── LimitError         a unit of work exceeded its time limit; it is quarantined
├── TokenizerError     a tokenizer cannot be loaded, or its ids differ from its reference
├── ClusterError       a Dask cluster cannot be started or reached
├── ShuffleError       a shuffle lost rows or failed, at each attempt; nothing is committed
├── HeldFrameError     rows that workers held were lost, and could not be computed again; nothing is committed
└── LoaderError        the table does not have what a training run requests
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from etl.visible_text import escape_hidden, one_line

_MAX_NAMES = 20  # in a hint
_MAX_LINE_CHARS = 4000  # of another program's message, which may quote the input
_MARKUP = re.compile(r"\x1b\[\d*m|↳")  # colours and arrows in messages of delta-rs


def error_line(error: BaseException) -> str:
    r"""Return an exception's message on one line, or the name of its type if it has no message.

    >>> error_line(OSError("disk\n  full")), error_line(KeyboardInterrupt())
    ('disk full', 'KeyboardInterrupt')
    """
    line = " ".join(_MARKUP.sub("", str(error)).split()) or type(error).__name__
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]} ..."


def nearest_names(name: str, known: Iterable[str]) -> str | None:
    """Return a hint for an unknown name: the closest known name and all names; None if none is known.

    >>> nearest_names("txt", ["text", "url"])
    "did you mean 'text'? known names: text, url"
    """
    names = list(dict.fromkeys(known))
    if not names:
        return None
    closest = "".join(f"did you mean {match!r}? " for match in get_close_matches(name, names, n=1))
    more = ", ..." if len(names) > _MAX_NAMES else ""
    return f"{closest}known names: {', '.join(map(one_line, names[:_MAX_NAMES]))}{more}"


def unknown_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have, with the closest name that it has.

    >>> unknown_attribute("etl", "rport", ["report", "run"])
    AttributeError("module 'etl' has no attribute 'rport'; did you mean 'report'?")
    """
    closest = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, n=1))
    what = f"module {module!r} has no attribute {name!r}{closest}"
    return AttributeError(what, name=name, obj=None)  # else tracebacks append another suggestion


class TokenlakeError(Exception):
    """The base of all errors that a user can fix: what went wrong, where, and what to try.

    >>> print(RecipeError("unknown stage 'gopher_qualty'", where="web.yaml:7", hint="gopher_quality?"))
    web.yaml:7: unknown stage 'gopher_qualty'
      hint: gopher_quality?
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{one_line(self.where)}: {self.what}"
        return escape_hidden(text if self.hint is None else f"{text}\n  hint: {self.hint}")

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is pickled without its keyword-only arguments.
        return _rebuild, (type(self), self.what, self.where, self.hint), vars(self)


def _rebuild(
    kind: type[TokenlakeError], what: str, where: str | None, hint: str | None
) -> TokenlakeError:
    return kind(what, where=where, hint=hint)


class RecipeError(TokenlakeError):
    """The recipe or a file that it names is invalid; the run stops."""


class SourceError(TokenlakeError):
    """An input cannot be listed or read; its split is quarantined."""


class StorageError(TokenlakeError):
    """A URL cannot be reached, read or written."""


class WriteError(StorageError):
    """A URL cannot be written; the run stops, since no input is at fault."""


class TableError(TokenlakeError):
    """A table is missing or damaged, or does not have the expected format."""


class ConflictError(TableError):
    """Another writer committed first; open the table again."""


class DamagedLogError(TableError):
    """Files of a table's log are missing or damaged."""


class MismatchError(TableError):
    """The table belongs to another recipe, or its input files have changed."""


class StageError(TokenlakeError):
    """A stage failed on a batch; the message names the stage, the source and the row."""


class QuarantineError(TokenlakeError):
    """The first units of work all failed in the same way; they are quarantined, and the run stops."""


@dataclass(frozen=True, kw_only=True)
class LostDocument:
    """A document that deduplication would remove or shorten, and its keeper, with the beginnings of both."""

    source: str
    row: int
    text: str
    keeper_source: str
    keeper_row: int
    keeper_lake: str | None  # URL, if the keeper is in another lake
    keeper_text: str | None  # None if the keeper is in another lake
    kind: str
    similarity: float


@dataclass(frozen=True, kw_only=True)
class LostGroup:
    """What deduplication would remove of an input file, a folder (``.../``) or a language (``lang=is``).

    Exact copies of documents in other input files count neither as documents nor as lost.
    """

    group: str
    documents: int
    lost: int
    text_bytes: int
    lost_bytes: int
    examples: tuple[LostDocument, ...] = ()  # the first three


class CollapseError(TokenlakeError):
    """Deduplication would remove nearly all documents, or text, of ``groups``; nothing is committed."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        groups: Sequence[LostGroup] = (),
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.groups = tuple(groups)


class LimitError(TokenlakeError):
    """A unit of work exceeded its time limit, or workers died on it; it is quarantined."""


class TokenizerError(TokenlakeError):
    """A tokenizer cannot be loaded, or its ids differ from its reference."""


class ClusterError(TokenlakeError):
    """A Dask cluster cannot be started or reached."""


class ShuffleError(TokenlakeError):
    """A shuffle lost rows or failed, at each attempt; nothing is committed."""


class HeldFrameError(TokenlakeError):
    """Rows that workers held were lost, and could not be computed again; nothing is committed."""


class LoaderError(TokenlakeError):
    """The table does not have what a training run requests."""


def torch_error(error: ModuleNotFoundError) -> LoaderError | None:
    """Return the error that names the extra to install, if the missing module is one of torch."""
    if (error.name or "").partition(".")[0] != "torch":
        return None
    return LoaderError("the library torch is not installed", hint="pip install 'tokenlake[train]'")
