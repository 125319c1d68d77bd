"""Daft's part of peers_end_to_end.py, which runs in a separate environment without Tokenlake.

    python daft_chain.py DOCUMENTS FOLDER MODEL TOKENIZER

Daft has no quality filters and no classifier of languages: this is what a user would write with its
expressions and functions. Numbers and lengths of words, symbols, and words with letters by regular
expressions; exact duplicates by ``distinct``; signatures by ``minhash``, of which documents that share a
band with an earlier one are dropped; tokens by ``tokenizers`` in a function on batches. DOCUMENTS is a
folder of Parquet files. Prints as JSON the documents and tokens at the end.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # the tokenizer runs on one of Daft's threads

import daft
from daft import DataType, Series, col
from daft.functions import length, list_count, minhash, monotonically_increasing_id, regexp_count
from tokenizers import Tokenizer

BANDS, ROWS = 14, 8


def main() -> None:
    """Run the job in one process, on as many threads as the machine has cores."""
    documents, folder, tokenizer = sys.argv[1], Path(sys.argv[2]), sys.argv[4]
    encoder = Tokenizer.from_file(tokenizer)

    @daft.func.batch(return_dtype=DataType.list(DataType.string()))  # type: ignore[untyped-decorator]
    def in_bands(signatures: Series) -> list[list[str]]:
        return [
            [f"{band} {row[band * ROWS : (band + 1) * ROWS]}" for band in range(BANDS)]
            for row in signatures.to_pylist()
        ]

    @daft.func.batch(return_dtype=DataType.list(DataType.uint32()))  # type: ignore[untyped-decorator]
    def encode(texts: Series) -> list[list[int]]:
        return [found.ids for found in encoder.encode_batch_fast(texts.to_pylist())]

    text = col("text")
    words = regexp_count(text, r"\S+")
    kept = (
        daft.read_parquet(f"{documents}/*.parquet")
        .where((words >= 50) & (words <= 100_000))
        .where(length(text) / words <= 11)
        .where(regexp_count(text, r"#") / words <= 0.1)
        .where(regexp_count(text, r"\S*[A-Za-z]\S*") / words >= 0.8)
        .where(regexp_count(text, r"\b(the|be|to|of|and|that|have|with)\b") >= 2)
        .distinct("text")
        .with_column("number", monotonically_increasing_id())
        .with_column("signature", minhash(text, num_hashes=BANDS * ROWS, ngram_size=5))
        .collect()
    )
    bands = kept.select("number", in_bands(col("signature")).alias("band")).explode("band")
    firsts = bands.groupby("band").agg(col("number").min().alias("first"))
    later = bands.join(firsts, on="band").where(col("number") > col("first"))
    tokens = kept.join(later, on="number", how="anti").select("id", encode(text).alias("tokens"))
    tokens.write_parquet(str(folder / "tokens"))
    found = daft.read_parquet(str(folder / "tokens" / "*.parquet"))
    total = found.select(list_count(col("tokens")).alias("n")).sum("n").to_pydict()["n"][0]
    print(json.dumps({"documents": found.count_rows(), "tokens": total}))


if __name__ == "__main__":
    main()
