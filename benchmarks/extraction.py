"""Extract the main text of pages: all extractors side by side, quality by kind and language, and speed.

    TOKENLAKE_DATA=... python benchmarks/extraction.py [--packages FOLDER] [--worst FILE.html]
    TOKENLAKE_DATA=... python benchmarks/extraction.py --held-back FOLDER

The first reads the pages that the model is trained on; so Tokenlake's texts are from cross-validation by
host: each page's model has not seen its site. ``--packages`` adds the documentation in Debian packages
(``train_extraction.py`` downloads them). ``--held-back`` reads ``articles.parquet`` and ``segments.parquet``
of another folder, and measures the model of the package. ``--worst`` writes a page with the fifty pages on
which Tokenlake is worst. Speed is CPU time of one thread, of all extractors on the same pages.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from main_text import dataset, learn
from main_text.documentation import mdn
from main_text.extractors import PEERS, resiliparse_parse
from main_text.pages import Page, articles, newspapers, segments
from main_text.scores import Counts, bootstrap, counts, f1
from main_text.worst import write_worst
from token_data import data_folder
from train_extraction import MADE_EACH, SETS, TRAINED_ON

from etl.text.main_text_model import load_model

OWN = "Tokenlake"
SPEED_PAGES = 60
SMALLEST_GROUP = 5  # pages of a language or kind that have a row

Group = tuple[str, Callable[[Page], bool]]


def cross_validated(data: Path, packages: Path | None) -> tuple[list[Page], list[str]]:
    """Return the labelled pages, and the text of each by a model that has not seen its site."""
    others = dataset.examples([*newspapers(data / "extraction"), *mdn(data)])
    real = [*dataset.examples(dataset.real_pages(data, packages)), *others]
    chosen = [*real, *dataset.made_examples(data, MADE_EACH)]
    texts = learn.cross_validate(chosen, load_model().names, TRAINED_ON)
    return [each.page for each in real], [texts[index] for index in range(len(real))]


def groups(pages: Sequence[Page]) -> list[Group]:
    """Return the sets, and the kinds and languages of pages within them that are not too few."""
    found: list[Group] = [(name, belongs) for name, belongs in SETS.items()]
    for source in ("segments", "documentation", "mdn"):
        for field in ("kind", "language"):
            values = sorted({str(getattr(page, field)) for page in pages if page.source == source})
            if len(values) > 1:
                found += [
                    (f"{source}, {value}", partial(_has, source, field, value)) for value in values
                ]
    return found


def _has(source: str, field: str, value: str, page: Page) -> bool:
    return page.source == source and str(getattr(page, field)) == value


def print_quality(pages: Sequence[Page], rows: dict[str, Counts]) -> None:
    """Print F1 of all extractors for each group, and Tokenlake's difference to trafilatura."""
    print(f"| pages | n | {' | '.join(rows)} | own - trafilatura, precision (95 %) |")
    print(f"|{'---|' * (len(rows) + 3)}")
    for name, belongs in groups(pages):
        at = np.flatnonzero([belongs(page) for page in pages])
        if len(at) < SMALLEST_GROUP:
            continue
        measure = partial(f1, by_text=pages[at[0]].text is not None)
        cells = " | ".join(f"{measure(found[at]):.3f}" for found in rows.values())
        difference, low, high = bootstrap(
            rows[OWN][at], rows["trafilatura, precision"][at], measure
        )
        print(f"| {name} | {len(at)} | {cells} | {difference:+.3f} ({low:+.3f} to {high:+.3f}) |")


def print_speed(pages: Sequence[Page]) -> None:
    """Print the speeds of all extractors on a sample of pages, Tokenlake before and after the others."""
    some = pages[:: max(1, len(pages) // SPEED_PAGES)]
    size, model = sum(len(page.html) for page in some) / 1e6, load_model()
    batch = learn.as_texts(some)
    runs: dict[str, Callable[[], object]] = {
        OWN: lambda: learn.extract_batch(model, batch),
        "resiliparse, only parsing": lambda: [resiliparse_parse(page) for page in some],
        **{name: partial(_each, run, some) for name, run in PEERS.items()},
        f"{OWN} again": lambda: learn.extract_batch(model, batch),
    }
    print(
        f"\n{len(some)} pages, {size:.1f} MB\n\n| extractor | ms/page | MB of HTML/s |\n|---|---|---|"
    )
    for name, run in runs.items():
        run()
        best = min(_seconds(run) for _ in range(5 if OWN in name else 1))
        print(f"| {name} | {best / len(some) * 1e3:.3f} | {size / best:.1f} |", flush=True)


def _each(run: Callable[[Page], str], pages: Sequence[Page]) -> list[str]:
    return [run(page) for page in pages]


def _seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--held-back", type=Path)
    parser.add_argument("--worst", type=Path)
    given = parser.parse_args()
    if given.held_back:
        pages = [*articles(given.held_back), *segments(given.held_back)]
        texts = {OWN: learn.extract_texts(load_model(), pages)}
    else:
        pages, own = cross_validated(data_folder(), given.packages)
        texts = {OWN: own}
    texts |= {name: _each(run, pages) for name, run in PEERS.items()}
    rows = {
        name: np.array([counts(page, text) for page, text in zip(pages, found, strict=True)])
        for name, found in texts.items()
    }
    print_quality(pages, rows)
    print_speed([page for page in pages if page.source in ("articles", "segments")])
    if given.worst:
        write_worst(given.worst, pages, texts, rows, own=OWN)


if __name__ == "__main__":
    main()
