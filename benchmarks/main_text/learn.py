"""Train models of main text, extract with them, and cross-validate by host and template."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from etl.kernels.bytes.utf8 import Texts, frozen, texts
from etl.kernels.html import page_batches, writer
from etl.kernels.html.features import NAMES
from etl.text.main_text_model import Favor, MainTextModel
from main_text.dataset import Example, rows
from main_text.oblivious_trees import Fit, Trained, fit
from main_text.pages import Page, fold

HOW = Fit(trees=250, rate=0.06, features_per_tree=0.35)
FOLDS = 3
KEEP = writer.TABLES | writer.LISTS | writer.CODE | writer.MATH  # the stage's default
BARS: Mapping[Favor, float] = {"balanced": 0.0, "precision": 0.6, "recall": -1.0986}
"""Log odds above which a block is main text: probabilities of 0.5, 0.65 and 0.25."""


def choose_features(chosen: Sequence[Example], count: int) -> tuple[str, ...]:
    """Return the names of the features that trees over all of them use most, weighted by their levels."""
    x, y, weight = rows(chosen, NAMES)
    used = fit(x, y, weight, Fit(trees=60, features_per_tree=0.3)).feature
    # The first questions of a tree decide most.
    votes = np.bincount(
        used.ravel(), np.tile(1 / np.arange(1, used.shape[1] + 1), len(used)), len(NAMES)
    )
    best = np.argsort(-votes, kind="stable")[:count]
    return tuple(NAMES[index] for index in sorted(best))


def train(chosen: Sequence[Example], names: Sequence[str], how: Fit = HOW) -> Trained:
    """Train trees on examples with the named features."""
    return fit(*rows(chosen, names), how)


def as_model(trained: Trained, names: Sequence[str], report: Mapping[str, Any]) -> MainTextModel:
    """Return the model that the kernels read."""
    arrays = (trained.feature, trained.threshold, trained.leaves)
    return MainTextModel(tuple(names), *arrays, trained.start, BARS, report)


def as_texts(pages: Sequence[Page]) -> Texts:
    """Return the HTML of pages as the stage gets it."""
    html = [page.html.decode("utf-8", "replace") for page in pages]
    return texts(pa.array(html, pa.string()))


def extract_batch(model: MainTextModel, batch: Texts, favor: Favor = "balanced") -> pa.Array:
    """Return the main texts of pages, as the stage extracts them."""
    every = frozen(np.ones(len(batch.offsets) - 1, np.bool_))
    return page_batches.extract_pages(batch, every, model.for_kernel(favor), keep=KEEP).text


def extract_texts(model: MainTextModel, pages: Sequence[Page]) -> list[str]:
    """Return the main texts of pages."""
    return [text or "" for text in extract_batch(model, as_texts(pages)).to_pylist()]


Leave = Callable[[Page, int], bool]


def by_host(page: Page, part: int) -> bool:
    """Return whether a page is measured in a fold: pages of a host are all in one; made ones are in none."""
    return page.source != "made" and fold(page.group, FOLDS) == part


def by_template(page: Page, part: int) -> bool:
    """Return whether a made page is measured in a fold: those of a template are all in one."""
    return page.source == "made" and fold(page.group, FOLDS) == part


def cross_validate(
    chosen: Sequence[Example],
    names: Sequence[str],
    sources: Sequence[str],
    leave: Leave = by_host,
    folds: int = FOLDS,
) -> dict[int, str]:
    """Return the text of each measured page by its index, by a model that has not seen its group.

    Models are trained on the sources; pages of other sources are measured only.
    """
    found: dict[int, str] = {}
    for part in range(folds):
        is_measured = [
            leave(page, part) if page.source in sources else fold(page.group, folds) == part
            for page in (example.page for example in chosen)
        ]
        rest = [
            example
            for example, measured in zip(chosen, is_measured, strict=True)
            if example.page.source in sources and not measured
        ]
        indices = np.flatnonzero(is_measured).tolist()
        model = as_model(train(rest, names), names, {})
        texts = extract_texts(model, [chosen[index].page for index in indices])
        found.update(zip(indices, texts, strict=True))
    return found
