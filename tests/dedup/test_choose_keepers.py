"""Rounds keep the same documents as a single task, for any number of partitions and rounds."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from etl.compute import frame_shuffles
from etl.compute.compute_frames import compute_frame
from etl.dedup import choose_keepers
from etl.dedup.keeper_choice import as_chosen, choose_among
from etl.dedup.numbered_files import address
from etl.dedup.similarity import SIMILAR_PAIRS
from etl.errors import StageError

Pair = tuple[int, int]

some_edges = st.lists(
    st.tuples(st.integers(0, 19), st.integers(0, 19)).filter(lambda pair: pair[0] != pair[1]),
    max_size=60,
    unique_by=lambda pair: (min(pair), max(pair)),
)
some_ranks = st.lists(st.sampled_from([-np.inf, 0.0, 1.0]), min_size=20, max_size=20)


def table(pairs: list[Pair], ranks: list[float]) -> pd.DataFrame:
    """Return pairs with the columns of ``SIMILAR_PAIRS``, each document in its own bucket.

    A lower rank is better, then a lower number.
    """
    ordered = [sorted(pair, key=lambda k: (ranks[k], k)) for pair in pairs]
    better, worse = np.array(ordered, np.int64).reshape(-1, 2).T
    frame = pd.DataFrame(
        {
            "better": address(8 * better, 3 * better),
            "worse": address(8 * worse, 3 * worse),
            "better_rank": np.array(ranks)[better],
            "worse_rank": np.array(ranks)[worse],
            "similarity": 0.8 + (7 * better + worse) % 20 / 100,
            "is_estimate": (better + worse) % 3 == 0,
            "bucket": 0,
        }
    )
    return frame.astype(SIMILAR_PAIRS.dtypes)


def sorted_rows(chosen: pd.DataFrame) -> list[tuple[int, int, float]]:
    return sorted(chosen.itertuples(index=False, name=None))


class Homes:
    """Home partitions of pairs without Dask, and rounds over them."""

    def __init__(self, pairs: pd.DataFrame, partitions: int) -> None:
        self._partitions = partitions
        self.pairs = self._shuffled([choose_keepers._at_home(pairs)])

    def _shuffled(self, frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
        frame = pd.concat(frames, ignore_index=True)
        homes = frame["bucket"] % self._partitions
        return [frame[homes == k] for k in range(self._partitions)]

    def round(self, *, marks: bool = True) -> None:
        asked = self._shuffled([choose_keepers.questions(pairs) for pairs in self.pairs])
        answered = self._shuffled(list(map(choose_keepers.answers, self.pairs, asked)))
        self.pairs = list(map(choose_keepers.drop_settled_pairs, self.pairs, answered))
        if marks:
            self.pairs = list(map(choose_keepers.mark_open, self.pairs))

    @property
    def open(self) -> int:
        return sum(int((~pairs["stays"]).sum()) for pairs in self.pairs)


@given(some_edges, some_ranks, st.integers(1, 7), st.integers(0, 60))
def test_rounds_choose_the_same_documents_as_one_task(
    edges: list[Pair], ranks: list[float], partitions: int, limit: int
) -> None:
    """One task may take over after any round, and each round decides at least one pair."""
    pairs = table(edges, ranks)
    homes = Homes(pairs, partitions)
    homes.round()
    while homes.open > limit:
        before = homes.open
        homes.round()
        assert homes.open < before
    undecided = sum(int(pairs["is_open"].sum()) for pairs in homes.pairs)
    homes.round(marks=False)
    remaining = pd.concat(homes.pairs)
    rest, settled = (remaining[remaining["is_open"] == value] for value in (True, False))
    assert len(rest) <= undecided
    assert len(settled) == settled["worse"].nunique(), "one pair for each duplicate"
    chosen = [as_chosen(settled), choose_among(rest)]
    assert sorted_rows(pd.concat(chosen)) == sorted_rows(choose_among(pairs))


@pytest.mark.parametrize(
    ("edges", "needed"),
    [
        ([(0, k) for k in range(1, 20)], 1),  # a star whose centre is best
        ([(k, 19) for k in range(19)], 1),  # a star whose centre is worst
        ([(a, b) for b in range(20) for a in range(b)], 1),  # a complete graph
        ([(k, k + 1) for k in range(19)], 19),  # a chain: one document per round
    ],
)
def test_the_number_of_rounds_depends_on_the_graph(edges: list[Pair], needed: int) -> None:
    homes = Homes(table(edges, [0.0] * 20), 20)
    num_rounds = 0
    while homes.open:
        homes.round()
        num_rounds += 1
    assert num_rounds == needed


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_chain_within_a_partition_takes_one_round(partitions: int) -> None:
    pairs = table([(k, k + 1) for k in range(19)], [0.0] * 20)
    pairs[["better", "worse"]] //= 8  # neighbours share a bucket
    homes = Homes(pairs, partitions)
    for _ in range(3 if partitions > 1 else 1):
        homes.round()
    assert homes.open == 0


@pytest.mark.parametrize("per_partition", [10**6, 150, 500])
def test_rounds_with_shuffles_choose_the_same_documents_as_one_task(
    client: Client, monkeypatch: pytest.MonkeyPatch, per_partition: int
) -> None:
    rng = np.random.default_rng(per_partition)
    edges = {(int(a), int(b)) for a, b in np.sort(rng.integers(0, 120, (400, 2))) if a < b}
    pairs = table(sorted(edges), rng.integers(0, 2, 120).astype(float).tolist())
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", per_partition)
    chosen = choose_keepers.choose_keepers(client, dd.from_pandas(pairs, npartitions=3, sort=False))
    rows = compute_frame(client, chosen, label="test")
    assert sorted_rows(rows) == sorted_rows(choose_among(pairs))


def test_too_many_undecided_pairs_are_an_error(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = table([(k, k + 1) for k in range(19)], [0.0] * 20)
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 5)
    monkeypatch.setattr(choose_keepers, "MAX_ROUNDS", 2)
    with pytest.raises(StageError, match=r"\d+ pairs .* undecided after 2 rounds") as caught:
        choose_keepers.choose_keepers(client, dd.from_pandas(pairs, npartitions=2, sort=False))
    assert caught.value.hint is not None
