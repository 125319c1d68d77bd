"""The names of the tables of a lake, which may have any number of named tokenizers."""

from collections.abc import Iterable

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
