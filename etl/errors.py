"""The exceptions of Tokenlake: every mistake of a user is one of these, with what, where and a hint.

TokenlakeError
├── RecipeError        the recipe does not say what it must, or says what is unknown
├── SourceError        an input cannot be listed or read; its split is put in quarantine
├── StorageError       a URL cannot be reached, read or written
│   └── WriteError     a place takes no more; a run ends there, since no input is at fault
├── TableError         a table is missing, damaged, or of another shape
│   ├── ConflictError  another writer committed first
│   └── MismatchError  the table was made by another recipe, or its input files have changed
├── StageError         a stage failed on a batch (it names stage, source and row)
├── LimitError         a unit of work took more time than it may; it is put in quarantine
├── TokenizerError     a tokenizer cannot be loaded, or gives other ids than its reference
├── ClusterError       no Dask cluster could be started or reached
└── LoaderError        a training run asks for what the table cannot give
"""

import re

_COLOURS = re.compile(r"\x1b\[\d*m|↳")  # as delta-rs sets them
_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def one_line(text: str) -> str:
    r"""Text as one line of a terminal: controls, line ends and bytes that are no UTF-8 are shown escaped.

    A name of a file may hold any of them.

    >>> print(one_line("s3://raw/two\nlines é.jsonl"))
    s3://raw/two\nlines é.jsonl
    """
    return _BREAKING.sub(lambda found: ascii(found[0])[1:-1], text)


def said(error: BaseException) -> str:
    r"""What an exception says, in one line and without colours; the name of its type if it says nothing.

    >>> said(OSError("no\n  room")), said(KeyboardInterrupt())
    ('no room', 'KeyboardInterrupt')
    """
    return " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__


class TokenlakeError(Exception):
    """Base of all errors that a user can mend: what went wrong, where, and what to try.

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
        return text if self.hint is None else f"{text}\n  hint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive pickling between processes by default.
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(
    kind: type[TokenlakeError], what: str, where: str | None, hint: str | None
) -> TokenlakeError:
    return kind(what, where=where, hint=hint)


class RecipeError(TokenlakeError):
    """The recipe does not say what it must, or says what is unknown."""


class SourceError(TokenlakeError):
    """An input cannot be listed or read; its split is put in quarantine."""


class StorageError(TokenlakeError):
    """A URL cannot be reached, read or written."""


class WriteError(StorageError):
    """A place takes no more; a run ends there, since no input is at fault."""


class TableError(TokenlakeError):
    """A table is missing, damaged, or of another shape."""


class ConflictError(TableError):
    """Another writer committed first; open the table again."""


class MismatchError(TableError):
    """The table was made by another recipe, or its input files have changed."""


class StageError(TokenlakeError):
    """A stage failed on a batch; the message names the stage, the source and the row."""


class LimitError(TokenlakeError):
    """A unit of work took more time than it may; it is put in quarantine."""


class TokenizerError(TokenlakeError):
    """A tokenizer cannot be loaded, or gives other ids than its reference."""


class ClusterError(TokenlakeError):
    """No Dask cluster could be started or reached."""


class LoaderError(TokenlakeError):
    """A training run asks for what the table cannot give."""
