"""datatrove's part of peers_end_to_end.py, which runs in a separate environment without Tokenlake.

    python datatrove_chain.py DOCUMENTS FOLDER MODEL TOKENIZER

follows datatrove's example ``fineweb.py`` from text on: LanguageFilter to FineWebQualityFilter, each with
its writer of rejected documents, then the four steps of MinHash, then DocumentTokenizer, with
LocalPipelineExecutor on two processes. DOCUMENTS is a folder of Parquet files. Prints as JSON the seconds
of each step, and the documents and tokens at the end.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor
from datatrove.io import strip_protocol
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.lid import FT176LID
from huggingface_hub import cached_assets_path

WORKERS = 2


def keep_model(model: Path) -> None:
    """Put lid.176.ftz where datatrove would keep lid.176.bin, the same model not compressed."""
    folder = cached_assets_path("datatrove", namespace="lid", subfolder=FT176LID.MODEL_SUBFOLDER)
    kept = folder / strip_protocol(FT176LID.MODEL_URL).replace("/", "_")
    shutil.copy(model, kept)
    kept.with_name(f"{kept.name}.completed").touch()


def main() -> None:
    """Run the steps in order."""
    documents, model, tokenizer = (Path(sys.argv[place]) for place in (1, 3, 4))
    folder = Path(sys.argv[2])
    keep_model(model)
    files = len(list(documents.glob("*.parquet")))
    config = MinhashConfig(
        num_buckets=14, hashes_per_bucket=8, n_grams=5, hash_config=HashConfig(precision=64)
    )
    parts = {
        name: str(folder / name)
        for name in ("filtered", "signatures", "buckets", "remove", "kept", "tokens")
    }

    def rejected(name: str) -> Any:
        return JsonlWriter(str(folder / "removed" / name))

    filters = [
        ParquetReader(str(documents)),
        LanguageFilter(languages=["en"], exclusion_writer=rejected("language")),
        GopherRepetitionFilter(exclusion_writer=rejected("gopher_repetition")),
        GopherQualityFilter(exclusion_writer=rejected("gopher_quality")),
        C4QualityFilter(filter_no_terminal_punct=False, exclusion_writer=rejected("c4")),
        FineWebQualityFilter(exclusion_writer=rejected("fineweb_quality")),
        JsonlWriter(parts["filtered"]),
    ]
    filtered = JsonlReader(parts["filtered"])
    steps: dict[str, tuple[int, list[Any]]] = {
        "filters": (files, filters),
        "signatures": (
            files,
            [filtered, MinhashDedupSignature(parts["signatures"], config=config)],
        ),
        "buckets": (
            config.num_buckets,
            [MinhashDedupBuckets(parts["signatures"], parts["buckets"], config=config)],
        ),
        "clusters": (1, [MinhashDedupCluster(parts["buckets"], parts["remove"], config=config)]),
        "deduplicated": (
            files,
            [filtered, MinhashDedupFilter(parts["remove"]), JsonlWriter(parts["kept"])],
        ),
        "tokens": (
            files,
            [JsonlReader(parts["kept"]), DocumentTokenizer(parts["tokens"], str(tokenizer))],
        ),
    }
    seconds = {}
    for name, (tasks, pipeline) in steps.items():
        begun = time.perf_counter()
        logs = str(folder / "logs" / name)
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=WORKERS, logging_dir=logs).run()
        seconds[name] = round(time.perf_counter() - begun, 1)
    sizes = [path.read_text().split("\n")[1] for path in Path(parts["tokens"]).glob("*.metadata")]
    ends = sum(path.stat().st_size // 8 for path in Path(parts["tokens"]).glob("*.index"))
    print(json.dumps({"documents": ends, "tokens": sum(map(int, sizes)), "steps": seconds}))


if __name__ == "__main__":
    main()
