"""Long lists and sets of keys are those that a plain list and a plain set would be."""

import errno
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import compact
from etl.compact import KeySet, Spilled
from etl.errors import WriteError
from etl.sources import Split

KEYS = st.binary(min_size=16, max_size=16).map(bytes.hex) | st.sampled_from(
    ["00" * 16, "00" * 15 + "01", "01" + "00" * 15, "ff" * 16]
)


@given(st.lists(st.text()), st.integers(1, 5), st.sampled_from([1, 1 << 20]))
def test_a_spilled_list_is_the_list(items: list[str], batch: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "_BATCH", batch)
        patch.setattr(compact, "_IN_MEMORY", room)
        found = Spilled(iter(items))
    assert len(found) == len(items)
    assert list(found) == items
    assert list(zip(found, found, strict=True)) == list(zip(items, items, strict=True))


def test_splits_come_back_as_they_were() -> None:
    splits = [
        Split(uri=f"s3://a/{k}", size=k, fingerprint="f", format="parquet", partition=(("x", k),))
        for k in range(3000)
    ]
    assert list(Spilled(splits)) == splits


@given(st.lists(KEYS), st.lists(KEYS))
def test_a_key_is_among_those_that_were_given(given_: Sequence[str], others: Sequence[str]) -> None:
    found = KeySet(given_)
    assert all(key in found for key in given_)
    assert [key in found for key in others] == [key in set(given_) for key in others]


def test_a_disk_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(compact, "SpooledTemporaryFile", lambda **_: Full())
    with pytest.raises(WriteError, match=r"No space left(.|\n)*TMPDIR"):
        Spilled([1])
