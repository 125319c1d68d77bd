"""Train a small GPT on a lake with DistributedDataParallel, and resume exactly after a kill.

python -m etl.pipelines.train_ddp LAKE --out runs/a --steps 200
torchrun --standalone --nproc-per-node 2 -m etl.pipelines.train_ddp LAKE --out runs/a --steps 200

Uses gloo on CPUs; on GPUs NCCL and, if supported, bfloat16. A run resumes from the last checkpoint in
``--out``, with the same or another number of processes: model, optimizer and loader state, so no window is
repeated or skipped. Rank 0 prints a JSON line every few steps:

    loss        mean cross-entropy of the step over all ranks
    tokens_s    tokens of all ranks per second since the last line
    waiting     share of that time in which this rank waited for data
    mfu         model FLOPs utilization: share of the GPU's bfloat16 peak; null if the peak is unknown
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from etl.errors import LoaderError, TokenlakeError
from etl.loader import TokenDataset, open_shared
from etl.pipelines.gpt import GPT, Shape

# Dense bfloat16 without sparsity, in FLOP/s, from NVIDIA's data sheets.
_PEAK_FLOPS = {
    "A100": 312e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "L40S": 362e12,
    "L4": 121e12,
}
_WARMUP_STEPS = 20
_CLIP_NORM = 1.0  # this and the next two: Brown et al. 2020, appendix B
_BETAS = (0.9, 0.95)
_WEIGHT_DECAY = 0.1
_OPTION_TYPES = {"learning_rate": float, "version": str}  # the others are int
_NONE_HELP = {
    "version": "a version number or the name of a release; default: the newest version",
    "vocab_size": "default: that of the tokenizer in the lineage",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run; each is a command line option."""

    lake: str
    out: str
    version: str | None = None  # a number or the name of a release; None: the newest
    vocab_size: int | None = None  # None: that of the tokenizer in the lineage
    seed: int = 0
    steps: int = 200
    batch_size: int = 8
    seq_len: int = 512
    layers: int = 6
    width: int = 384
    heads: int = 6
    learning_rate: float = 1e-3
    save_every: int = 50
    log_every: int = 1
    prefetch: int = 4
    compile: bool = False


