"""Measure which labels are right for texts in capitals, with ``labels: fasttext`` and ``labels: letters``.

    TOKENLAKE_DATA=... python benchmarks/language_of_capitals.py

reads documents of ``docs``, ``bench`` and ``web`` (HTML without its tags) in ``$TOKENLAKE_DATA`` with a
declared language, at most 1,500 per language. The second table, in which single words are in capitals,
shows the share of capitals above which lower case is better; the last, what changes for the documents as
they are.
"""

import os
import random
import re
import time
from pathlib import Path
from typing import get_args

import polars as pl

from etl.text.language_id import Labels, identify_languages

LABELS: tuple[Labels, ...] = get_args(Labels)
LANGUAGES = ("en", "de", "fr", "ru", "el")
SIZES = (80, 1000)
DOCUMENTS = 1500
TAGS = r"(?s)<script.*?</script>|<style.*?</style>|<[^>]*>"
ROUNDS = 7


def read_documents(data: Path) -> pl.DataFrame:
    """Return texts and their declared languages, ISO 639-1."""
    frames = []
    for path in sorted(
        path for name in ("docs", "bench", "web") for path in data.glob(f"{name}/*")
    ):
        if path.suffix == ".parquet" and {"text", "lang"} <= {*pl.read_parquet_schema(path)}:
            text = (
                pl.col("text").str.replace_all(TAGS, " ") if "web" in path.parts else pl.col("text")
            )
            frames.append(pl.read_parquet(path).select(text.str.strip_chars(), "lang"))
    return pl.concat(frames).with_columns(pl.col("lang").str.slice(0, 2).replace("nb", "no"))


def is_right(texts: pl.Series, true: pl.Series, labels: Labels, least: float = 0) -> pl.Series:
    """Return whether each text has the label of its language, with a score of at least ``least``."""
    languages, scores = map(pl.Series, identify_languages(texts.to_arrow(), labels))
    return (languages == true).fill_null(value=False) & (scores >= least).fill_null(value=False)


def capitals(texts: pl.Series, share: float = 1) -> pl.Series:
    """Put a share of the words in capitals, chosen at random."""
    chance = random.Random(0)  # noqa: S311 - not cryptographic
    words = (re.split(r"(\s+)", text) for text in texts)
    return pl.Series(
        ["".join(w.upper() if chance.random() < share else w for w in each) for each in words]
    )


def print_rows(title: str, rows: list[list[object]]) -> None:
    """Print a table as Markdown."""
    print(f"\n| {title} |" + "\n" + "|---" * (title.count("|") + 1) + "|")
    for row in rows:
        print("| " + " | ".join(f"{x:.1f}" if isinstance(x, float) else f"{x}" for x in row) + " |")


def of_capitals(documents: pl.DataFrame) -> list[list[object]]:
    """Return per language and length: the right labels of the texts, and of the texts in capitals."""
    rows: list[list[object]] = []
    for size in SIZES:
        for code in LANGUAGES:
            texts = documents.filter(lang=code)["text"].str.slice(0, size)
            true, upper = pl.Series([code] * len(texts)), capitals(texts)
            row: list[object] = [
                code,
                size,
                len(texts),
                _percent(is_right(texts, true, "fasttext")),
            ]
            for least in (0, 0.65):
                row += [_percent(is_right(upper, true, labels, least)) for labels in LABELS]
            rows.append(row)
    return rows


def by_share(documents: pl.DataFrame) -> list[list[object]]:
    """Return per tenth of capitals among cased letters: the right labels as it is, and in lower case."""
    frames = []
    for size in SIZES:
        texts = documents["text"].str.slice(0, size)
        for tenth in range(11):
            mixed = capitals(texts, tenth / 10)
            upper, lower = (mixed.str.count_matches(rf"\p{{{c}}}") for c in ("Lu", "Ll"))
            found = {
                "size": pl.repeat(size, len(mixed), eager=True),
                "tenth": (upper * 10 / (upper + lower)).floor().clip(0, 9),
                "raw": is_right(mixed, documents["lang"], "fasttext"),
                "low": is_right(mixed.str.to_lowercase(), documents["lang"], "fasttext"),
            }
            frames.append(pl.DataFrame(found).filter(pl.col("tenth").is_not_nan()))
    right = (pl.col("raw", "low").mean() * 100).round(1)
    table = pl.concat(frames).group_by("tenth", "size").agg(pl.len(), right).sort("size", "tenth")
    return [
        [size, f"{tenth * 10:.0f} to {tenth * 10 + 10:.0f}", *rest]
        for tenth, size, *rest in table.iter_rows()
    ]


def as_they_are(documents: pl.DataFrame) -> list[list[object]]:
    """Return how many documents get another label with ``letters``, and how many of these are right."""
    texts, true = documents["text"], documents["lang"]
    before, after = (
        pl.Series(identify_languages(texts.to_arrow(), labels)[0]) for labels in LABELS
    )
    changed = before.ne_missing(after)
    gained = [int(((labels == true) & changed).sum()) for labels in (before, after)]
    return [[len(texts), int(changed.sum()), int(after.is_null().sum()), *gained]]


def microseconds(documents: pl.DataFrame) -> list[list[object]]:
    """Return the CPU time per document, the best of some alternating rounds."""
    texts, best = documents["text"].to_arrow(), dict.fromkeys(LABELS, 1e9)
    for _ in range(ROUNDS):
        for labels in LABELS:
            start = time.process_time()
            identify_languages(texts, labels)
            best[labels] = min(best[labels], (time.process_time() - start) / len(texts) * 1e6)
    return [[*best.values()]]


def _percent(right: pl.Series) -> float:
    return int(right.sum()) / len(right) * 100


def main() -> None:
    """Print the tables."""
    every = read_documents(Path(os.environ["TOKENLAKE_DATA"]))
    known = every.filter(pl.col("lang").is_in(LANGUAGES))
    groups = known.group_by("lang", maintain_order=True)
    some = pl.concat([group.sample(min(DOCUMENTS, len(group)), seed=1) for _, group in groups])
    head = (
        "language | characters | texts | as written | capitals | `letters` | 0.65 | `letters`, 0.65"
    )
    print_rows(head, of_capitals(some))
    print_rows("characters | % of capitals | texts | right | in lower case", by_share(some))
    print_rows(
        "documents | other label | no label | right before | right after", as_they_are(every)
    )
    print_rows("us per document | `letters`", microseconds(every))


if __name__ == "__main__":
    main()
