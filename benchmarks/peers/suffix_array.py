"""The suffix array's part of substrings.py: what other tools compute before they remove anything.

    python suffix_array.py MIN_BYTES FILE.parquet ...

Joins the column text of all files, sorts all suffixes with libdivsufsort, measures what neighbours have in
common (Kasai et al. 2001), and marks every window of so many bytes that occurs before. Prints as JSON the CPU
seconds of each step, the bytes that are marked, and the megabytes of memory at most.

text-dedup and datatrove call the program of Lee et al. (https://arxiv.org/abs/2107.06499) for these steps,
which users compile; it was not measured.
"""

import json
import resource
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydivsufsort import divsufsort, kasai

END = b"\xff"
"""Follows each document: no text in UTF-8 has it."""


def join(files: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of all texts, each with an end, and where these ends are."""
    texts = [
        text for file in files for text in pq.read_table(file, columns=["text"])["text"].chunks
    ]
    joined = bytearray()
    ends = []
    for chunk in texts:
        for text in chunk.cast(pa.binary()).to_pylist():
            joined += text or b""
            ends.append(len(joined))
            joined += END
    return np.frombuffer(joined, np.uint8), np.array(ends)


def mark(suffixes: np.ndarray, common: np.ndarray, ends: np.ndarray, size: int) -> int:
    """Return how many bytes are in a window that occurs before: in another document, or ``size`` before."""
    is_next = common[:-1] >= size
    in_group = np.concatenate([[False], is_next]) | np.concatenate([is_next, [False]])
    group = np.cumsum(~np.concatenate([[False], is_next])[in_group])
    starts = suffixes[in_group].astype(np.int64)
    owners = np.searchsorted(ends, starts)
    is_inside = starts + size <= ends[owners]
    starts, owners, group = starts[is_inside], owners[is_inside], group[is_inside]
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    firsts = np.repeat(np.minimum.reduceat(starts, begins), np.diff(begins, append=len(group)))
    is_repeat = (np.searchsorted(ends, firsts) < owners) | (starts - firsts >= size)
    positions = np.sort(starts[is_repeat])
    return int(np.minimum(np.diff(positions, append=ends[-1] + 1 + size), size).sum())


def main() -> None:
    """Run the steps in order."""
    size, files = int(sys.argv[1]), sys.argv[2:]
    joined, ends = join(files)
    times = [time.process_time()]
    suffixes = divsufsort(joined)
    times.append(time.process_time())
    common = kasai(joined, suffixes)
    times.append(time.process_time())
    marked = mark(suffixes, common, ends, size)
    times.append(time.process_time())
    steps = zip(("sort", "compare", "mark"), times[1:], times, strict=False)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    seconds = {name: end - begun for name, end, begun in steps}
    print(json.dumps({**seconds, "bytes": len(joined), "marked": marked, "memory": memory}))


if __name__ == "__main__":
    main()
