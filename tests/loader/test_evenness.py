"""How evenly batches mix sources: the measure, and what datasets report of their order."""

from fractions import Fraction
from statistics import mean, variance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.errors import LoaderError
from etl.loader import Format, Shuffle, TokenDataset
from etl.loader.measure_evenness import measure_table
from etl.loader.order.evenness import variance_ratio
from tests.helpers.token_tables import make_lake

Batches = list[dict[int, int]]
"""For each batch, the tokens of each source."""


def naive_ratio(batches: Batches, draw_tokens: int) -> Fraction:
    size = sum(batches[0].values())
    names = {source for batch in batches for source in batch}
    shares = {s: [Fraction(batch.get(s, 0), size) for batch in batches] for s in names}
    observed = sum((variance(values) for values in shares.values()), Fraction(0))
    means = [mean(values) for values in shares.values()]
    expected = sum((p * (1 - p) for p in means), Fraction(0)) * Fraction(draw_tokens, size)
    return observed / expected if len(names) > 1 else Fraction(1)


@st.composite
def equal_batches(draw: st.DrawFn) -> Batches:
    documents = draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    orders = draw(st.lists(st.lists(st.integers(0, 4), min_size=len(documents)), min_size=2))
    lots = [order[: len(documents)] for order in orders]
    return [{s: lot.count(s) for s in set(lot)} for lot in lots]


@given(equal_batches(), st.integers(1, 9))
def test_the_ratio_equals_that_of_the_definition(batches: Batches, draw_tokens: int) -> None:
    entries = [(i, s, 1) for i, b in enumerate(batches) for s, n in b.items() for _ in range(n)]
    columns = [np.array(column) for column in zip(*entries, strict=True)]
    ratio = variance_ratio(*columns, draw_tokens=draw_tokens)
    assert ratio == pytest.approx(float(naive_ratio(batches, draw_tokens)))


def test_the_ratio_of_independent_draws_is_one() -> None:
    source = np.random.default_rng(0).integers(0, 20, (400, 100))
    batch = np.broadcast_to(np.arange(400)[:, None], source.shape)
    lengths = np.full(source.size, 7)
    ratio = variance_ratio(batch.ravel(), source.ravel(), lengths, draw_tokens=7)
    assert ratio == pytest.approx(1, abs=0.05)


@pytest.fixture
def sorted_lake(place: UPath) -> str:
    """100 files with documents of 16 tokens."""
    return make_lake(place, [[[16] * 8, [16] * 8]] * 100)


def test_a_batch_in_the_order_of_the_table_has_few_sources(sorted_lake: str) -> None:
    dataset = TokenDataset(sorted_lake, seq_len=16, shuffle=False)
    even = dataset.evenness(batch_size=32)
    assert even.sources_per_batch == pytest.approx(2, abs=0.1)
    # Two sources with 16 documents each, instead of 32 documents of 100 sources.
    assert even.document_ratio == pytest.approx(32 / 2, rel=0.1)
    assert even.window_ratio == pytest.approx(even.document_ratio)
    assert even.sources == even.sources_per_batch * even.batches


def test_lanes_mix_as_many_sources(sorted_lake: str) -> None:
    shuffle = Shuffle(lanes=8, block_tokens=16, run_tokens=128)
    dataset = TokenDataset(sorted_lake, seq_len=16, shuffle=shuffle)
    even = dataset.evenness(batch_size=64)
    # A batch has eight windows of each lane: those of a run, or of two if the lane begins inside one.
    starts = [dataset._plan.lane(0, lane).start for lane in range(8)]
    expected = sum(1 if start % 8 == 0 else 2 for start in starts)
    assert even.sources_per_batch == pytest.approx(expected, abs=1)
    assert even.document_ratio == pytest.approx(64 / 8, rel=0.3)


@pytest.mark.parametrize("is_shuffled", [True, False])
def test_a_table_is_measured_as_a_dataset_reads_it(sorted_lake: str, is_shuffled: bool) -> None:
    even = measure_table(f"{sorted_lake}/tokens", shuffle=is_shuffled)
    assert even is not None
    dataset = TokenDataset(sorted_lake, seq_len=6, shuffle=is_shuffled)  # 25,600 tokens / 4,096
    assert even == dataset.evenness(batch_size=dataset.num_samples // 16)
    assert even.batch_tokens == 6 * (dataset.num_samples // 16)


@pytest.mark.local_only  # no table in an object store is measured
def test_a_table_of_many_files_is_not_measured(sorted_lake: str) -> None:
    url = f"{sorted_lake}/tokens"
    assert measure_table(url, shuffle=True, max_files=99) is None
    assert measure_table(url, shuffle=True, max_files=100) is not None


def test_a_table_without_two_batches_is_not_measured(place: UPath) -> None:
    for number, lengths in enumerate(([], [1, 1])):
        url = make_lake(place / str(number), [[lengths]])
        assert measure_table(f"{url}/tokens", shuffle=True) is None


def test_padded_documents_count_as_one_draw_each(sorted_lake: str) -> None:
    options = {"seq_len": 40, "shuffle": False, "format": Format(pad_id=0)}
    even = TokenDataset(sorted_lake, **options).evenness(batch_size=32)
    assert even.document_ratio == pytest.approx(32 / 2, rel=0.1)


def test_one_batch_has_no_variance(sorted_lake: str) -> None:
    dataset = TokenDataset(sorted_lake, seq_len=16)
    with pytest.raises(LoaderError, match="at least 2 batches"):
        dataset.evenness(batch_size=1500)
