"""The tables of a lake, each defined once: name, schema, layout on disk, and input tables."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from etl import schemas, storage
from etl.delta.table import Table
from etl.lake.missing_tables import no_lake_error
from etl.lake.open_table import find_table
from etl.lake.table_names import table_names
from etl.parquet.layout import Layout
from etl.schemas import TableName

# The stages and their kernels take 100 MB: they are imported only if a schema is needed.
if TYPE_CHECKING:
    from etl.recipe.recipe import Recipe
    from etl.stages.tokenize import Tokenize


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """What a table of a lake is.

    ``compact_by`` is the order in which ``optimize`` merges small data files: by address; by address, keeping
    the files of a unit of work together; or by key. None: never. The rows of a table ``from_training`` are
    reported by trainings: no recipe fills it, and none drops them.
    """

    name: TableName
    schema: Callable[["Recipe"], pa.Schema]
    layout: Layout
    made_from: tuple[TableName, ...] = ()
    is_index: bool = False  # rebuilt from the others at any time: no step of a recipe
    compact_by: Literal["address", "unit", "key"] | None = None
    from_training: bool = False


def _documents_schema(recipe: "Recipe") -> pa.Schema:
    from etl.stages.document_columns import documents_schema

    return documents_schema(recipe.stages)


def _texts_schema(recipe: "Recipe") -> pa.Schema:
    from etl.stages.document_columns import texts_schema

    return texts_schema(recipe.stages)


def _duplicates_schema(recipe: "Recipe") -> pa.Schema:
    from etl.stages.dedup_base import duplicates_schema

    return duplicates_schema(recipe.dedup_stages)


# A unit of work has one data file for each verdict. 32,768 rows are a few MB, unless `metadata` is large.
DOCUMENTS: Final = TableSpec(
    name="documents",
    schema=_documents_schema,
    layout=Layout(
        partition_by=("verdict",),
        statistics=("id", "source", "row", "reason"),
        lookup=("source",),
        dictionary=("source", "lang", "reason"),
        row_group_rows=1 << 15,
    ),
    compact_by="unit",
)

# Few documents are read again at a time, to be compared or exported: in row groups of 4 MB of text, most of
# a file is skipped.
TEXTS: Final = TableSpec(
    name="texts",
    schema=_texts_schema,
    layout=Layout(
        partition_by=("verdict",),
        statistics=("source", "row"),
        lookup=("source",),
        dictionary=("source",),
        bulk="text",
        bulk_hash="text_hash",
        not_digested=schemas.NOT_DIGESTED["texts"],
        row_group_bytes=4 << 20,
    ),
    made_from=("documents",),
    compact_by="unit",
)

DUPLICATES: Final = TableSpec(
    name="duplicates",
    schema=_duplicates_schema,
    layout=Layout(
        statistics=("source", "row", "unit", "kind"),
        lookup=("source", "unit", "kind"),
        dictionary=("source", "keeper_source", "kind", "unit"),
        row_group_rows=1 << 13,  # a reader wants the rows of one unit
        not_digested=schemas.NOT_DIGESTED["duplicates"],
    ),
    made_from=("documents", "texts"),
    compact_by="address",
)

KEYS: Final = TableSpec(
    name="keys",
    schema=lambda _: schemas.KEYS,
    layout=Layout(
        partition_by=("kind",),
        statistics=("key",),
        dictionary=("unit",),
        ascending=("key",),
        not_digested=schemas.NOT_DIGESTED["keys"],
    ),
    made_from=("documents", "texts", "duplicates"),
    is_index=True,
    compact_by="key",
)

# Chosen by benchmarks/stored_form.py: zstd takes half of the time to write that lz4 takes at level 3, and an
# eighth less space. lz4 decodes more than twice as fast, but a training needs far fewer tokens than either
# decodes. 6 MB of int32 are 1.5 M tokens; a reader holds one page for each open file.
TOKENS: Final = TableSpec(
    name="tokens",
    schema=lambda _: schemas.TOKENS,
    layout=Layout(
        statistics=("id", "source", "row", "token_end"),
        lookup=("source",),
        dictionary=("source",),
        bulk="tokens",
        bulk_hash="tokens_hash",
        running=("num_tokens", "token_end"),
        not_digested=schemas.NOT_DIGESTED["tokens"],
        row_group_bytes=6 << 20,
        page_bytes=1 << 16,
        marks_pages=True,
        compression="zstd",
        compression_level=1,
    ),
    made_from=("documents", "texts", "duplicates"),
    compact_by="unit",
)

# A file has one bucket of the shuffle. Its sources are mixed, so that their minimum and maximum say nothing.
SHUFFLED: Final = TableSpec(
    name="tokens_shuffled",
    schema=lambda _: schemas.TOKENS,
    layout=replace(TOKENS.layout, statistics=("token_end",), lookup=(), file_bytes=1 << 62),
    made_from=("tokens",),
    is_index=True,
)

# Not compacted: a file has the samples of about one time, so that few files can have a sample that is
# logged again.
LOSSES: Final = TableSpec(
    name="losses",
    schema=lambda _: schemas.LOSSES,
    layout=Layout(
        statistics=("source", "row", "epoch", "step", "sample"),
        lookup=("source",),
        dictionary=("source", "run", "plan"),
    ),
    from_training=True,
)

SPECS: Final[dict[str, TableSpec]] = {
    spec.name: spec for spec in (DOCUMENTS, TEXTS, DUPLICATES, KEYS, TOKENS, SHUFFLED, LOSSES)
}
"""The tables by name, without the tables of named tokenizers; each is made from tables before it."""

ARCHIVED_TOKENS: Final = replace(
    TOKENS.layout, page_bytes=1 << 20, marks_pages=False, compression_level=9
)
"""The layout for tokens that are archived rather than read: three quarters of the size, a third of the speed.

Its data files are recognized by the lack of marks of pages."""


def token_layout(stage: "Tokenize") -> Layout:
    """Return the layout of the tokens of a tokenizer."""
    return ARCHIVED_TOKENS if stage.archive else TOKENS.layout


def spec_of(name: TableName) -> TableSpec:
    """Return what a table of a lake is; the tables of a named tokenizer are like the others.

    >>> spec_of("tokens_qwen").name, spec_of("tokens_qwen").layout is TOKENS.layout
    ('tokens_qwen', True)
    >>> spec_of("tokens_qwen_shuffled").made_from
    ('tokens_qwen',)
    """
    if name in SPECS:
        return SPECS[name]
    spec, tokens = SPECS[schemas.kind_of(name)], schemas.shuffled_from(name)
    return replace(spec, name=name, made_from=spec.made_from if tokens is None else (tokens,))


def open_tables(lake: str) -> dict[str, Table]:
    """Open the tables that a lake has, at their newest versions.

    Raises TableError if the lake has no documents, or was written in another format version.
    """
    # Tables made from others come first: the versions that they name exist when the others are opened.
    names = table_names(lake)
    tables = {name: find_table(storage.join(lake, name)) for name in reversed(names)}
    if tables["documents"] is None:
        raise no_lake_error(lake)
    return {name: table for name in names if (table := tables[name]) is not None}
