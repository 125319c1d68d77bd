"""Which columns of an input file are read, and the error for a missing one."""

from collections import Counter
from collections.abc import Iterable

from etl.errors import SourceError, nearest_names
from etl.sources.source_settings import Source
from etl.sources.split import Split


def columns_to_read(source: Source, names: Iterable[str], split: Split) -> list[str]:
    """Return the columns of a file that the recipe needs, in the order of the file.

    Raises SourceError if a column that the recipe names is missing or occurs twice. A file of a Delta table
    may lack a column, which is then null: the table's schema was checked earlier.
    """
    names = list(names)
    unique = dict.fromkeys(names)
    used = source.columns.known.values()
    wanted = dict.fromkeys([*used, *(() if source.metadata == "all" else source.metadata)])
    missing = [name for name in wanted if name not in unique and split.format != "delta"]
    if missing:
        raise SourceError(
            f"the file has no column {missing[0]!r}",
            where=split.uri,
            hint=nearest_names(missing[0], unique),
        )
    chosen = [name for name in unique if source.metadata == "all" or name in wanted]
    counts = Counter(names) if len(unique) < len(names) else {}
    repeated = [name for name in chosen if counts.get(name, 1) > 1]
    if repeated:
        error = f"the file has more than one column {repeated[0]!r}"
        hint = "rewrite the file with one column of that name"
        raise SourceError(error, where=split.uri, hint=hint)
    return chosen
