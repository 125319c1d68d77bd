"""Data-Juicer's part of peers_end_to_end.py, which runs in a separate environment without Tokenlake.

    python data_juicer_chain.py DOCUMENTS FOLDER MODEL TOKENIZER

runs ``dj-process`` on two processes with the operators that come nearest to FineWeb's rules, MinHash, and
the count of tokens: Data-Juicer writes text, not tokens. DOCUMENTS is a folder of Parquet files. Prints as
JSON the documents and tokens at the end.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

WORKERS = 2
MINHASH = {"num_permutations": 112, "num_bands": 14, "num_rows_per_band": 8}


def recipe(documents: Path, folder: Path, tokenizer: Path) -> dict[str, object]:
    """Return the recipe: languages, Gopher's rules as far as there are operators, MinHash, tokens."""
    return {
        "project_name": "chain",
        "dataset_path": str(documents),
        "export_path": str(folder / "kept.jsonl"),
        "np": WORKERS,
        "use_cache": False,  # a second run would find the results of the first
        "text_keys": "text",
        "keep_stats_in_res_ds": True,
        "process": [
            {"language_id_score_filter": {"lang": "en", "min_score": 0.65}},
            {"words_num_filter": {"min_num": 50, "max_num": 100_000}},
            {"alphanumeric_filter": {"tokenization": False, "min_ratio": 0.8}},
            {"special_characters_filter": {"max_ratio": 0.25}},
            {"average_line_length_filter": {"min_len": 10}},
            {"character_repetition_filter": {"rep_len": 10, "max_ratio": 0.2}},
            *({"word_repetition_filter": {"rep_len": n, "max_ratio": 0.2 - n / 100}} for n in (5, 10)),
            {"document_minhash_deduplicator": MINHASH},
            {"token_num_filter": {"hf_tokenizer": str(tokenizer.parent), "min_num": 1}},
        ],
    }  # fmt: skip


def main() -> None:
    """Run the recipe, with the model of languages where Data-Juicer would download it to."""
    documents, folder, model, tokenizer = map(Path, sys.argv[1:5])
    models = folder / "models"
    models.mkdir(parents=True)
    shutil.copy(model, models / "lid.176.bin")  # the same model, compressed
    shutil.copytree(tokenizer.parent, folder / "tokenizer")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings))
    path = folder / "recipe.yaml"
    path.write_text(
        yaml.safe_dump(recipe(documents, folder, folder / "tokenizer" / "tokenizer.json"))
    )
    environment = {
        **os.environ,
        "DATA_JUICER_CACHE_HOME": str(folder / "cache"),
        "DATA_JUICER_EXTERNAL_MODELS_HOME": str(models),
        "HF_HUB_OFFLINE": "1",
    }
    command = [str(Path(sys.executable).with_name("dj-process")), "--config", str(path)]
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    kept = [json.loads(line) for line in (folder / "kept.jsonl").open()]
    tokens = sum(row["__dj__stats__"]["num_token"] for row in kept)
    print(json.dumps({"documents": len(kept), "tokens": tokens}))


if __name__ == "__main__":
    main()
