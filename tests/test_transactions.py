"""Transactions are a dictionary in less room."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from etl.transactions import Transactions

_ZEROS = [
    f"{a}{b}" for a in ("0" * 32, "0a" + "0" * 30, "ab" * 15 + "00", "ab" * 16) for b in ("",)
]
_DIGITS = st.sampled_from(_ZEROS) | st.text("0123456789abcdef", min_size=32, max_size=32)
_NAMES = (
    st.builds("{}{}".format, st.sampled_from(["", "file:", "merged:", "a:b:", ":", "x"]), _DIGITS)
    | st.sampled_from(["generation", "recipe", "file", "", "AB" * 16, "é" * 32, " " * 32])
    | st.text(max_size=40)
)
_VERSIONS = st.dictionaries(_NAMES, st.integers(0, 2**63 - 1), max_size=30)


@given(st.lists(st.tuples(st.booleans(), _VERSIONS), max_size=4), st.lists(_NAMES, max_size=5))
def test_they_hold_what_a_dictionary_holds(
    steps: list[tuple[bool, dict[str, int]]], others: list[str]
) -> None:
    found, expected = Transactions(), dict[str, int]()
    for at_once, versions in steps:
        if at_once:
            names = pa.array(list(versions), pa.string())
            found.extend(names, pa.array(list(versions.values()), pa.int64()))
        else:
            found.update(versions)
        expected |= versions
    for name in [*expected, *others]:
        assert found.get(name) == expected.get(name)
    kinds = {key: value for name, value in expected.items() if (key := _of_kind(name, "file"))}
    assert dict(found.of_kind("file")) == kinds


def _of_kind(name: str, kind: str) -> str:
    digits = name.removeprefix(f"{kind}:")
    is_hex = len(digits) == 32 and set(digits) <= set("0123456789abcdef")
    return digits if is_hex and name != digits else ""


def test_many_are_merged_as_they_come() -> None:
    found = Transactions()
    names = [f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}" for number in range(40_000)]
    for start in range(0, len(names), 1000):
        found.update(dict.fromkeys(names[start : start + 1000], start))
    found.update(dict.fromkeys(names[:100], 7))
    assert [found.get(name) for name in names[:100]] == [7] * 100
    assert [found.get(name) for name in names[100::977]] == [
        i // 1000 * 1000 for i in range(100, 40_000, 977)
    ]
    assert len(dict(found.of_kind(""))) == len(names)
