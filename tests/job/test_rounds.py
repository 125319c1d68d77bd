"""Who stays is the same, however many partitions and rounds it takes, and is not what no round decided."""

from collections.abc import Callable

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.compute import shuffle
from etl.dedup import choose_keepers
from etl.dedup.numbered_files import address
from etl.dedup.similarity import SIMILAR_PAIRS
from etl.errors import StageError
from etl.job.run import run
from etl.stages import DedupMinhash
from tests.job.test_near import make, tangled, write
from tests.job.test_run import rows

Pair = tuple[int, int]

edges = st.lists(
    st.tuples(st.integers(0, 19), st.integers(0, 19)).filter(lambda pair: pair[0] != pair[1]),
    max_size=60,
    unique_by=lambda pair: (min(pair), max(pair)),
)
some_ranks = st.lists(st.sampled_from([-np.inf, 0.0, 1.0]), min_size=20, max_size=20)


def table(found: list[Pair], ranks: list[float]) -> pd.DataFrame:
    """Pairs of documents, each at a home of its own; the less the rank and then the number, the better."""
    ordered = [sorted(pair, key=lambda k: (ranks[k], k)) for pair in found]
    better, worse = np.array(ordered, np.int64).reshape(-1, 2).T
    frame = pd.DataFrame(
        {
            "better": address(8 * better, 3 * better),
            "worse": address(8 * worse, 3 * worse),
            "better_rank": np.array(ranks)[better],
            "worse_rank": np.array(ranks)[worse],
            "similarity": 0.8 + (7 * better + worse) % 20 / 100,
            "bucket": 0,
        }
    )
    return frame.astype(SIMILAR_PAIRS.dtypes)


def sorted_rows(chosen: pd.DataFrame) -> list[tuple[int, int, float]]:
    return sorted(chosen.itertuples(index=False, name=None))


class Homes:
    """Pairs in partitions without Dask, and rounds over them."""

    def __init__(self, alike: pd.DataFrame, partitions: int) -> None:
        self._partitions = partitions
        self.pairs = self._together([choose_keepers._at_home(alike)])

    def _together(self, frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
        whole = pd.concat(frames, ignore_index=True)
        homes = whole["bucket"] % self._partitions
        return [whole[homes == k] for k in range(self._partitions)]

    def round(self) -> None:
        asked = self._together([choose_keepers.questions(pairs) for pairs in self.pairs])
        told = self._together(list(map(choose_keepers.answers, self.pairs, asked)))
        self.pairs = list(map(choose_keepers.drop_settled_pairs, self.pairs, told))

    @property
    def open(self) -> int:
        return sum(int((~pairs["stays"]).sum()) for pairs in self.pairs)


@given(edges, some_ranks, st.integers(1, 7), st.integers(0, 60))
def test_rounds_choose_as_the_driver_does(
    found: list[Pair], ranks: list[float], partitions: int, limit: int
) -> None:
    """Whenever the driver takes over; and each round decides something."""
    alike = table(found, ranks)
    homes = Homes(alike, partitions)
    while homes.open > limit:
        before = homes.open
        homes.round()
        assert homes.open < before
    left = pd.concat(homes.pairs)
    assert sorted_rows(choose_keepers.choose_among(left)) == sorted_rows(
        choose_keepers.choose_among(alike)
    )
    if homes.open == 0:
        assert len(left) == left["worse"].nunique(), "one pair for each duplicate"


@pytest.mark.parametrize(
    ("found", "needed"),
    [
        ([(0, k) for k in range(1, 20)], 1),  # a star: its centre is best
        ([(k, 19) for k in range(19)], 1),  # its centre is worst
        ([(a, b) for b in range(20) for a in range(b)], 1),  # all like all
        ([(k, k + 1) for k in range(19)], 19),  # a chain: one more document a round
    ],
)
def test_what_bounds_the_rounds(found: list[Pair], needed: int) -> None:
    homes = Homes(table(found, [0.0] * 20), 20)
    taken = 0
    while homes.open:
        homes.round()
        taken += 1
    assert taken == needed


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_chain_at_home_takes_one_round(partitions: int) -> None:
    alike = table([(k, k + 1) for k in range(19)], [0.0] * 20)
    alike[["better", "worse"]] //= 8  # neighbours have a home in common
    homes = Homes(alike, partitions)
    for _ in range(3 if partitions > 1 else 1):
        homes.round()
    assert homes.open == 0


Settings = Callable[[int, int], None]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """How many pairs the driver decides, and how many rows a partition has."""

    def limit(pairs: int, rows: int) -> None:
        monkeypatch.setattr(choose_keepers, "PAIRS_ON_DRIVER", pairs)
        monkeypatch.setattr(shuffle, "ROWS_PER_PARTITION", rows)

    return limit


@pytest.mark.parametrize(("limit", "per_partition"), [(0, 10**6), (0, 150), (100, 500)])
def test_rounds_on_workers(
    client: Client, limits: Settings, limit: int, per_partition: int
) -> None:
    rng = np.random.default_rng(limit)
    found = {(int(a), int(b)) for a, b in np.sort(rng.integers(0, 120, (400, 2))) if a < b}
    alike = table(sorted(found), rng.integers(0, 2, 120).astype(float).tolist())
    limits(limit, per_partition)
    chosen = choose_keepers.choose_keepers(client, dd.from_pandas(alike, npartitions=3, sort=False))
    assert sorted_rows(chosen) == sorted_rows(choose_keepers.choose_among(alike))


def test_what_no_round_decides_is_no_result(
    client: Client, limits: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = table([(k, k + 1) for k in range(19)], [0.0] * 20)
    limits(4, 5)
    monkeypatch.setattr(choose_keepers, "MAX_ROUNDS", 2)
    with pytest.raises(StageError, match=r"after 2 rounds \d+ pairs .* undecided") as caught:
        choose_keepers.choose_keepers(client, dd.from_pandas(alike, npartitions=2, sort=False))
    assert caught.value.hint is not None


def test_a_run_beyond_the_limit_is_one_within(
    client: Client, place: UPath, limits: Settings
) -> None:
    records = tangled(4)
    source = write(place / "in", records, 20)
    near = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7, keep="longest")
    within = make(place / "within", source, "dedup_exact", near)
    run(within, cluster=client)
    beyond = make(place / "beyond", source, "dedup_exact", near)
    limits(2, 30)
    run(beyond, cluster=client)
    found = rows(within.lake, "duplicates")
    assert rows(beyond.lake, "duplicates") == found
    assert len([row for row in found if row["kind"] == "near"]) > 5
