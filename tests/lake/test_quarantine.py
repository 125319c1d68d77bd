"""Quarantine notes: a damaged one is reported with its place, and hides no other."""

import pytest

from etl import storage
from etl.cli import output
from etl.lake.quarantine import Quarantine

DAMAGED = (
    b"",
    b'{"step": "docum',
    b"\xff\x00\x81",
    b"null",
    b"[1]",
    b'{"step": "tokens"}',
    b'{"step": 1, "source": 2, "part": 3, "error": 4, "time": 5}',
    b"[" * 100_000,
)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_note_is_reported(tmp_path, content):
    quarantine = Quarantine(str(tmp_path))
    note = quarantine.put("tokens", "file:///a.jsonl", "0-9", "out of memory")
    path = tmp_path / "quarantine" / "0.json"
    path.write_bytes(content)
    damaged, intact = sorted(Quarantine(str(tmp_path)).notes(), key=lambda note: note.part)
    assert intact == note
    assert damaged.source == storage.normalize(str(path))
    assert "quarantine/0.json: the note is " in output.quarantined(damaged)
    assert f"`etl repair {storage.normalize(str(tmp_path))} --yes` removes it" in damaged.error


def test_a_note_is_replaced_and_cleared_even_if_it_was_damaged(tmp_path):
    Quarantine(str(tmp_path)).put("tokens", "file:///a", "", "first")
    (path,) = (tmp_path / "quarantine").iterdir()
    path.write_bytes(b"")
    again = Quarantine(str(tmp_path)).put("tokens", "file:///a", "", "second")
    assert Quarantine(str(tmp_path)).notes() == [again]
    path.write_bytes(b"")
    Quarantine(str(tmp_path)).clear("tokens", "file:///a", "")
    assert Quarantine(str(tmp_path)).notes() == []
