"""Compile all kernels ahead of the first run: run every stage that has any on a few documents.

Real runs compile each kernel for exactly the types that later runs call it with. Several processes share the
work, each with its own stages.
"""

import json
import logging
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Final

from etl import pipelines
from etl.compute.fork_server import without_interrupts
from etl.compute.listener import Listener
from etl.compute.local_cluster import start_in_process
from etl.compute.print_listener import listener_of
from etl.compute.worker_count import num_cores
from etl.errors import ClusterError, nearest_names
from etl.job.run import run
from etl.kernels import cpu, jit
from etl.kernels.compile_clock import CLOCK, NUM_KERNELS
from etl.recipe.recipe import Recipe
from etl.text import language_id, segmenters

_ENGLISH: Final = (
    "The heron waded in the shallow water, and no one could say (for certain) for how long. "
    "It waited...  \n* a fish #1\n* a frog - isn't it?\n\n\n\tThat is all that we know of it, says Dr. No! "
    "Write to anna@example.org or call +1 415 555 2671; 192.0.43.10, GB82 WEST 1234 5698 7654 32.\n"
)
_TEXTS: Final = (
    _ENGLISH * 4,
    _ENGLISH * 3 + "One sentence differs.",
    "Der Reiher stand im flachen Wasser. Niemand wußte, wie lange schon.\n\n" * 8,
    "鷺は浅い水の中に立っていた。いつからいたのかは誰にもわからない。\n" * 8,
    "왜가리는 얕은 물속에 서 있었다. 언제부터였는지는 아무도 모른다.\n" * 8,
    "苍鹭站在浅水中。没有人知道它站了多久。\n" * 8,
)

_TOKENIZER: Final = str(Path(pipelines.__file__).parent / "sample" / "tokenizer.json")

# The stages of each run. Runs that take longest to compile come first.
_RUNS: Final[tuple[list[Any], ...]] = (
    [{"extract": {"extractor": "tokenlake", "all_html": True}}],
    [{"dedup_paragraphs": {"min_chars": 20}}, {"tokenize": _TOKENIZER}],
    [
        {"dedup_paragraphs": {"unit": "sentences", "min_chars": 10, "ignore": ["case", "digits"]}},
        {"tokenize": _TOKENIZER},  # cuts the paragraphs
    ],
    [{"dedup_paragraphs": {"unit": "lines", "min_chars": 10}}, {"tokenize": _TOKENIZER}],
    [{"dedup_substrings": {"min_bytes": 32}}, {"tokenize": _TOKENIZER}],
    [{"gopher_repetition": {}}, {"gopher_quality": {}}, {"fineweb_quality": {}}],
    [{"gopher_quality": {"languages": "fineweb2"}}, {"c4": {}}],
    [{"repeated_lines": {}}, {"repeated_paragraphs": {"ignore": ["case", "digits", "space"]}}],
    [{"dedup_minhash": {}}],
    [{"fasttext": {"model": "lid.ftz", "label": "en"}}, {"language": {"min_score": None}}],
    [{"dedup_minhash": {"unit": "chars", "fold_digits": False, "fold_accents": False}}],
    [{"decontaminate": {"sets": {"web": "web.jsonl"}, "ngram": 5, "min_words": 5}}],
    [{"pii": {}}, {"unicode": {"fix": True}}, {"length": {"min_words": 1}}],
    [
        {"url": {"domains": "list.txt", "words": "list.txt", "substrings": "list.txt"}},
        {"sample": {"fraction": 0.9, "by": "content"}},
        "dedup_exact",
    ],
)
# The same with words of dictionaries, whose libraries may not be installed.
_SEGMENTED: Final = [
    {"gopher_repetition": {"words": "dictionary"}},
    {"gopher_quality": {"words": "dictionary"}},
    {"fineweb_quality": {"words": "dictionary"}},
]


_Counts = tuple[tuple[int, int], list[str]]
"""How many versions of kernels a process has compiled and loaded, and the names of their kernels."""


@dataclass(frozen=True)
class Warmed:
    """What `warm_kernels` did: the number of kernels compiled and of those that were in the cache."""

    compiled: int
    loaded: int
    cpu: str  # the processors that the machine code is for
    seconds: float


