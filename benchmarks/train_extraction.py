"""Train the model of main text from labelled and made pages, and say what each set of them is worth.

    TOKENLAKE_DATA=... python benchmarks/train_extraction.py --packages FOLDER [--save] [--study]

``FOLDER`` has the Debian packages of ``main_text/selectors.yaml``; the first run downloads them (130 MB; it
needs Debian's apt-get). Prints F1 by cross-validation, folds by host. ``--save`` then trains on all pages and
writes the model into the package, with these figures; ``--study`` also prints what models without some
of the sets reach, and leaves out whole templates and whole kinds of made pages. Deterministic: the same
data gives the same model.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from main_text import dataset, learn
from main_text.dataset import Example
from main_text.documentation import fetch, mdn
from main_text.pages import Page, newspapers
from main_text.scores import score
from token_data import data_folder

from etl.text.main_text_model import BUILT_IN

FEATURES = 64
MADE_EACH = 12
TRAINED_ON = ("articles", "segments", "selected", "documentation", "made")

SETS: dict[str, Callable[[Page], bool]] = {
    "articles": lambda page: page.source == "articles",
    "segments": lambda page: page.source == "segments",
    "selected": lambda page: page.source == "selected" and page.language != "zh",
    "unseen sites": lambda page: page.source == "unseen sites",
    "Chinese": lambda page: page.source == "selected" and page.language == "zh",
    "newspapers": lambda page: page.source == "newspapers",
    "documentation": lambda page: page.source == "documentation",
    "MDN": lambda page: page.source == "mdn",
    "made": lambda page: page.source == "made",
}
STUDY = {
    "articles and segments": ("articles", "segments"),
    "and selected": ("articles", "segments", "selected"),
    "and made": ("articles", "segments", "made"),
    "and documentation": ("articles", "segments", "documentation"),
    "all but made": ("articles", "segments", "selected", "documentation"),
}


def figures(chosen: Sequence[Example], texts: dict[int, str]) -> dict[str, float]:
    """Return the F1 of each set that was measured."""
    found = {}
    for name, belongs in SETS.items():
        measured = [index for index in texts if belongs(chosen[index].page)]
        if measured:
            pages = [chosen[index].page for index in measured]
            found[name] = round(score(pages, [texts[index] for index in measured]), 4)
    return found


def print_row(name: str, found: dict[str, float], seconds: float) -> None:
    """Print a row of a Markdown table."""
    cells = (f"{found[key]:.3f}" if key in found else "" for key in SETS)
    print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


def study(chosen: Sequence[Example], names: Sequence[str]) -> None:
    """Print what models without some sets reach, and made pages of unseen templates and kinds."""
    for name, sources in STUDY.items():
        began = time.process_time()
        found = figures(chosen, learn.cross_validate(chosen, names, sources))
        print_row(name, found, time.process_time() - began)
    trained = [each for each in chosen if each.page.source in TRAINED_ON]
    began = time.process_time()
    texts = learn.cross_validate(trained, names, TRAINED_ON, learn.by_template)
    print_row("all, other templates", figures(trained, texts), time.process_time() - began)
    for kind in sorted({each.page.kind for each in trained if each.page.source == "made"}):
        began = time.process_time()
        texts = learn.cross_validate(trained, names, TRAINED_ON, partial(_is_of_kind, kind), 1)
        print_row(f"all, no {kind}", figures(trained, texts), time.process_time() - began)


def _is_of_kind(kind: str, page: Page, _: int) -> bool:
    return page.source == "made" and page.kind == kind


def main() -> None:
    """Print the table, and save the model if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--study", action="store_true")
    given = parser.parse_args()
    fetch(given.packages)
    data = data_folder()
    real = dataset.examples(dataset.real_pages(data, given.packages))
    trained = [each for each in real if each.page.source in TRAINED_ON]
    trained += dataset.made_examples(data, MADE_EACH)
    others = [each for each in real if each.page.source not in TRAINED_ON]
    others += dataset.examples([*newspapers(data / "extraction"), *mdn(data)])
    names = learn.choose_features(trained, FEATURES)
    print(f"{len(trained)} pages, {len(names)} features: {' '.join(names)}\n")
    print(f"| trained on | {' | '.join(SETS)} | s |\n|{'---|' * (len(SETS) + 2)}")
    began = time.process_time()
    chosen = [*trained, *others]
    found = figures(chosen, learn.cross_validate(chosen, names, TRAINED_ON))
    print_row("all", found, time.process_time() - began)
    if given.study:
        study(chosen, names)
    if given.save:
        report = {
            "pages": {name: sum(e.page.source == name for e in trained) for name in TRAINED_ON},
            "data_sha256": dataset.digest(trained),
            "f1_by_cross_validation": found,
            "how": vars(learn.HOW),
        }
        model = learn.as_model(learn.train(trained, names), names, report)
        model.save(BUILT_IN)
        print(f"\n{BUILT_IN.name}: {BUILT_IN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
