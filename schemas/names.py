"""The names of the tables of a lake."""

import re
from typing import Final

TableName = str
"""The name of a table of a lake: one of ``TABLES``, or ``tokens_NAME`` of a named tokenizer, or
``tokens_NAME_shuffled``."""

TABLES: Final[tuple[TableName, ...]] = (
    "documents",
    "texts",
    "duplicates",
    "keys",
    "tokens",
    "tokens_shuffled",
    "losses",
)
"""The names of the tables of a lake, which ``etl.lake.table_specs`` defines. The tables of named
tokenizers are like ``tokens`` and ``tokens_shuffled``."""

UNRELEASED_TABLES: Final[tuple[TableName, ...]] = ("keys",)
"""The tables whose versions no release names, since only runs read them."""

TOKENIZER_NAME: Final = "[a-z0-9]+"
"""The pattern of a tokenizer's name in a recipe. ``shuffled`` is not one: its table would be another."""


def tokens_of(tokenizer: str | None) -> TableName:
    """Return the name of the table with the tokens of a tokenizer, given its name in the recipe.

    >>> tokens_of(None), tokens_of("qwen")
    ('tokens', 'tokens_qwen')
    """
    return "tokens" if tokenizer is None else f"tokens_{tokenizer}"


def is_tokens(name: TableName) -> bool:
    """Return whether a table has the tokens of a tokenizer, named or not.

    >>> [name for name in ("texts", "tokens", "tokens_qwen", "tokens_shuffled") if is_tokens(name)]
    ['tokens', 'tokens_qwen']
    """
    return kind_of(name) == "tokens"


def shuffled_of(tokens: TableName) -> TableName:
    """Return the name of the table with the rows of a table of tokens in random order.

    >>> shuffled_of("tokens"), shuffled_of("tokens_qwen")
    ('tokens_shuffled', 'tokens_qwen_shuffled')
    """
    return f"{tokens}_shuffled"


def shuffled_from(name: TableName) -> TableName | None:
    """Return the table of tokens whose rows a table has in random order; None for another table.

    >>> [shuffled_from(name) for name in ("tokens_shuffled", "tokens_qwen_shuffled", "tokens_qwen")]
    ['tokens', 'tokens_qwen', None]
    """
    tokens = name.removesuffix("_shuffled")
    return tokens if tokens != name and is_tokens(tokens) else None


def kind_of(name: TableName) -> TableName:
    """Return the table of ``TABLES`` that a table is like, for the tables of a named tokenizer.

    >>> kind_of("tokens_qwen"), kind_of("tokens_qwen_shuffled"), kind_of("other")
    ('tokens', 'tokens_shuffled', 'other')
    """
    if name in TABLES:
        return name
    if re.fullmatch(f"tokens_{TOKENIZER_NAME}", name) is not None:
        return "tokens"
    return name if shuffled_from(name) is None else "tokens_shuffled"
