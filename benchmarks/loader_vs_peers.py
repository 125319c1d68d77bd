"""Compare the loader with MosaicML Streaming, LitData, HF datasets, Megatron-core, datatrove and a memmap.

    TOKENLAKE_DATA=... python benchmarks/loader_vs_peers.py

tokenizes the texts of ``$TOKENLAKE_DATA`` (156 M tokens of Qwen3's vocabulary), creates an environment for
each peer in ``benchmarks/.peers`` (from PyPI, once; torch comes from this environment), lets each write the
same tokens in its own format, and prints for batches of 8 x 2049 tokens, shuffled over all tokens:

    first ms     from opening the data to the first batch, without imports
    resume ms    the same from a state saved half way through
    Mtok/CPU s   tokens per CPU second of all processes, by the number of DataLoader workers
    anon, all MB memory beyond the imports, without workers: anonymous, and including mapped files
    bytes/token  on disk
    evenness     the variance of the shares of 100 equal sources in consecutive files, in batches of 1,024
                 consecutive windows, divided by that of independent windows: 1 for random windows

Rounds run all loaders in turn, each in a fresh process; the figures are the best of the rounds, since other
load can only slow a loader down. A peer that cannot be installed or run is listed with the reason.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path
from typing import Any

import numpy as np
from token_data import CACHE, Corpus, corpus, data_folder, write_table

_SOURCES, _IDS_PER_SOURCE = 100, 1000
SCRIPT = Path(__file__).parent / "peers" / "measure_loader.py"
PEERS = {
    "memmap": (),
    "tokenlake": (),
    "megatron": ("megatron-core==0.16.1",),
    "megatron-gpt": ("megatron-core==0.16.1",),
    "datatrove": ("datatrove[io]==0.10.1",),
    "litdata": ("litdata==0.2.76",),
    "huggingface": ("datasets==5.2.0",),
    "mosaic": ("mosaicml-streaming==0.13.0",),
}


@dataclass
class Peer:
    """A loader: its interpreter, its data, and the best measurements so far."""

    name: str
    python: Path
    folder: Path
    found: dict[str, float]

    def do(self, what: str, *options: object) -> dict[str, Any]:
        """Run the script for one measurement; raises CalledProcessError."""
        command = list(map(str, [self.python, SCRIPT, what, self.name, self.folder, *options]))
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def note(self, values: dict[str, float]) -> None:
        """Keep the best of each measurement: the minimum, or the maximum of a speed."""
        for key, value in values.items():
            best = max if key.startswith("speed") else min
            self.found[key] = best(self.found.get(key, value), value)


def environment(name: str) -> Path:
    """Return the interpreter of a peer's environment; create it if necessary."""
    if not PEERS[name]:
        return Path(sys.executable)
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *PEERS[name]]
        subprocess.run(install, check=True, capture_output=True, text=True)
        (folder / "ready").touch()
    # Also into an environment that another benchmark created.
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (site / "site-packages" / "torch.pth").write_text(get_path("purelib"))
    return python


def prepare(name: str, data: Path) -> Peer:
    """Write a peer's data, and save its state half way through."""
    given = corpus(data)
    folder = CACHE / f"data-{name}"
    peer = Peer(name, environment(name), folder, {})
    kept = folder.with_suffix(".json")
    if not kept.exists():
        shutil.rmtree(folder, ignore_errors=True)
        size = write(peer, given)
        peer.do("save", "--tokens", len(given.tokens))
        kept.write_text(str(size))
    peer.found["size"] = int(kept.read_text()) / len(given.tokens)
    return peer


def write(peer: Peer, given: Corpus) -> int:
    """Write tokens in a peer's format, and return the bytes on disk."""
    if peer.name == "tokenlake":
        return write_table(given, peer.folder)
    return int(peer.do("write", given.path.parent)["bytes"])


def mark_sources(given: Corpus) -> Corpus:
    """Write the corpus with other token ids, which name one of 100 equal sources and vary as much."""
    folder = CACHE / "tokens-marked"
    path = folder / "tokens.bin"
    folder.mkdir(exist_ok=True)
    lengths = np.diff(given.ends, prepend=0)
    sources = (given.ends - 1) * _SOURCES // int(given.ends[-1])
    marks = np.repeat((sources * _IDS_PER_SOURCE).astype(np.int32), lengths)
    marks += given.tokens % _IDS_PER_SOURCE
    marks.tofile(path)
    np.save(folder / "ends.npy", given.ends)
    tokens = np.memmap(path, np.int32, mode="r")
    return Corpus(path, tokens, given.ends, given.text_bytes)


def measure_evenness(peer: Peer, marked: Corpus) -> float:
    """Return the variance ratio of a peer's order; once, since the order is always the same."""
    kept = CACHE / f"evenness-{peer.name}.json"
    if not kept.exists():
        other = Peer(peer.name, peer.python, CACHE / f"marked-{peer.name}", {})
        shutil.rmtree(other.folder, ignore_errors=True)
        write(other, marked)
        kept.write_text(json.dumps(other.do("evenness", "--ids-per-source", _IDS_PER_SOURCE)))
        shutil.rmtree(other.folder)
    return float(json.loads(kept.read_text())["window_ratio"])


def measure(peer: Peer, tokens: int) -> None:
    """Run one round of a peer."""
    for workers in (0, 2):
        # A message from a worker costs the same whatever its size: fewer tokens are enough.
        found = peer.do("run", "--workers", workers, "--tokens", tokens // (1 + workers))
        peer.note({f"speed {workers}": found["tokens"] / 1e6 / found["cpu_s"]})
        if not workers:
            peer.note({key: found[key] for key in ("first_s", "anonymous", "resident")})
    peer.note(peer.do("resume"))


def reason(error: Exception) -> str:
    """Return the last line of a command's output."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def main() -> None:
    """Install, write, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=60_000_000, help="per run without workers")
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=PEERS)
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    os.environ["PYTHONWARNINGS"] = "ignore"
    data, peers = data_folder(), []
    for name in chosen.only:
        try:
            peers.append(prepare(name, data))
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{name}: {reason(error)}", flush=True)
    for _ in range(chosen.rounds):
        for peer in list(peers):
            try:
                measure(peer, chosen.tokens)
            except subprocess.SubprocessError as error:
                peers.remove(peer)
                print(f"{peer.name}: {reason(error)}", flush=True)
    marked = mark_sources(corpus(data))
    for peer in list(peers):
        try:
            peer.found["even"] = measure_evenness(peer, marked)
        except subprocess.SubprocessError as error:
            peers.remove(peer)
            print(f"{peer.name}: {reason(error)}", flush=True)
    print(
        "| loader | first ms | resume ms | Mtok/CPU s, W=0 | W=2 | anon MB | all MB | bytes/token "
        "| evenness |"
    )
    print("|---" * 9 + "|")
    for peer in sorted(peers, key=lambda peer: -peer.found["speed 0"]):
        f = peer.found
        print(
            f"| {', '.join(PEERS[peer.name]) or peer.name} | {f['first_s'] * 1e3:.0f} | "
            f"{f['resume_s'] * 1e3:.0f} | {f['speed 0']:.1f} | {f['speed 2']:.1f} | "
            f"{f['anonymous']:.0f} | {f['resident']:.0f} | {f['size']:.2f} | "
            f"{f['even']:.2f} |"
        )


if __name__ == "__main__":
    main()
