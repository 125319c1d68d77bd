"""The order of keys, and the keys that look-ups need, against naive definitions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.dedup.key_lookup import SHORT_CHECK
from etl.dedup.key_order import first_keys, sort_order

some = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
checks = st.integers(-2, 2).map(lambda k: k * 2 * SHORT_CHECK)


@given(st.lists(st.tuples(some, some, some), max_size=30))
def test_rows_are_sorted_by_all_columns(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    order = sort_order(*columns)
    assert sorted(order.tolist()) == [*range(len(rows))]
    assert [rows[k] for k in order] == sorted(rows)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), checks, st.booleans(), st.integers(0, 2**40)),
        unique_by=lambda row: row[-1],
        max_size=30,
    )
)
def test_the_first_document_and_the_first_that_is_not_short_are_needed(
    rows: list[tuple[int, int, bool, int]],
) -> None:
    """Keys are equal if their checks are, too; the two may be the same document."""
    needed = set[int]()
    for key, check in {row[:2] for row in rows}:
        equal = [row for row in rows if row[:2] == (key, check)]
        for among in (equal, [row for row in equal if not row[2]]):
            needed |= {min(row[-1] for row in among)} if among else set()
    keys, rest, is_short, documents = np.array(rows, np.int64).reshape(-1, 4).T
    found = first_keys(keys, rest | is_short * SHORT_CHECK, documents)
    assert documents[found].tolist() == [row[-1] for row in rows if row[-1] in needed]
