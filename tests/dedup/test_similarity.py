"""The pairs that texts decide, in one process: against sets of strings, for any grouping of the pairs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl import storage
from etl.dedup import similarity
from etl.dedup.candidates import pair_candidates
from etl.dedup.document_reader import DocumentReader
from etl.dedup.keeper_choice import choose_among
from etl.dedup.key_lookup import keys_of_bands
from etl.dedup.numbered_files import NumberedFile, address, file_of, row_of
from etl.dedup.similarity import SimilarityCheck
from etl.dedup.stored_file_list import StoredFileList, store_file_list
from etl.delta.logical_file import LogicalFile
from etl.stages import DedupMinhash
from tests.helpers.naive_shingles import naive_units
from tests.helpers.near_duplicates import tangled

Similar = dict[tuple[int, int], float]

_PER_FILE = 17
_LIMIT = 0.7


@contextmanager
def stored(folder: Path, texts: list[str], stage: DedupMinhash) -> Iterator[StoredFileList]:
    """Store texts with their signatures in several data files of several row groups."""
    url, files = storage.normalize(str(folder)), []
    (folder / "texts").mkdir()
    for number, first in enumerate(range(0, len(texts), _PER_FILE)):
        part = pa.array(texts[first : first + _PER_FILE])
        columns = {"row": range(len(part)), "text": part, "signature": stage.signature(part)}
        pq.write_table(pa.table(columns), folder / "texts" / f"{number}.parquet", row_group_size=5)
        stored = (LogicalFile(f"{number}.parquet"),)
        files.append(NumberedFile(number, "", "", stored, len(part), False, False, ()))
    with store_file_list(files, url, "list") as listed:
        yield listed


def candidates(texts: list[str], stage: DedupMinhash) -> pd.DataFrame:
    """Return the candidate pairs of undecided documents."""
    numbers = np.arange(len(texts), dtype=np.int64)
    documents = address(numbers // _PER_FILE, numbers % _PER_FILE)
    keys = keys_of_bands(stage, stage.signature(pa.array(texts)))
    bands = {"key": keys.ravel(), "address": np.repeat(documents, stage.bands), "rank": 0.0}
    return pair_candidates(pd.DataFrame(bands))


def decide(
    check: SimilarityCheck, pairs: pd.DataFrame
) -> tuple[pd.DataFrame, dict[int, tuple[int, float]]]:
    """Return the similar pairs, and the keeper of each duplicate with their similarity."""
    estimated = check.estimate(check.sign(pairs))
    frames = [estimated] if check.has_all else [part for _, part in estimated.groupby("bucket")]
    parts = [check.compare_texts(frame, part) for frame in frames for part in range(check.parts)]
    similar = pd.concat(parts)
    chosen = choose_among(similar)
    rows = zip(chosen["document"], chosen["keeper"], chosen["similarity"], strict=True)
    return similar, {document: (keeper, value) for document, keeper, value in rows}


def naive(texts: list[str], pairs: pd.DataFrame, stage: DedupMinhash) -> Similar:
    """Return the similarity of candidate pairs that are similar, from sets of strings."""
    size = stage.ngram
    units = [naive_units(text, stage.shingling) for text in texts]
    sets = [{tuple(u[k : k + size]) for k in range(max(1, len(u) - size + 1))} for u in units]
    values = {}
    for better, worse in pairs[["better", "worse"]].itertuples(index=False):
        one, other = (sets[file_of(k) * _PER_FILE + row_of(k)] for k in (better, worse))
        whole = other if stage.verify == "containment" else one | other
        values[better, worse] = len(one & other) / len(whole)
    return {pair: value for pair, value in values.items() if value >= stage.min_similarity}


def keepers(similar: Similar) -> dict[int, tuple[int, float]]:
    """Keep each document, in order, unless it is similar to a kept document."""
    chosen: dict[int, tuple[int, float]] = {}
    for document in sorted({worse for _, worse in similar}):
        better = sorted(b for b, w in similar if w == document and b not in chosen)
        if better:
            chosen[document] = better[0], similar[better[0], document]
    return chosen


@pytest.mark.parametrize("verify", ["exact", "containment"])
@pytest.mark.parametrize("words", [1, 200, 1 << 24])
@pytest.mark.parametrize(("files", "parts"), [(8, 1), (8, 3), (1, 1), (1, 2)])
def test_decisions_are_those_of_all_pairs_for_any_grouping(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: int,
    files: int,
    parts: int,
    verify: Literal["exact", "containment"],
) -> None:
    """``files`` are the files of a bucket, ``words`` the most that a task holds at once."""
    monkeypatch.setattr(similarity, "WORDS_AT_ONCE", words)
    monkeypatch.setattr(similarity, "FILES_PER_BUCKET", files)
    stage = DedupMinhash(bands=28, rows=4, min_similarity=_LIMIT, verify=verify)
    texts = [str(record["body"]) for record in tangled(words % 5 + files, 80)]
    pairs = candidates(texts, stage)
    known = naive(texts, pairs, stage)
    with stored(tmp_path, texts, stage) as listed:
        reader = DocumentReader(storage.normalize(str(tmp_path)))
        check = SimilarityCheck(listed, reader, stage, parts, has_all=files == 8)
        similar, decided = decide(check, pairs)
    assert 0 < len(known) < len(pairs)
    for better, worse, value in similar[["better", "worse", "similarity"]].itertuples(index=False):
        assert known[better, worse] == value
    assert decided == keepers(known)
    assert not similar["is_estimate"].any()


def test_pairs_far_above_the_limit_are_accepted_without_their_texts(tmp_path: Path) -> None:
    stage = DedupMinhash(bands=28, rows=4, min_similarity=_LIMIT, verify="near_limit")
    texts = [str(record["body"]) for record in tangled(1, 80)]
    pairs = candidates(texts, stage)
    known = naive(texts, pairs, stage)
    with stored(tmp_path, texts, stage) as listed:
        reader = DocumentReader(storage.normalize(str(tmp_path)))
        similar, decided = decide(SimilarityCheck(listed, reader, stage, 1, has_all=True), pairs)
    assert 0 < similar["is_estimate"].sum() < len(similar)
    assert {k: keeper for k, (keeper, _) in decided.items()} == {
        k: keeper for k, (keeper, _) in keepers(known).items()
    }
    _, enough = stage.agreement_limits()
    estimates = similar[similar["is_estimate"]]
    assert (estimates["similarity"] >= enough / stage.permutations).all()
    exact = similar[~similar["is_estimate"]]
    for better, worse, value in exact[["better", "worse", "similarity"]].itertuples(index=False):
        assert known[better, worse] == value


def test_no_real_document_is_removed_for_one_below_the_limit(tmp_path: Path, data: Any) -> None:
    """The documents form known pairs near the limit."""
    known = pl.read_parquet(data / "docs" / "near_dup_pairs.parquet")
    one, other, value = known.columns[:3]
    near = known.filter(pl.col(value).is_between(0.75, 0.85)).head(150)
    names = {*near[one].to_list(), *near[other].to_list()}
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["id", "text"])
    rows = pl.DataFrame(pl.from_arrow(table)).filter(pl.col("id").is_in(names))
    texts = [text for text in rows["text"].to_list() if len(text) < 20_000]
    stage = DedupMinhash()
    pairs = candidates(texts, stage)
    similar = naive(texts, pairs, stage)
    with stored(tmp_path, texts, stage) as listed:
        reader = DocumentReader(storage.normalize(str(tmp_path)))
        _, decided = decide(SimilarityCheck(listed, reader, stage, 2, has_all=True), pairs)
    assert len(decided) > 10
    assert decided == keepers(similar)
