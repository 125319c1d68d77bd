"""Real tokens for the loader's benchmarks: text of $TOKENLAKE_DATA in Qwen3's vocabulary, created once.

The documents are stored as tokens.bin (int32, concatenated) and ends.npy (int64, the end of each
document) for other loaders, and as a token table of the same documents in any layout.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.delta.table import Table
from etl.lake.table_specs import TOKENS
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout
from etl.stages.tokenize import Encoder, Tokenize
from etl.text.tokenizer import make_lists

CACHE = Path(__file__).parent / ".peers"
CORPORA = {
    "prose": ("bench/dracor*.parquet",),  # German plays, which are the least repetitive
    "docs": ("docs/docs-*.parquet",),
    "all": ("bench/win32*.parquet", "docs/docs-*.parquet", "bench/[!w]*.parquet"),
}
_FILE_TOKENS = 16 << 20  # per data file of the table
_BATCH_DOCUMENTS = 2000


@dataclass(frozen=True)
class Corpus:
    """Tokens of documents, and the file that holds them; N tokens, D documents."""

    path: Path
    tokens: np.ndarray  # (N,) int32, mapped
    ends: np.ndarray  # (D,) int64
    text_bytes: int

    def head(self, most: int) -> "Corpus":
        """Return the first documents, up to a number of tokens."""
        count = int(np.searchsorted(self.ends, most, side="right"))
        ends = self.ends[:count]
        share = self.text_bytes * int(ends[-1]) // int(self.ends[-1])
        return Corpus(self.path, self.tokens[: ends[-1]], ends, share)


def data_folder() -> Path:
    """Return the folder of real data; exit with a message if it is not set."""
    found = Path(os.environ.get("TOKENLAKE_DATA", "."))
    if not (found / "bench").is_dir():
        sys.exit("no data: set TOKENLAKE_DATA to a folder with bench/*.parquet and tokenizers/")
    return found


def tokenizer(data: Path) -> Path:
    """Return the tokenizer of the benchmarks: 151,643 entries, so that an id needs more than 16 bits."""
    return data / "tokenizers" / "qwen3" / "tokenizer.json"


def corpus(data: Path, name: str = "all") -> Corpus:
    """Tokenize the documents of some files, and keep them in benchmarks/.peers for the next run."""
    folder = CACHE / f"tokens-{name}"
    path = folder / "tokens.bin"
    if not (folder / "text_bytes").exists():
        folder.mkdir(parents=True, exist_ok=True)
        encoder = Encoder.of(Tokenize(tokenizer=str(tokenizer(data))))
        lengths, size = [np.zeros(0, np.int64)], 0
        with path.open("wb") as out:
            for file in (
                found for pattern in CORPORA[name] for found in sorted(data.glob(pattern))
            ):
                for batch in pq.ParquetFile(file).iter_batches(_BATCH_DOCUMENTS, columns=["text"]):
                    size += batch.column(0).nbytes
                    lists = encoder.encode(batch.column(0))
                    out.write(np.asarray(lists.flatten()).tobytes())
                    lengths.append(np.diff(np.asarray(lists.offsets)))
        np.save(folder / "ends.npy", np.cumsum(np.concatenate(lengths), dtype=np.int64))
        (folder / "text_bytes").write_text(str(size))
    tokens = np.memmap(path, np.int32, mode="r")
    size = int((folder / "text_bytes").read_text())
    return Corpus(path, tokens, np.load(folder / "ends.npy"), size)


def write_table(given: Corpus, lake: Path, layout: Layout = TOKENS.layout) -> int:
    """Write the documents as the token table of a lake, and return the bytes of its data files."""
    table = Table.create(str(lake / "tokens"), schemas.TOKENS, layout)
    schema = pa.schema([field for field in schemas.TOKENS if field.name != "token_end"])
    begins = np.concatenate([np.zeros(1, np.int64), given.ends])
    fragments, start = [], 0
    while start < len(given.ends):
        stop = int(np.searchsorted(given.ends, begins[start] + _FILE_TOKENS, side="right"))
        stop = max(stop, start + 1)
        writer = DataFileWriter(table.url, schemas.TOKENS, layout, name=f"{start:032x}")
        for first in range(start, stop, _BATCH_DOCUMENTS):
            bounds = begins[first : min(first + _BATCH_DOCUMENTS, stop) + 1]
            rows = range(first, first + len(bounds) - 1)
            columns = [
                pa.array([f"document-{row}" for row in rows]),
                pa.array(["s3://bench/documents.parquet"] * len(rows)),
                pa.array(rows, pa.int64()),
                make_lists(bounds - bounds[0], np.array(given.tokens[bounds[0] : bounds[-1]])),
                pa.array(np.diff(bounds), pa.int64()),
            ]
            names = [field.name for field in schema]
            writer.append(pa.table(columns, names=names).cast(schema))
        fragments += writer.close()
        start = stop
    table.commit(fragments, transactions={})
    return sum(storage.file_size(storage.join(table.url, f.path)) or 0 for f in fragments)
