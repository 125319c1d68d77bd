"""The lineage record of one commit, made from what is committed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal
from unicodedata import unidata_version

import schemas
from etl.job.tasks import Result
from etl.recipe import Recipe, Step
from etl.sources import Split

# What decides a result beside the recipe: the code, and the libraries that compute in it.
_LIBRARIES = (
    "tokenlake", "pyarrow", "polars", "numba", "deltalake", "tokenizers", "gigatoken",
    "fasttext-predict", "xxhash", "ftfy",
)  # fmt: skip


def library_versions() -> dict[str, str]:
    """The installed versions of Tokenlake and of the libraries that decide a result."""
    found = {"unicode": unidata_version}  # what is a letter, a digit, a mark
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def counts(results: Iterable[Result]) -> schemas.Counts:
    """The sums over results."""
    total: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    for result in results:
        rejected.update(result.rejected)
        costs.update(result.costs)
        for name in ("rows", "kept", "duplicates", "tokens", "text_bytes"):
            total[name] += getattr(result, name)
    seconds = {name: round(costs[name], 3) for name in sorted(costs)}
    return schemas.Counts(**total, rejected=dict(sorted(rejected.items())), costs=seconds)


def input_files(results: Iterable[Result], splits: Mapping[str, Split]) -> list[schemas.InputFile]:
    """The input files of results, each with the rows that these read of it; ``splits`` are by key."""
    rows: Counter[str] = Counter()
    files: dict[str, Split] = {}
    for result in results:
        rows[result.source] += result.rows
        files[result.source] = splits[result.key]
    return [
        schemas.InputFile(
            uri=uri, size=files[uri].size, fingerprint=files[uri].fingerprint, rows=rows[uri]
        )
        for uri in sorted(files)
    ]


def record(recipe: Recipe, step: Step | Literal["keys"], **fields: Any) -> dict[str, Any]:
    """The record as JSON data; ``fields`` are the other fields of ``schemas.Lineage``."""
    lineage = schemas.Lineage(
        recipe=recipe.name,
        canonical=recipe.canonical(),
        step=step,
        versions=library_versions(),
        seed=recipe.seed,
        **fields,
    )
    return lineage.model_dump(mode="json")
