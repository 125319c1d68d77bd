"""Spilled lists and key sets behave like plain lists and sets."""

import errno
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import compact_collections
from etl.compact_collections import PackedKeySet, SpilledList
from etl.errors import WriteError
from etl.sources import Split

KEYS = st.binary(min_size=16, max_size=16).map(bytes.hex) | st.sampled_from(
    ["00" * 16, "00" * 15 + "01", "01" + "00" * 15, "ff" * 16]
)


@given(st.lists(st.text()), st.integers(1, 5), st.sampled_from([1, 1 << 20]))
def test_a_spilled_list_equals_the_plain_list(
    items: list[str], batch_items: int, memory_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact_collections, "_BATCH_ITEMS", batch_items)
        patch.setattr(compact_collections, "_MAX_MEMORY_BYTES", memory_bytes)
        spilled = SpilledList(iter(items))
    assert len(spilled) == len(items)
    assert list(spilled) == items
    assert list(zip(spilled, spilled, strict=True)) == list(zip(items, items, strict=True))


def test_a_spilled_list_returns_equal_splits() -> None:
    splits = [
        Split(uri=f"s3://a/{k}", size=k, fingerprint="f", format="parquet", partition=(("x", k),))
        for k in range(3000)
    ]
    assert list(SpilledList(splits)) == splits


@given(st.lists(KEYS), st.lists(KEYS))
def test_a_key_set_contains_exactly_its_keys(keys: Sequence[str], others: Sequence[str]) -> None:
    key_set = PackedKeySet(keys)
    assert all(key in key_set for key in keys)
    assert [key in key_set for key in others] == [key in set(keys) for key in others]


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(compact_collections, "SpooledTemporaryFile", lambda **_: Full())
    with pytest.raises(WriteError, match=r"No space left(.|\n)*TMPDIR"):
        SpilledList([1])