def warm_kernels(*, workers: int | None = None, listener: Listener | None = None) -> Warmed:
    """Compile the kernels that are not in the cache, in ``workers`` processes (default: one per core).

    ``listener`` follows the kernels that are compiled. By default, a notebook shows them.

    Raises ClusterError if ``TOKENLAKE_CPU`` is not a known level, or if this machine cannot run its code.
    """
    started = time.monotonic()
    _check_cpu()
    runs = list(_RUNS)
    if segmenters.are_installed():
        runs.append(_SEGMENTED)
    context = multiprocessing.get_context("spawn")
    names: SimpleQueue[str] = context.SimpleQueue()
    listener = listener_of(listener)
    listener.status("kernels    checking which are compiled")
    pool = ProcessPoolExecutor(workers or num_cores(), context, _send_names, (names,))
    with pool, _killed_if_stopped():
        with without_interrupts():
            parts = [pool.submit(_compile, run) for run in runs]
        for part in parts:
            part.add_done_callback(lambda _: names.put(""))
        _follow(parts, names, listener)
    counts = [part.result()[0] for part in parts]
    compiled, loaded = (sum(column) for column in zip(*counts, strict=True))
    return Warmed(compiled, loaded, cpu.target(), time.monotonic() - started)


@contextmanager
def _killed_if_stopped() -> Iterator[None]:
    """Kill the processes that the context starts when it is stopped: a kernel takes up to a minute."""
    before = multiprocessing.active_children()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        for process in multiprocessing.active_children():
            if process not in before:
                process.kill()
        raise


def _follow(
    parts: "Sequence[Future[_Counts]]", names: "SimpleQueue[str]", listener: Listener
) -> None:
    """Follow the kernels that are compiled until all parts are done: an empty name is the end of one."""
    ready: set[str] = set()
    for _ in parts:
        while name := names.get():
            if name not in ready:  # else another process compiles it
                ready.add(name)
                listener.compiling(name, len(ready), NUM_KERNELS)
        ready.update(*(part.result()[1] for part in parts if part.done()))


def _send_names(names: "SimpleQueue[str]") -> None:
    """Send the names of kernels that this process compiles."""
    CLOCK.follow(names.put)


def _check_cpu() -> None:
    name = os.environ.get("TOKENLAKE_CPU")
    if name is None or cpu.cpu() is not None:
        return
    if name not in cpu.CPUS:
        what, hint = "an unknown level of processors", nearest_names(name, list(cpu.CPUS))
    else:
        what, hint = "this machine's processor lacks a part of it", "use a lower level"
    raise ClusterError(f"TOKENLAKE_CPU is {name!r}: {what}", hint=hint)


def _compile(stages: list[Any]) -> _Counts:
    """Run stages on texts in two runs, so that the second one finds keys of the first; return the counts."""
    logging.getLogger("etl.kernels").setLevel(logging.ERROR)  # the caller shows the progress
    before = jit.count_kernels()
    with tempfile.TemporaryDirectory() as name, start_in_process() as client:
        folder = Path(name)
        (folder / "list.txt").write_text("example.com\nheron\n", "utf-8")
        shutil.copyfile(language_id.model_path(), folder / "lid.ftz")
        (folder / "web.jsonl").write_text(json.dumps({"text": _ENGLISH}) + "\n", "utf-8")
        source = {"path": "input-*.jsonl", "columns": {"url": "url"}}
        recipe = {"name": "warm", "source": source, "lake": "lake", "stages": stages}
        (folder / "recipe.yaml").write_text(json.dumps(recipe), "utf-8")  # JSON is YAML
        for number in range(2):
            rows = [
                {"text": text, "url": "https://a.example/b"}
                for text in _TEXTS[: len(_TEXTS) - number]
            ]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"input-{number}.jsonl").write_text(lines, "utf-8")
            run(Recipe.load(folder / "recipe.yaml"), cluster=client, listener=Listener())
    compiled, loaded = jit.count_kernels()
    return (compiled - before[0], loaded - before[1]), jit.kernel_names()
