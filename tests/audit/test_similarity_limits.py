"""`etl tune --similarity` counts what all pairs of signatures say, and shows pairs next to each limit."""

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner
from upath import UPath

import etl
from etl.audit.tune import similarity_limits
from etl.cli.app import app
from etl.errors import RecipeError, TableError
from etl.job.run import run
from etl.kernels.hashing.minhash_signatures import band_keys
from etl.stages import DedupExact, DedupMinhash
from tests.helpers.cluster import cluster
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import make, planted, write

LIMITS = (0.3, 0.6, 0.8, 0.95)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of equal and similar documents, in several files."""
    place = UPath(tmp_path_factory.mktemp("similar"))
    stages = (DedupExact(), DedupMinhash(bands=20, rows=4))
    recipe = make(place / "lake", write(place / "in", planted(12), 3), *stages)
    with cluster(threads=2) as client:
        run(recipe, cluster=client)
    return str(recipe.lake)


def nearest(lake: str, stage: DedupMinhash) -> pl.DataFrame:
    """Return the greatest similarity of each document to an earlier one, by all pairs."""
    equal = {(r["source"], r["row"]) for r in rows(lake, "duplicates") if r["kind"] == "exact"}
    texts = sorted(rows(lake, "texts"), key=lambda row: (row["source"], row["row"]))
    found = [row for row in texts if (row["source"], row["row"]) not in equal]
    numbers = stage.numbers(pa.array([row["signature"] for row in found], pa.binary()))[:, 1:]
    keys = band_keys(numbers, stage.bands)
    best = np.zeros(len(found))
    for earlier, later in combinations(range(len(found)), 2):
        if {*keys[earlier].tolist()} & {*keys[later].tolist()}:
            best[later] = max(best[later], (numbers[earlier] == numbers[later]).mean())
    addresses = [{"source": row["source"], "row": row["row"]} for row in found]
    return pl.DataFrame(addresses).with_columns(similarity=best)


def test_the_counts_are_those_of_all_pairs(lake: str) -> None:
    found = etl.tune_similarity(lake, LIMITS)
    expected = nearest(lake, DedupMinhash(bands=20, rows=4))
    assert found.documents == found.sampled == len(expected)
    counts = {each.limit: each.documents for each in found.limits}
    assert counts == {n: expected.filter(pl.col("similarity") >= n).height for n in LIMITS}
    assert counts[0.3] > counts[0.95] > 0
    assert 0 < found.removed <= counts[0.8] + 2, "estimates near the limit may differ from texts"
    for each in found.limits:
        above = [pair.similarity >= each.limit for pair in each.examples]
        assert above == sorted(above, reverse=True)
        for pair in each.examples:
            row = expected.filter(source=pair.source, row=pair.row)
            assert pair.similarity == pytest.approx(row["similarity"][0])
            assert (pair.earlier_source, pair.earlier_row) < (pair.source, pair.row)
            assert set(pair.text.split()) & set(pair.earlier_text.split())


def test_a_sample_gives_about_the_same_counts(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = etl.tune_similarity(lake, [0.6])
    monkeypatch.setattr(similarity_limits, "SAMPLE", whole.documents // 2)
    found = etl.tune_similarity(lake, [0.6])
    assert 0.3 < found.sampled / whole.documents < 0.7
    assert found.documents == whole.documents
    assert found.limits[0].documents == pytest.approx(whole.limits[0].documents, rel=0.5)


def test_the_command_shows_limits_and_pairs(lake: str) -> None:
    result = CliRunner().invoke(app, ["tune", lake, "--similarity", "0.8,0.6"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    table = lines.index("min_similarity  removed  share")
    assert [line.split()[0] for line in lines[table + 1 : table + 3]] == ["0.6", "0.8"]
    assert "next to 0.6:" in lines
    for arguments in (["--similarity", "much"], ["--similarity", "0.5", "--sweep", "a=1"]):
        assert CliRunner().invoke(app, ["tune", lake, *arguments]).exit_code == 2


def test_mistakes_are_explained(lake: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="1.2 is not a limit of similarity"):
        etl.tune_similarity(lake, [0.5, 1.2])
    recipe = make(
        UPath(tmp_path / "lake"), write(UPath(tmp_path / "in"), planted(2), 1), DedupExact()
    )
    with cluster(threads=1) as client:
        run(recipe, cluster=client)
    with pytest.raises(TableError, match="no signatures"):
        etl.tune_similarity(str(recipe.lake), [0.5])
    with pytest.raises(RecipeError) as caught:
        etl.tune(lake, "dedup_minhash.min_similarity=0.7")
    assert "--similarity" in str(caught.value.hint)
