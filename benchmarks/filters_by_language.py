"""Compare the verdicts of the recipe ``multilingual`` and of C4 with datatrove's outside English.

    TOKENLAKE_DATA=... python benchmarks/filters_by_language.py [--languages de ja] [--documents 100]

needs the extra ``segmenters``, and creates an environment with datatrove, spaCy, jieba, SudachiPy and Kiwi
in ``benchmarks/.peers`` (from PyPI, once). Both sides get the same documents: all of a language in ``docs``
and ``cc-by-docs`` of ``$TOKENLAKE_DATA``, and 600 each of the German laws and plays. datatrove's filters
have FineWeb-2's settings (huggingface/fineweb-2, ``fineweb-2-pipeline.py`` and its limits and stop words).
Prints for each language and rule the share of documents that each side rejects, and on which they agree.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filters_vs_peers import HERE, peer

from etl.kernels.signals.stop_word_lists import STOP_WORDS
from etl.recipe.recipe import Recipe
from etl.stages import C4, Filter
from etl.stages.base import Stage
from etl.stages.compute_signals import compute_signals
from etl.stages.fineweb2_limits import limits_of_table
from etl.text import segmenters

PEER = (
    *("datatrove[processing]==0.10.1", "spacy==3.8.18", "pyarrow", "jieba==0.42.1"),
    *(
        "kiwipiepy==0.21.0",
        "kiwipiepy_model==0.21.0",
        "sudachipy==0.7.0",
        "sudachidict_core==20261015",
    ),
)
# Language -> its code in datatrove ("zh" selects the rules of Hakka in Latin letters there), and FineWeb-2's
# stop words that are not words here.
LANGUAGES = {
    "ja": ("jpn_Jpan", "・"),
    "zh": ("cmn_Hani", "·"),
    "ko": ("kor_Hang", ""),
    "de": ("deu_Latn", ""),
    "fr": ("fra_Latn", "l' d'"),
    "ru": ("rus_Cyrl", ""),
}
FILES = (
    ("docs/docs-00000.parquet", None),
    ("bench/cc-by-docs-00000.parquet", None),
    ("bench/gesetze-de-00000.parquet", 600),
    ("bench/dracor-de-00000.parquet", 600),
)  # and how many documents to read; None: all


class Agreement(NamedTuple):
    """The documents that each side rejects: bool (n,)."""

    ours: np.ndarray
    theirs: np.ndarray

    def share(self) -> float:
        """Return the share of documents with the same verdict."""
        return float((self.ours == self.theirs).mean())


def documents(data: Path, language: str, most: int | None) -> pa.Table:
    """Return the documents of a language: id, lang and text."""
    parts = []
    for path, limit in FILES:
        table = pq.read_table(data / path, columns=["id", "lang", "text"])
        is_used = pc.and_(pc.equal(table["lang"], language), pc.not_equal(table["text"], ""))
        table = table.filter(is_used)
        chosen = random.Random(0).sample(range(len(table)), min(limit or len(table), len(table)))  # noqa: S311
        parts.append(table.take(pa.array(chosen, pa.int64())))
    return pa.concat_tables(parts, promote_options="permissive").slice(0, most).combine_chunks()


def settings(language: str) -> dict[str, Any]:
    """Return FineWeb-2's settings of a language for datatrove."""
    code, omitted = LANGUAGES[language]
    kinds = {
        "quality": "gopher_quality",
        "fineweb": "fineweb_quality",
        "repetition": "gopher_repetition",
    }
    return {
        "code": code,
        "stop_words": f"{STOP_WORDS[language]} {omitted}".split(),
        **{
            name: limits_of_table("fineweb2", kind, segmenters.PACKAGES)[language]
            for name, kind in kinds.items()
        },
    }


def datatrove(table: pa.Table, language: str) -> pa.Table:
    """Return datatrove's verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        given, limits, found = (
            Path(folder) / name for name in ("a.parquet", "b.json", "c.parquet")
        )
        pq.write_table(table.select(["id", "text"]), given)
        limits.write_text(json.dumps(settings(language)), "utf-8")
        script = HERE / "peers" / "datatrove_languages.py"
        python = peer("datatrove-languages", PEER)
        subprocess.run([python, script, given, found, limits], check=True, stdout=sys.stderr)
        return pq.read_table(found)


def rules(table: pa.Table, stages: list[Stage]) -> dict[str, np.ndarray]:
    """Return the documents that each rule rejects, with each filter applied to the original text."""
    filters = [stage for stage in stages if isinstance(stage, Filter)]
    names = [name for stage in filters for name in stage.signals() if name != "lang"]
    frame = pl.DataFrame(compute_signals(table.select(["lang", "text"]), [*dict.fromkeys(names)]))
    found = {
        f"{stage.kind}.{name}": frame.select(r=rule.fill_null(value=False))["r"].to_numpy()
        for stage in filters
        for name, rule in stage.rules().items()
    }
    either = found.pop("gopher_quality.symbols") | found.pop("gopher_quality.ellipses")
    return {**found, "gopher_quality.symbols or ellipses": either}


def compare(table: pa.Table, theirs: pa.Table) -> dict[str, Agreement]:
    """Return the agreement of each rule, of the three filters together, and of C4."""
    recipe = Recipe.load("multilingual", settings=["source.path=a", "tokenize.tokenizer=b"])
    filters = [s for s in recipe.documents_stages if s.kind.startswith(("gopher", "fineweb"))]
    ours = rules(table, filters)
    result = {
        name: Agreement(ours[name], pc.fill_null(theirs[name], True).to_numpy())
        for name in theirs.column_names
        if name in ours
    }
    result["all rules"] = Agreement(
        np.any([agreement.ours for agreement in result.values()], axis=0),
        np.any([agreement.theirs for agreement in result.values()], axis=0),
    )
    rows = table.append_column("reason", pa.nulls(len(table), pa.string()))
    for name, stage in (("c4", C4()), ("c4 of FineWeb", C4(terminal_punctuation=False))):
        rejected = pc.is_valid(stage.reasons(stage.apply(rows))).to_numpy(zero_copy_only=False)
        gone = pc.is_null(theirs[f"{name} text"]).to_numpy(zero_copy_only=False)
        result[name] = Agreement(rejected, gone)
    return result


def main() -> None:
    """Print the agreement of each language."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--languages", nargs="+", default=[*LANGUAGES], choices=[*LANGUAGES])
    parser.add_argument("--documents", type=int)
    options = parser.parse_args()
    if "TOKENLAKE_DATA" not in os.environ:
        sys.exit("TOKENLAKE_DATA names no folder of real data")
    for language in options.languages:
        table = documents(Path(os.environ["TOKENLAKE_DATA"]), language, options.documents)
        found = compare(table, datatrove(table, language))
        size = pc.sum(pc.binary_length(table["text"])).as_py() / 1e6
        print(f"\n{language}: {len(table):,} documents, {size:.1f} MB")
        for name, agreement in found.items():
            rejected = f"{agreement.ours.mean():8.2%} {agreement.theirs.mean():8.2%}"
            print(f"{name:40} {rejected} {agreement.share():9.2%}")


if __name__ == "__main__":
    main()
