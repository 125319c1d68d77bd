"""Each record that an index lists is read once, with its bytes, whatever lies between the records."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl.sources import record_ranges
from etl.sources.parts import cut_bytes
from etl.sources.record_ranges import find_cuts, read_ranges, with_records
from etl.sources.split import Split

SIZE = 300_000
MAX_BYTES = 50_000
OFFSETS = st.integers(0, 20) | st.integers(0, SIZE + 100)
LENGTHS = st.integers(1, 30) | st.integers(1, 2 * MAX_BYTES) | st.just(1 << 39)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Split:
    path: Path = tmp_path_factory.mktemp("ranges") / "a.warc"
    path.write_bytes(np.random.default_rng(1).bytes(SIZE))
    return Split(uri=path.as_uri(), size=SIZE, fingerprint="1", format="warc", bytes=SIZE)


@given(
    st.lists(st.tuples(OFFSETS, LENGTHS), min_size=1, max_size=12),
    st.integers(1, 500_000),
    st.sampled_from([100, 70_000, 1 << 22]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_record_is_read_once(
    whole: Split, records: list[tuple[int, int]], split_bytes: int, most: int
) -> None:
    content = Path(whole.uri.removeprefix("file://")).read_bytes()
    longest = {offset: max(n for o, n in records if o == offset) for offset, _ in records}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_ranges, "_MAX_REQUEST_BYTES", most)
        listed = with_records(whole, np.array(records, np.int64))
        assert listed.bytes == sum(longest.values())
        pieces = cut_bytes(listed, find_cuts(listed, split_bytes), ())
        read = [each for piece in pieces for each in read_ranges(piece, max_bytes=MAX_BYTES)]
    assert [(each.offset, each.length) for each in read] == sorted(longest.items())
    for offset, length, found in read:
        if length > MAX_BYTES:
            assert found is None
        else:
            assert found is not None
            assert len(found) == len(content[offset : offset + length])
            assert found[:99] == content[offset : offset + length][:99]


def test_the_order_of_records_does_not_matter(whole: Split) -> None:
    one, other = np.array([[5, 2], [0, 3]]), np.array([[0, 3], [5, 2], [0, 1]])
    assert with_records(whole, one) == with_records(whole, other)
    assert with_records(whole, one[:1]) != with_records(whole, one)
    assert with_records(whole, one).file_fingerprint == whole.fingerprint
    assert replace(whole, fingerprint='"a#b"').file_fingerprint == '"a#b"'
