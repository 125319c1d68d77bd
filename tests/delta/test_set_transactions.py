"""Transactions behave like a dictionary."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from etl.delta.set_transactions import SetTransactions

_EDGE_CASES = [
    "0" * 32,
    "0a" + "0" * 30,
    "ab" * 15 + "00",
    "ab" * 16,
]  # numpy strips trailing zeros
_DIGITS = st.sampled_from(_EDGE_CASES) | st.text("0123456789abcdef", min_size=32, max_size=32)
_NAMES = (
    st.builds("{}{}".format, st.sampled_from(["", "file:", "merged:", "a:b:", ":", "x"]), _DIGITS)
    | st.sampled_from(["generation", "recipe", "file", "", "AB" * 16, "é" * 32, " " * 32])
    | st.text(max_size=40)
)
_VERSIONS = st.dictionaries(_NAMES, st.integers(0, 2**63 - 1), max_size=30)


@given(st.lists(st.tuples(st.booleans(), _VERSIONS), max_size=4), st.lists(_NAMES, max_size=5))
def test_transactions_equal_a_dictionary(
    steps: list[tuple[bool, dict[str, int]]], others: list[str]
) -> None:
    transactions, expected = SetTransactions(), dict[str, int]()
    for as_arrays, versions in steps:
        if as_arrays:
            names = pa.array(list(versions), pa.string())
            transactions.extend(names, pa.array(list(versions.values()), pa.int64()))
        else:
            transactions.update(versions)
        expected |= versions
    for name in [*expected, *others]:
        assert transactions.get(name) == expected.get(name)
    files = {key: value for name, value in expected.items() if (key := _digits_of(name, "file"))}
    assert dict(transactions.of_kind("file")) == files


def _digits_of(name: str, kind: str) -> str:
    """Return the hexadecimal part of a name of this kind, or an empty string."""
    digits = name.removeprefix(f"{kind}:")
    is_hex = len(digits) == 32 and set(digits) <= set("0123456789abcdef")
    return digits if is_hex and name != digits else ""


def test_new_names_are_merged_as_they_accumulate() -> None:
    transactions = SetTransactions()
    names = [f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}" for number in range(40_000)]
    for start in range(0, len(names), 1000):
        transactions.update(dict.fromkeys(names[start : start + 1000], start))
    transactions.update(dict.fromkeys(names[:100], 7))
    assert [transactions.get(name) for name in names[:100]] == [7] * 100
    assert [transactions.get(name) for name in names[100::977]] == [
        i // 1000 * 1000 for i in range(100, 40_000, 977)
    ]
    assert len(dict(transactions.of_kind(""))) == len(names)
