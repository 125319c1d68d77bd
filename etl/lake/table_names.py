"""The names of the tables of a lake, which may have any number of named tokenizers."""

from collections.abc import Iterable, Mapping

from etl import schemas, storage


def table_names(lake: str) -> list[str]:
    """Return the names of the tables that a lake may have, each after those that it is made from.

    A folder ``tokens_NAME`` or ``tokens_NAME_shuffled`` is a table of a tokenizer; the other names are the
    same in all lakes. Cost: one listing of the lake's folder. Raises StorageError if it cannot be listed.
    """
    named = (name for name in storage.folder_names(lake) if schemas.kind_of(name) != name)
    return in_order({*schemas.TABLES, *named})


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of tables, each after those that it is made from.

    >>> in_order(["tokens_qwen_shuffled", "tokens_qwen", "documents", "tokens"])
    ['documents', 'tokens', 'tokens_qwen', 'tokens_qwen_shuffled']
    """
    kinds = schemas.TABLES
    return sorted(names, key=lambda name: (kinds.index(schemas.kind_of(name)), name))


def last_table(names: Iterable[str]) -> str:
    """Return the table of a lake that others lead up to: of the first tokenizer, else texts or documents.

    >>> last_table(["documents", "texts", "tokens_qwen"]), last_table(["documents", "texts", "losses"])
    ('tokens_qwen', 'texts')
    """
    names = [*names]
    return next(name for name in (*token_tables(names), "texts", *names) if name in names)


def token_tables(names: Iterable[str]) -> list[str]:
    """Return the names of the tables with tokens among some names, the unnamed tokenizer's first.

    >>> token_tables(["texts", "tokens_qwen", "tokens"])
    ['tokens', 'tokens_qwen']
    """
    return in_order(name for name in names if schemas.is_tokens(name))


def tokens_line(by_table: Mapping[str, int]) -> str:
    """Return numbers of tokens by table as a line, without the name if only ``tokens`` has any.

    >>> tokens_line({"tokens": 2000}), tokens_line({"tokens": 2, "tokens_qwen": 3}), tokens_line({})
    ('2,000', '2 in tokens, 3 in tokens_qwen', '0')
    """
    if {*by_table} <= {"tokens"}:
        return f"{sum(by_table.values()):,}"
    return ", ".join(f"{count:,} in {name}" for name, count in by_table.items())
