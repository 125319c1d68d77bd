"""Ids and speed of each tokenizer: equal to ``tokenizers`` on a sample, megabytes per second and core.

    TOKENLAKE_DATA=... python benchmarks/tokenization.py [NAME ...]

reads ``tokenizers/NAME/tokenizer.json``, English (``bench/win32*``) and mixed languages (``docs``) in
``$TOKENLAKE_DATA``. Texts are in memory. The time is CPU time of one thread, including the empty cache at the
start: each text is tokenized once. Where gigatoken does not work, 4 MB of each are enough. The reference is
timed, and the ids are compared, on every 200th text. ``memory`` is the maximum resident memory of the
process, including the texts.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.stages.tokenize import Encoder, Tokenize

TEXTS = {"English": "bench/win32*.parquet", "mixed": "docs/docs-*.parquet"}
SAMPLE_EVERY = 200
SLOW_BYTES = 4_000_000  # of text, where the reference does all the work


def measure(path: Path, data: Path) -> list[str]:
    """Return a row of the table: load s, then MB/s and MB/s of the reference for each kind of text."""
    start = time.process_time()
    encoder = Encoder.of(Tokenize(tokenizer=str(path), append_eos=False))
    row = [f"{time.process_time() - start:.1f}"]
    differing = compared = 0
    for pattern in TEXTS.values():
        texts = pq.read_table(sorted(data.glob(pattern)), columns=["text"])["text"]
        if encoder.fallback is not None:
            texts = texts.slice(0, max(1, len(texts) * SLOW_BYTES // texts.nbytes))
        seconds = 0.0
        for begin in range(0, len(texts), 2000):
            batch = texts.slice(begin, 2000).combine_chunks()
            start = time.process_time()
            encoder.encode(batch)
            seconds += time.process_time() - start
        sample = texts.take(pa.array(range(0, len(texts), SAMPLE_EVERY))).combine_chunks()
        start = time.process_time()
        wanted = [encoder.engine.reference_ids(text.as_py()) for text in sample]
        reference = time.process_time() - start
        found = [np.asarray(ids.values) for ids in encoder.encode(sample)]
        differing += sum(not np.array_equal(*pair) for pair in zip(found, wanted, strict=True))
        compared += len(sample)
        row += [f"{texts.nbytes / 1e6 / seconds:.1f}", f"{sample.nbytes / 1e6 / reference:.2f}"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*row, f"{differing} of {compared}", f"{memory:.0f} MB"]


def main() -> None:
    """Print the table as Markdown, with each tokenizer in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    data = Path(os.environ["TOKENLAKE_DATA"])
    names = arguments.names or sorted(p.parent.name for p in data.glob("tokenizers/*/*.json"))
    if arguments.one:
        row = measure(data / "tokenizers" / names[0] / "tokenizer.json", data)
        print("|", " | ".join([names[0], *row]), "|")
        return
    heads = [f"{kind} MB/s | reference" for kind in TEXTS]
    print("|", " | ".join(["tokenizer", "load s", *heads, "differing", "memory"]), "|")
    print("|---" * (len(heads) * 2 + 4) + "|", flush=True)
    for name in names:
        subprocess.run([sys.executable, __file__, "--one", name], check=True)


if __name__ == "__main__":
    main()
