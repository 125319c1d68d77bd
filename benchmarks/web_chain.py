"""Web archive to tokens: the recipe ``fineweb`` with each extractor, and where the time goes.

    TOKENLAKE_DATA=... python benchmarks/web_chain.py [--copies 8] [--rounds 2]

writes the labelled pages of ``extraction/`` as archives like Common Crawl's, with copies whose words are in
another order, so that few are duplicates. Two workers run the recipe. The time of a stage is the sum of both,
as in ``etl report``; the fewest seconds of alternating rounds. Kernels are compiled before.
"""

import argparse
import gzip
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from archives import labelled_pages, records
from token_data import data_folder

import etl

EXTRACTORS = ("tokenlake", "resiliparse", "trafilatura")
ARCHIVES = 8
CRAWL_PAGES = 3_000_000_000  # about as many as a crawl of Common Crawl has
DOLMA_HOURS = 14_400  # vCPU-hours that were published for the later crawls of Dolma 3

_TEXT = re.compile(rb">([^<>{}]{40,})<")
_WALL = "whole run, wall"

Times = dict[str, float]


def copies(pages: list[bytes], count: int) -> Iterator[bytes]:
    """Yield the pages, and copies in which the words between two tags are in another order."""
    yield from pages
    for number in range(1, count):
        chance = random.Random(number)  # noqa: S311 - the same pages in each run
        for page in pages:
            yield _TEXT.sub(lambda text: _shuffled(text[1], chance), page)  # noqa: B023 - at once


def _shuffled(text: bytes, chance: random.Random) -> bytes:
    words = text.split(b" ")
    return b">" + b" ".join(chance.sample(words, len(words))) + b"<"


def write_archives(folder: Path, count: int) -> tuple[int, int]:
    """Write archives of the pages and their copies; return the number of pages and of their bytes."""
    pages = [*copies([*labelled_pages(data_folder() / "extraction")], count)]
    for number in range(ARCHIVES):
        own = records(f"part-{number}", pages[number::ARCHIVES])
        (folder / f"{number}.warc.gz").write_bytes(b"".join(map(gzip.compress, own)))
    return len(pages), sum(map(len, pages))


def run(source: Path, extractor: str) -> Times:
    """Run the recipe, and return the seconds of both workers in each stage, and of the run."""
    with tempfile.TemporaryDirectory() as lake:
        settings = {"extract": extractor, "source.path": str(source), "lake": lake}
        report = etl.run("fineweb", settings=settings, cluster=etl.Cluster(workers=2))
        costs = etl.report(lake).costs
    return {each.name: each.seconds for each in costs} | {_WALL: report.seconds}


def print_table(best: dict[str, Times], pages: int) -> None:
    """Print the milliseconds per page of each stage, the ratios, and the hours of a crawl."""
    columns = " | ".join(best)
    print(f"| ms per page | {columns} |\n|---|{'---|' * len(best)}")
    totals = {name: sum(t for s, t in times.items() if s != _WALL) for name, times in best.items()}
    rows = {stage: [times[stage] for times in best.values()] for stage in next(iter(best.values()))}
    for stage, found in {"all workers": [*totals.values()], **rows}.items():
        print(f"| {stage} | " + " | ".join(f"{t / pages * 1e3:.3f}" for t in found) + " |")
    own = totals[next(iter(best))]
    print(
        "| ratio of all workers | " + " | ".join(f"{t / own:.1f}" for t in totals.values()) + " |"
    )
    hours = [t / pages * CRAWL_PAGES / 3600 for t in totals.values()]
    print("| core-hours for 3 billion pages | " + " | ".join(f"{h:,.0f}" for h in hours) + " |")
    print(f"\nPublished for the later crawls of Dolma 3: {DOLMA_HOURS:,} vCPU-hours.")


def main() -> None:
    """Print the figures as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--extractors", nargs="+", default=EXTRACTORS, choices=EXTRACTORS)
    given = parser.parse_args()
    etl.warm_kernels()
    best: dict[str, Times] = {}
    with tempfile.TemporaryDirectory() as folder:
        pages, size = write_archives(Path(folder), given.copies)
        print(f"{pages:,} pages, {size / 1e6:,.0f} MB of HTML, best of {given.rounds} rounds\n")
        for _ in range(given.rounds):
            for name in given.extractors:
                found = run(Path(folder), name)
                best[name] = {s: min(t, best.get(name, found)[s]) for s, t in found.items()}
    print_table(best, pages)


if __name__ == "__main__":
    main()
