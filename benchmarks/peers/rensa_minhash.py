"""rensa's part of dedup_vs_peers.py, which runs in a separate environment without Tokenlake.

    python rensa_minhash.py DOCUMENTS.parquet

cuts the column text into runs of 5 words in Python, as its documentation does, computes signatures of 112
permutations of all documents in one call, and asks its LSH of 14 bands in another which documents share one.
Prints as JSON the CPU seconds of each step, and the number of documents that share a band with another one.
"""

import json
import sys
import time

import pyarrow.parquet as pq
from rensa import RMinHash, RMinHashLSH

PERMUTATIONS, BANDS, NGRAM = 112, 14, 5


def shingles(text: str) -> list[str]:
    """Return runs of words in lower case."""
    words = text.lower().split()
    return [" ".join(words[k : k + NGRAM]) for k in range(max(1, len(words) - NGRAM + 1))]


def main() -> None:
    """Run the steps in order."""
    texts = pq.read_table(sys.argv[1], columns=["text"])["text"].to_pylist()
    times = [time.process_time()]
    cut = [shingles(text) for text in texts]
    times.append(time.process_time())
    signatures = RMinHash.digest_matrix_from_token_sets(cut, PERMUTATIONS, 42)
    times.append(time.process_time())
    lsh = RMinHashLSH(threshold=0.8, num_perm=PERMUTATIONS, num_bands=BANDS)
    flags = lsh.insert_matrix_and_query_duplicate_flags(signatures)
    times.append(time.process_time())
    steps = zip(("shingles", "signatures", "lsh"), times[1:], times, strict=False)
    print(json.dumps([{name: end - begun for name, end, begun in steps}, sum(flags)]))


if __name__ == "__main__":
    main()
