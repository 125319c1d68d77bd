"""Compare the kernels for fastText models with fastText itself: labels, scores, and time per document.

    TOKENLAKE_DATA=... taskset -c 1 python benchmarks/language_identification.py [--model FILE]

reads documents of ``bench`` and ``docs``, and HTML pages of ``web``, in ``$TOKENLAKE_DATA``. The first 1,000
characters are classified, with lid.176.ftz or another supervised model. Both run alternately in one process,
on texts in memory; the time is CPU time of one thread, the best of five rounds. fastText gets texts that are
cut and without line feeds; the kernels do that themselves. ``compile`` is the time to compile the kernels, if
the cache is empty (set NUMBA_CACHE_DIR to an empty folder), or to load them.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import fasttext
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl.text import language_id
from etl.text.fasttext_model import FastTextModel, load_local_model

ROUNDS = 5
TEXTS = {
    "win32 (English)": ("bench/win32*.parquet", "text"),
    "gesetze (German)": ("bench/gesetze*.parquet", "text"),
    "dracor (German)": ("bench/dracor*.parquet", "text"),
    "cc-by-docs (many languages)": ("bench/cc-by*.parquet", "text"),
    "docs (many languages)": ("docs/docs-*.parquet", "text"),
    "web (HTML, many languages)": ("web/*.parquet", "text"),
}


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(column: pa.Array, model: FastTextModel, theirs: "fasttext.FastText._FastText") -> str:
    """Return a row of the table."""
    starts = pc.replace_substring(pc.utf8_slice_codeunits(column, 0, 1000), "\n", " ").to_pylist()
    ours, reference = [], []
    for _ in range(ROUNDS):
        ours.append(cpu_seconds(lambda: model.best(column, max_chars=1000)))
        reference.append(cpu_seconds(lambda: [theirs.predict(text, 1) for text in starts]))
    labels, scores = model.best(column, max_chars=1000)
    predicted = [theirs.predict(text, 1) for text in starts]
    wanted = [label.removeprefix("__label__") for ((label,), _) in predicted]
    differing = sum(one != other for one, other in zip(labels.to_pylist(), wanted, strict=True))
    probabilities = np.minimum([float(score) for (_, (score,)) in predicted], 1)
    difference = np.abs(scores.to_numpy(zero_copy_only=False) - probabilities).max()
    mine, other = (min(times) / len(column) * 1e6 for times in (ours, reference))
    ratio = f"{mine:.1f} | {other:.0f} | {other / mine:.1f}"
    return f"{len(column)} | {ratio} | {differing} | {difference:.1e}"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--model", type=Path, default=language_id.model_path())
    arguments = parser.parse_args()
    data = Path(os.environ["TOKENLAKE_DATA"])
    model = load_local_model(arguments.model, str(arguments.model))
    theirs = fasttext.load_model(str(arguments.model))
    compiling = cpu_seconds(lambda: model.best(pa.array(["a text"])))
    print(f"compile: {compiling:.1f} s\n")
    print(
        "| texts | documents | kernels us | fastText us | ratio | labels differ | scores differ |"
    )
    print("|---" * 7 + "|", flush=True)
    for name, (pattern, column) in TEXTS.items():
        tables = [pq.read_table(path) for path in sorted(data.glob(pattern))]
        found = [
            table[column].cast(pa.string()) for table in tables if column in table.column_names
        ]
        if not found:
            continue
        texts = pa.chunked_array(
            [chunk for each in found for chunk in each.chunks]
        ).combine_chunks()
        rows = np.linspace(0, len(texts) - 1, min(len(texts), arguments.documents)).astype(int)
        sample = texts.take(pa.array(rows))
        print(f"| {name} | {measure(sample, model, theirs)} |", flush=True)


if __name__ == "__main__":
    main()