class Run:
    """A training run: the content of a checkpoint, and the device."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings = settings
        self.device = device
        self.dataset = open_shared(
            lambda: TokenDataset(
                settings.lake,
                seq_len=settings.seq_len,
                version=settings.version,
                seed=settings.seed,
            )
        )
        torch.manual_seed(settings.seed)  # the same weights on all ranks
        self.shape = Shape(
            vocab_size=_read_vocab_size(self.dataset)
            if settings.vocab_size is None
            else settings.vocab_size,
            layers=settings.layers,
            width=settings.width,
            heads=settings.heads,
        )
        self.model = GPT(self.shape).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.learning_rate,
            betas=_BETAS,
            weight_decay=_WEIGHT_DECAY,
            fused=device.type == "cuda",
        )
        self.step = 0

    @property
    def num_parameters(self) -> int:
        """The number of weights of the model; the tied embedding counts once."""
        return sum(weights.numel() for weights in self.model.parameters())

    def load(self) -> None:
        """Load the checkpoint in the output folder, if there is one."""
        path = _checkpoint_path(self.settings)
        if not path.exists():
            return
        saved = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.dataset.load_state_dict(saved["data"])
        self.step = saved["step"]

    def save(self) -> None:
        """Write a checkpoint atomically, on rank 0 only: all ranks have the same state."""
        if self.dataset.rank != 0:
            return
        path = _checkpoint_path(self.settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data": self.dataset.state_dict(),
            "step": self.step,
        }
        torch.save(content, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def batches(self) -> Iterator[dict[str, Tensor]]:
        """Yield batches on the device without end, from the state of the dataset."""
        settings, pinned = self.settings, self.device.type == "cuda"
        while True:
            for batch in self.dataset.batches(settings.batch_size, prefetch=settings.prefetch):
                yield {
                    name: (values.pin_memory() if pinned else values).to(
                        self.device, non_blocking=True
                    )
                    for name, values in batch.items()
                }


def learning_rate(step: int, settings: Settings) -> float:
    """Return a linear warm-up, then a cosine decay to a tenth (Hoffmann et al. 2022, section 3).

    >>> settings = Settings(lake="", out="", steps=120, learning_rate=1.0)
    >>> [round(learning_rate(step, settings), 2) for step in (0, 19, 20, 70, 120)]
    [0.05, 1.0, 1.0, 0.55, 0.1]
    """
    if step < _WARMUP_STEPS:
        return settings.learning_rate * (step + 1) / _WARMUP_STEPS
    done = (step - _WARMUP_STEPS) / max(settings.steps - _WARMUP_STEPS, 1)
    return settings.learning_rate * (0.55 + 0.45 * math.cos(math.pi * done))


def peak_flops(name: str) -> float | None:
    """Return the bfloat16 peak of a GPU by its name, or None if it is unknown.

    >>> peak_flops("NVIDIA H100 80GB HBM3"), peak_flops("Radeon")
    (989000000000000.0, None)
    """
    return next((peak for known, peak in _PEAK_FLOPS.items() if known in name), None)


def train(settings: Settings) -> None:
    """Train up to ``settings.steps``, from the checkpoint in ``settings.out`` if there is one."""
    device = _join_process_group()
    try:
        run = Run(settings, device)
        run.load()
        _train(run)
    finally:
        dist.destroy_process_group()


def _train(run: Run) -> None:
    settings = run.settings
    parallel: Any = DistributedDataParallel(run.model)
    if settings.compile:
        parallel = torch.compile(parallel)
    clock, waited, logged = time.perf_counter(), run.dataset.waited, run.step
    for batch in run.batches():
        if run.step >= settings.steps:
            return
        for group in run.optimizer.param_groups:
            group["lr"] = learning_rate(run.step, settings)
        with _autocast(run.device):
            loss = parallel(batch["input_ids"], batch["labels"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), _CLIP_NORM)
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.step += 1
        if run.step % settings.log_every == 0 or run.step == settings.steps:
            mean = _mean_over_ranks(loss)
            now = time.perf_counter()
            _print_log_line(
                run,
                loss=mean,
                seconds=now - clock,
                steps=run.step - logged,
                waited=run.dataset.waited - waited,
            )
            clock, waited, logged = now, run.dataset.waited, run.step
        if run.step % settings.save_every == 0 or run.step == settings.steps:
            run.save()


def _print_log_line(run: Run, *, loss: float, seconds: float, steps: int, waited: float) -> None:
    """Print a line about the last ``steps`` steps, on rank 0."""
    dataset = run.dataset
    if dataset.rank != 0:
        return
    settings = run.settings
    tokens = steps * settings.batch_size * settings.seq_len * dataset.world_size / seconds
    peak = peak_flops(torch.cuda.get_device_name(run.device)) if run.device.type == "cuda" else None
    flops = run.shape.flops_per_token(run.num_parameters, settings.seq_len)
    line = {
        "step": run.step,
        "epoch": dataset.epoch,
        "loss": loss,
        "tokens_s": round(tokens),
        "waiting": round(waited / seconds, 4),
        "mfu": None if peak is None else round(tokens * flops / dataset.world_size / peak, 4),
    }
    print(json.dumps(line), flush=True)


def _join_process_group() -> torch.device:
    """Join the process group of torchrun, or create one of a single process; return the device."""
    single: dict[str, Any] = {}
    if "RANK" not in os.environ:  # without torchrun
        store = dist.HashStore()  # type: ignore[attr-defined]
        single = {"rank": 0, "world_size": 1, "store": store}
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", **single)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, **single)
    return device


def _autocast(device: torch.device) -> AbstractContextManager[object]:
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", torch.bfloat16)
    return nullcontext()


def _mean_over_ranks(loss: Tensor) -> float:
    """Return the mean of a loss over all ranks."""
    total = loss.detach().float().clone()
    dist.all_reduce(total)
    return float(total.item()) / dist.get_world_size()


def _read_vocab_size(dataset: TokenDataset) -> int:
    tokenizer = dataset.tokenizer()
    if tokenizer is None:
        raise LoaderError(
            "the lineage names no tokenizer", where=dataset.where, hint="set --vocab-size"
        )
    return tokenizer.vocab_size


def _checkpoint_path(settings: Settings) -> Path:
    return Path(settings.out, "checkpoint.pt")


def _parse_settings(words: Sequence[str]) -> Settings:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="train_ddp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lake", metavar="LAKE", help="the URL or path of a lake")
    for field in fields(Settings)[1:]:
        option = f"--{field.name.replace('_', '-')}"
        if field.name == "compile":
            parser.add_argument(option, action="store_true", help="use torch.compile")
        elif field.name == "out":
            parser.add_argument(
                option, required=True, metavar="FOLDER", help="folder of the checkpoint"
            )
        else:
            kind = _OPTION_TYPES.get(field.name, int)
            text = _NONE_HELP.get(field.name, f"default: {field.default}")
            parser.add_argument(option, type=kind, default=field.default, metavar="N", help=text)
    return Settings(**vars(parser.parse_args(words)))


if __name__ == "__main__":
    try:
        train(_parse_settings(sys.argv[1:]))
    except TokenlakeError as error:
        sys.exit(f"error: {error}")
