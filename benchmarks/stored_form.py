"""How tokens are stored: bits per token, and tokens per CPU second written and read.

    TOKENLAKE_DATA=... python benchmarks/stored_form.py

writes the same documents as token tables with several layouts, all of them plain Parquet
``list<int32>``, and reads every row group as the loader does. ``bits`` counts the column's compressed
pages; ``/ binary`` is the ratio to the concatenated int32 of all documents, compressed with zstd at its
default level. ``engines`` is the speed of pyarrow's own reader, which is similar to that of other
engines.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from token_data import Corpus, corpus, data_folder, write_table

from etl.lake.table_specs import ARCHIVED_TOKENS, TOKENS
from etl.loader.fetch.range_requests import Remote
from etl.loader.fetch.read_index import read_index
from etl.loader.fetch.row_group_files import LocalFiles
from etl.loader.fetch.token_stream import RowGroups
from etl.parquet.layout import Layout

_LZ4 = replace(TOKENS.layout, compression="lz4", compression_level=3)

FORMS: dict[str, Layout] = {
    "none": replace(TOKENS.layout, compression="none", compression_level=None),
    "lz4": replace(_LZ4, compression_level=None),
    "lz4 2": replace(_LZ4, compression_level=2),
    "lz4 3": _LZ4,
    "lz4 3, pages of 256 kB": replace(_LZ4, page_bytes=1 << 18),
    "lz4 4": replace(_LZ4, compression_level=4),
    "zstd -3": replace(TOKENS.layout, compression_level=-3),
    "zstd -1": replace(TOKENS.layout, compression_level=-1),
    "zstd 1, the default": TOKENS.layout,
    "zstd 1, pages of 128 kB": replace(TOKENS.layout, page_bytes=1 << 17),
    "zstd 1, row groups of 1.5 MB": replace(TOKENS.layout, row_group_bytes=3 << 19),
    "zstd 1, row groups of 24 MB": replace(TOKENS.layout, row_group_bytes=24 << 20),
    "zstd 2": replace(TOKENS.layout, compression_level=2),
    "zstd 3": replace(TOKENS.layout, compression_level=3),
    "zstd 9": replace(TOKENS.layout, compression_level=9),
    "zstd 9, pages of 1 MB: for archives": ARCHIVED_TOKENS,
}
_ROUNDS = 3


def binary_bits(given: Corpus) -> float:
    """Return the bits per token of plain int32, compressed with zstd at its default level."""
    packed = pa.Codec("zstd", 3).compress(given.tokens.tobytes(), asbytes=True)
    return 8 * len(packed) / len(given.tokens)


def measure(given: Corpus, layout: Layout) -> tuple[float, float, float, float]:
    """Return bits per token, and Mtok per CPU second: written, read by the loader, read by pyarrow."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        write_table(given, Path(folder), layout)
        written = time.process_time() - begun
        index = read_index(folder, version=None, remote=Remote())
        files = sorted(Path(folder).rglob("*.parquet"))
        own, engine = [], []
        for _ in range(_ROUNDS):
            begun = time.process_time()
            groups = RowGroups(index, LocalFiles(index))
            for group in range(len(index.group_tokens)):
                for piece in groups.pieces(group):
                    piece.tokens.max()  # every page is touched
            own.append(time.process_time() - begun)
            begun = time.process_time()
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(
                    256, columns=["tokens"], use_threads=False
                ):
                    batch.column(0).flatten()
            engine.append(time.process_time() - begun)
        size = sum(map(column_bytes, files))
    mtok = len(given.tokens) / 1e6
    return size * 8 / mtok / 1e6, mtok / written, mtok / min(own), mtok / min(engine)


def column_bytes(file: Path) -> int:
    """Return the bytes of the column tokens."""
    footer = pq.read_metadata(file)
    leaf = [footer.schema.column(i).path for i in range(footer.num_columns)]
    place = next(i for i, path in enumerate(leaf) if path.startswith("tokens."))
    groups = range(footer.num_row_groups)
    return sum(footer.row_group(g).column(place).total_compressed_size for g in groups)


def main() -> None:
    """Print a table for prose and one for technical documentation in many languages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=20_000_000)
    chosen = parser.parse_args()
    for name in ("prose", "docs"):
        given = corpus(data_folder(), name).head(chosen.tokens)
        best = binary_bits(given)
        print(
            f"\n{name}: {len(given.tokens) / 1e6:.1f} M tokens; binary with zstd {best:.2f} bits\n"
        )
        print("| form | bits | / binary | written Mtok/s | read | engines |")
        print("|---" * 6 + "|", flush=True)
        for form, layout in FORMS.items():
            bits, *speeds = measure(given, layout)
            row = " | ".join(f"{speed:.0f}" for speed in speeds)
            print(f"| {form} | {bits:.2f} | {bits / best:.2f} | {row} |", flush=True)


if __name__ == "__main__":
    main()
