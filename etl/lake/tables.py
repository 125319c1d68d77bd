"""The tables of a lake: their layout on disk."""

from dataclasses import replace

from etl.delta.layout import Layout

DOCUMENTS = Layout(
    partition_by=("verdict",),
    statistics=("id", "source", "row", "reason"),
    dictionary=("source", "lang", "reason"),
    bulk="text",
)


DUPLICATES = Layout(
    statistics=("source", "row", "file", "kind"),
    dictionary=("source", "keeper_source", "kind", "file"),
)


KEYS = Layout(partition_by=("kind",), statistics=("key",), dictionary=("file",), ascending=("key",))


# Chosen for training by benchmarks/stored_form.py: lz4 decodes more than twice as fast as zstd. At level 3
# (LZ4 HC) files are a sixth smaller than at the default level, and take three times as long to write. 6 MB of
# int32 are 1.5 M tokens; a reader holds one page for each open file.
TOKENS = Layout(
    statistics=("id", "source", "row", "token_end"),
    bulk="tokens",
    running=("num_tokens", "token_end"),
    row_group_bytes=6 << 20,
    page_bytes=1 << 18,
    compression="lz4",
    compression_level=3,
)


# For tables that are archived rather than read: half the size, a third of the speed.
ARCHIVED_TOKENS = replace(TOKENS, page_bytes=1 << 20, compression="zstd", compression_level=9)
