"""datatrove's part of dedup_vs_peers.py, which runs in a separate environment without Tokenlake.

    python datatrove_minhash.py DOCUMENTS.parquet FOLDER

deduplicates the column text with the four steps of datatrove's MinHash and FineWeb's settings, in this
process, and prints as JSON the CPU seconds of each step and the ids kept.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter
from datatrove.utils.hashing import HashConfig


def main() -> None:
    """Run the steps in order."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    config = MinhashConfig(hash_config=HashConfig(precision=64))
    reader = ParquetReader(str(source.parent), glob_pattern=source.name)
    parts = {name: str(folder / name) for name in ("signatures", "buckets", "remove", "kept")}
    steps: dict[str, tuple[int, list[Any]]] = {
        "signatures": (1, [reader, MinhashDedupSignature(parts["signatures"], config=config)]),
        "buckets": (
            config.num_buckets,
            [MinhashDedupBuckets(parts["signatures"], parts["buckets"], config=config)],
        ),
        "clusters": (1, [MinhashDedupCluster(parts["buckets"], parts["remove"], config=config)]),
        "filter": (
            1,
            [reader, MinhashDedupFilter(parts["remove"]), ParquetWriter(parts["kept"])],
        ),
    }
    seconds = {}
    for name, (tasks, pipeline) in steps.items():
        begun = time.process_time()
        logs = str(folder / "logs" / name)
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=logs).run()
        seconds[name] = time.process_time() - begun
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
