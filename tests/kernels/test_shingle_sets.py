"""Sets of shingles and their similarities against sets of strings, and a naive choice of keepers."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.independent_set import GOES, OPEN, STAYS
from etl.kernels.hashing.minhash_signatures import Shingling
from etl.kernels.hashing.shingle_sets import (
    Pairs,
    ShingleSets,
    fill_sets,
    find_similar,
    group_pairs,
    shingle_sets,
)
from tests.helpers.naive_shingles import naive_units, shinglings
from tests.helpers.tricky_text import documents

limits = st.sampled_from([0.01, 0.3, 0.5, 0.75, 0.8, 1.0])


def naive_set(text: str, shingling: Shingling) -> set[tuple[str, ...]]:
    units = naive_units(text, shingling)
    runs = range(max(1, len(units) - shingling.size + 1)) if units else []
    return {tuple(units[k : k + shingling.size]) for k in runs}


def contained(better: set[object], worse: set[object]) -> float:
    return len(better & worse) / len(worse) if worse else 0.0


def jaccard(one: set[object], other: set[object]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


@given(st.lists(documents, min_size=1, max_size=4), shinglings, limits, st.booleans())
def test_sets_and_similarities_are_those_of_strings(texts, shingling, limit, is_containment):
    sets = [naive_set(text, shingling) for text in texts]
    ours = shingle_sets(buffers(pa.array(["skipped", *texts], pa.string())[1:]), shingling)
    assert (ours.stops - ours.starts).tolist() == [len(each) for each in sets]
    for k in range(1, len(texts)):
        pair = Pairs(np.array([0]), np.array([k]), np.array([np.nan]))
        state = np.full(len(texts), OPEN, np.int8)
        found = find_similar(ours, pair, state, limit, is_containment=is_containment).item()
        expected = (contained if is_containment else jaccard)(sets[0], sets[k])
        assert found == (expected if expected >= limit else 0)


@given(st.lists(documents, min_size=1, max_size=5), shinglings, st.data())
def test_only_the_chosen_texts_are_read(texts, shingling, data):
    array = buffers(pa.array(texts, pa.string()))
    chosen = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True).map(sorted))
    whole = shingle_sets(array, shingling)
    room = sum(len(naive_units(texts[k], shingling)) for k in chosen)
    hashes = np.empty(room, np.int64)
    ends = fill_sets(array, np.array(chosen, np.int64), shingling, hashes)
    for k, start, stop in zip(chosen, ends, ends[1:], strict=False):
        assert (
            hashes[start:stop].tolist() == whole.hashes[whole.starts[k] : whole.stops[k]].tolist()
        )


def as_sets(members: list[set[int]]) -> ShingleSets:
    stops = np.cumsum([len(each) for each in members])
    hashes = np.array([value for each in members for value in each], np.int64)
    return ShingleSets(hashes, stops - [len(each) for each in members], stops)


@st.composite
def graphs(draw):
    """Draw sets in the order of preference, their candidate pairs, and which similarities are known."""
    members = draw(st.lists(st.sets(st.integers(1, 6)), min_size=1, max_size=9))
    everything = [(b, w) for w in range(len(members)) for b in range(w)]
    pairs = draw(st.lists(st.sampled_from(everything), unique=True) if everything else st.just([]))
    known = draw(st.sets(st.sampled_from(pairs)) if pairs else st.just(set()))
    return members, sorted(pairs, key=lambda pair: pair[::-1]), known


@given(graphs(), limits, st.randoms(), st.integers(0, 9))
@example(([{1}, {1}, {1}], [(0, 1), (0, 2), (1, 2)], set()), 0.8, None, 0)
def test_skipped_pairs_do_not_change_the_keepers(graph, limit, rng, undecided):
    """Documents may be visited in any order; some may yet be removed by pairs of other tasks."""
    members, pairs, known = graph
    values = {(b, w): jaccard(members[b], members[w]) for b, w in pairs}
    worse = sorted({w for _, w in pairs})
    if rng is not None:
        rng.shuffle(worse)
    ordered = [pair for document in worse for pair in pairs if pair[1] == document]
    better_ones, worse_ones = np.array(ordered or np.empty((0, 2)), np.int64).T
    state = np.full(len(members), STAYS, np.int8)
    state[[*worse, *range(min(undecided, len(members)))]] = OPEN
    given_values = np.array([values[p] if p in known else np.nan for p in ordered], np.float64)
    is_similar = (given_values >= limit) | np.isnan(given_values)  # others are dropped before
    group = Pairs(better_ones[is_similar], worse_ones[is_similar], given_values[is_similar])
    found = find_similar(as_sets(members), group, state, limit)
    left = {
        (b, w): value
        for b, w, value in zip(group.better.tolist(), group.worse.tolist(), found, strict=True)
        if value > 0
    }
    similar = {pair: value for pair, value in values.items() if value >= limit}
    assert left.items() <= similar.items()
    expected = keepers(len(members), similar)
    assert keepers(len(members), left) == expected
    for k in worse:
        assert state[k] in (OPEN, GOES if k in expected else STAYS)


def keepers(size: int, similar: dict[tuple[int, int], float]) -> dict[int, int]:
    """Keep each document, in order, unless it is similar to a kept document."""
    chosen: dict[int, int] = {}
    for k in range(size):
        better = [b for b in range(k) if b not in chosen and (b, k) in similar]
        if better:
            chosen[k] = better[0]
    return chosen


@given(graphs(), st.integers(1, 40), st.lists(st.integers(0, 20), min_size=9, max_size=9))
def test_groups_of_pairs_are_bounded(graph, limit, sizes):
    _, pairs, known = graph
    better, worse = np.array(pairs or np.empty((0, 2)), np.int64).T
    values = np.array([0.5 if pair in known else np.nan for pair in pairs], np.float64)
    ends = group_pairs(Pairs(better, worse, values), np.array(sizes), limit).tolist()
    assert ends[0] == 0
    assert ends[-1] == len(pairs)
    assert ends == sorted({*ends})
    for start, stop in pairwise(ends):
        compared = [pair for pair in pairs[start:stop] if pair not in known]
        with_words = {w for b, w in compared if sizes[b] + sizes[w] > 0}
        words = sum(sizes[k] for k in {k for pair in compared for k in pair})
        assert words <= limit or len(with_words) == 1
    groups = [{w for _, w in pairs[a:b]} for a, b in pairwise(ends)]
    assert sum(map(len, groups)) == len({w for _, w in pairs})
