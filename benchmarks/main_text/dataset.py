"""Labelled pages as rows for training: one for each block, with the weight that its set and page have."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.describe import describe_page
from etl.kernels.html.features import NAMES
from main_text import made, pages, selected, truth
from main_text.documentation import documentation
from main_text.extractors import trafilatura_default, trafilatura_precision
from main_text.pages import Page

Numbers = NDArray[np.float32]

PAGE_WEIGHT = 100.0
"""The weight of a page with a text; its blocks share it by the root of their lengths."""

SEGMENT_WEIGHT = 4.0
"""The weight of a block that has a segment, which is the truth; the other blocks have teachers."""

TEACHER = 0.4
"""The weight, as a share of a page's, of what both modes of trafilatura say of a page with segments."""

WEIGHTS = {"selected": 0.5, "documentation": 0.25, "made": 0.15}
"""The weight of pages of a set, if not 1: they are many, or their truth is not so sure."""

LONGEST = 500  # characters from which a block weighs no more


@dataclass(frozen=True)
class Example:
    """A page with its blocks, their features and labels; and labels of teachers where the truth is silent."""

    page: Page
    blocks: list[str]
    features: Numbers  # (blocks, NAMES)
    labels: Numbers  # (blocks,) 1, 0, or NaN if the truth does not say
    teachers: tuple[Numbers, ...] = ()


def real_pages(data: Path, packages: Path | None) -> Iterator[Page]:
    """Read all labelled pages of ``$TOKENLAKE_DATA``, and those of the unpacked Debian packages."""
    folder = data / "extraction"
    yield from pages.articles(folder)
    yield from pages.segments(folder)
    yield from selected.news(folder)
    yield from selected.chinese(folder)
    if packages:
        yield from documentation(packages)


def examples(source: Iterable[Page]) -> list[Example]:
    """Cut pages into blocks, and label these."""
    return [_example(page) for page in source]


def made_examples(data: Path, each: int) -> list[Example]:
    """Make so many pages of each template, and label their blocks."""
    return examples(made.made(data, each))


def _example(page: Page) -> Example:
    described = describe_page(page.html)
    blocks = described.texts
    if page.marked is not None:
        labels = truth.labels_by_mark(describe_page(page.marked).texts)
        wanted = [block for block, label in zip(blocks, labels, strict=True) if label == 1]
        either = [block for block, label in zip(blocks, labels, strict=True) if np.isnan(label)]
        page = replace(page, text="\n".join(wanted), optional="\n".join(either))
        return Example(page, blocks, described.features, labels)
    teachers: tuple[Numbers, ...] = ()
    if page.text is None:
        said = (trafilatura_precision(page), trafilatura_default(page))
        teachers = tuple(truth.labels_by_text(blocks, text) for text in said)
    return Example(page, blocks, described.features, truth.labels(page, blocks), teachers)


def rows(chosen: Sequence[Example], names: Sequence[str]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the features (n, names), labels from 0 to 1, and weights of all labelled blocks."""
    columns = [NAMES.index(name) for name in names]
    x, y, weight = zip(*(_rows(each, columns) for each in chosen if each.blocks), strict=True)
    return np.vstack(x), np.concatenate(y), np.concatenate(weight)


def _rows(example: Example, columns: list[int]) -> tuple[Numbers, Numbers, Numbers]:
    x, labels = example.features[:, columns], example.labels
    weight = np.sqrt(np.minimum([len(block) for block in example.blocks], LONGEST)) + 1e-3
    weight *= PAGE_WEIGHT / weight.sum()
    known = ~np.isnan(labels)
    if example.teachers:
        labels = np.where(known, labels, np.mean(example.teachers, axis=0))
        return x, labels, np.where(known, SEGMENT_WEIGHT, weight * TEACHER).astype(np.float32)
    weight *= WEIGHTS.get(example.page.source, 1.0)
    return x[known], labels[known], weight[known].astype(np.float32)


def digest(chosen: Sequence[Example]) -> str:
    """Return the sha256 of all pages and labels, which names the data of a training."""
    total = sha256()
    for example in chosen:
        total.update(sha256(example.page.html).digest())
        total.update(np.nan_to_num(example.labels, nan=-1).tobytes())
        total.update(b"".join(each.tobytes() for each in example.teachers))
    return total.hexdigest()
