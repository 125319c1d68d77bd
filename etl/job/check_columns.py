"""Check before any work that the input files have the columns that a recipe names."""

from collections.abc import Iterable, Sequence
from typing import Final

from etl.errors import SourceError, nearest_names
from etl.sources import Columns, Source, Split
from etl.sources.peek import peek
from etl.sources.spread import Spread

_SPLITS_PER_FORMAT: Final = 8  # that are opened
_RECORDS: Final = 64  # of a file, whose keys are its columns


def check_columns(source: Source, splits: Iterable[Split]) -> None:
    """Raise SourceError if no file that is opened of some format has a column that the recipe names.

    Of each format, files are opened until one has the columns, at most eight. Files that cannot be read are
    left to the run.
    """
    for chosen in spread_by_format(splits).values():
        missing: _MissingColumnError | None = None
        for split in chosen:
            try:
                _check_columns(split, source, [])
            except _MissingColumnError as error:
                missing = missing or error
            except SourceError:
                continue
            else:
                missing = None
                break
        if missing is not None:
            raise missing


def spread_by_format(splits: Iterable[Split]) -> dict[str, list[Split]]:
    """Return a few splits of each format at equal distances, without those whose rows must be counted."""
    chosen: dict[str, Spread[Split]] = {}
    for split in splits:
        if split.first_row is not None:
            chosen.setdefault(split.format, Spread(_SPLITS_PER_FORMAT)).add(split)
    return {name: each.items for name, each in chosen.items()}


def with_columns(splits: Sequence[Split], source: Source, warnings: list[str]) -> list[Split]:
    """Return the splits whose files have the columns of a recipe; raise SourceError if none does.

    Adds a warning for each of the other files, and for keys that the first records of a file lack.
    """
    good: list[Split] = []
    errors: list[SourceError] = []
    for split in splits:
        try:
            _check_columns(split, source, warnings)
        except SourceError as error:
            errors.append(error)
        else:
            good.append(split)
    missing = [error for error in errors if isinstance(error, _MissingColumnError)]
    if missing and not good:
        raise missing[0]
    warnings += [f"{error.where}: {error.what}" for error in errors]
    return good


class _MissingColumnError(SourceError):
    """A file has no column that the recipe names."""


def _check_columns(split: Split, source: Source, warnings: list[str]) -> None:
    """Raise an error for a missing column, or warn if records of the format may lack it."""
    if split.format == "delta":  # the table's schema was checked; a file may lack a column
        return
    records = peek(split, _RECORDS, source.delimiter)
    names = [*dict.fromkeys(name for record in records for name in record)]
    wanted = source.columns.known
    wanted |= {name: name for name in source.metadata if source.metadata != "all"}
    for use, name in wanted.items():
        if not records or name in names:
            continue
        hint = nearest_names(name, names)
        if split.format == "jsonl" and use != "text":
            warnings.append(f"{split.uri}: the first records have no key {name!r}; {hint}")
            continue
        if use in Columns.model_fields:
            hint = f"{hint}; set it with --set source.columns.{use}=NAME"
        raise _MissingColumnError(f"no column {name!r}", where=split.uri, hint=hint)
