"""NeMo Curator's part of peers_end_to_end.py, which runs in a separate environment without Tokenlake.

    python nemo_curator_chain.py DOCUMENTS FOLDER MODEL TOKENIZER

runs the filters of NeMo Curator that have Gopher's rules, on Ray with two CPUs, and counts tokens:
deduplication needs a GPU, and text is written, not tokens. DOCUMENTS is a folder of Parquet files. Prints
as JSON the documents and tokens at the end.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # RayClient starts `ray`

import pandas as pd
from nemo_curator.backends.ray_data import RayDataExecutor
from nemo_curator.core.client import RayClient
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.filters import DocumentFilter, ScoreFilter
from nemo_curator.stages.text.filters.fasttext import FastTextLangId
from nemo_curator.stages.text.filters.heuristic import (
    BulletsFilter,
    CommonEnglishWordsFilter,
    EllipsisFilter,
    MeanWordLengthFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)
from nemo_curator.stages.text.filters.heuristic.repetition import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
)
from nemo_curator.stages.text.filters.token import TokenCountFilter
from nemo_curator.stages.text.io.reader import ParquetReader
from nemo_curator.stages.text.io.writer import ParquetWriter
from transformers import PreTrainedTokenizerFast

CPUS = (
    6  # as Ray counts: with two, the stages that hold a model take both and the others wait forever
)
FILTERS: list[DocumentFilter] = [
    RepeatedLinesFilter(0.7),
    RepeatedParagraphsFilter(0.7),
    RepeatedLinesByCharFilter(0.8),
    RepeatedParagraphsByCharFilter(0.8),
    *(RepeatingTopNGramsFilter(n, 0.24 - n / 50) for n in (2, 3, 4)),
    *(RepeatingDuplicateNGramsFilter(n, 0.2 - n / 100) for n in range(5, 11)),
    WordCountFilter(),
    MeanWordLengthFilter(),
    SymbolsToWordsFilter(),
    BulletsFilter(),
    EllipsisFilter(),
    WordsWithoutAlphabetsFilter(),
    CommonEnglishWordsFilter(),
]


def main() -> None:
    """Run the filters in one pipeline."""
    documents, folder, model, tokenizer = sys.argv[1:5]
    output = Path(folder) / "kept"
    count = TokenCountFilter(tokenizer=PreTrainedTokenizerFast(tokenizer_file=tokenizer))
    pipeline = Pipeline(name="chain")
    pipeline.add_stage(ParquetReader(documents, files_per_partition=1, fields=["id", "text"]))
    language = FastTextLangId(model, min_langid_score=0.65, lang="EN")
    pipeline.add_stage(ScoreFilter(language, score_field="lang"))
    for each in FILTERS:
        pipeline.add_stage(ScoreFilter(each))
    pipeline.add_stage(ScoreFilter(count, score_field="tokens"))
    pipeline.add_stage(ParquetWriter(str(output)))
    client = RayClient(num_cpus=CPUS, include_dashboard=False)
    client.start()
    try:
        pipeline.run(RayDataExecutor())
    finally:
        client.stop()
    kept = pd.read_parquet(output, columns=["tokens"])
    print(json.dumps({"documents": len(kept), "tokens": int(kept["tokens"].sum())}))


if __name__ == "__main__":
    main()
