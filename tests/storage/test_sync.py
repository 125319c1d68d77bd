"""A file is on the disk, with its entry in its folder, before the function that writes it returns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etl import storage
from etl.errors import WriteError
from tests.helpers.sync_recorder import Operation, read_operations, recorded_environment

WRITES = {
    "open_output": "with storage.open_output(uri) as file: file.write(b'x')",
    "open_atomic_output": "with storage.open_atomic_output(uri) as file: file.write(b'x')",
    "write_bytes": "storage.write_bytes(uri, b'x')",
    "create_if_absent": "assert storage.create_if_absent(uri, b'x')",
}

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync files as outside tests."""
    monkeypatch.setenv("TOKENLAKE_SYNC", "on")


def operations(folder: Path, code: str, **environment: str) -> list[Operation]:
    """Run code in a new process, and return its operations below a folder."""
    record = folder / "record"
    record.mkdir()
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from etl import storage\nuri = {str(folder / 'a/b/part-0')!r}\n{code}",
        ],
        env={**recorded_environment(record), **environment},
        check=True,
    )
    return [each for each in read_operations(record) if each[-1].startswith(str(folder))]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_file_is_synced_before_its_name_and_its_name_before_the_end(
    tmp_path: Path, write: str
) -> None:
    done = operations(tmp_path, write)
    folder = str(tmp_path / "a/b")
    synced = ((i, Path(each[1]).name) for i, each in enumerate(done) if each[0] == "sync")
    (content,) = (i for i, name in synced if "part-0" in name)
    moved = [i for i, each in enumerate(done) if each[0] in ("link", "replace")]
    assert all(content < i for i in moved)
    assert done[-1] == ["sync", folder]
    for new in (tmp_path / "a", tmp_path / "a/b"):
        created = done.index(["mkdir", str(new)])
        assert ["sync", str(new.parent)] in done[created:content]


def test_a_folder_that_another_process_created_is_synced_once(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    done = operations(tmp_path, f"{WRITES['write_bytes']}\n{WRITES['write_bytes']}")
    assert [each for each in done if each == ["sync", str(tmp_path / "a")]] == [
        ["sync", str(tmp_path / "a")]
    ]


def test_a_folder_that_was_deleted_is_synced_again(tmp_path: Path) -> None:
    remove = f"import shutil; shutil.rmtree({str(tmp_path / 'a')!r})"
    done = operations(tmp_path, "\n".join((WRITES["write_bytes"], remove, WRITES["open_output"])))
    assert done.count(["sync", str(tmp_path)]) == 2


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_synced_for_a_scratch_lake(tmp_path: Path, write: str) -> None:
    done = operations(tmp_path, write, TOKENLAKE_SYNC="off")
    assert [each for each in done if each[0] == "sync"] == []
    assert (tmp_path / "a/b/part-0").read_bytes() == b"x"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_invalid_setting_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    monkeypatch.setenv("TOKENLAKE_SYNC", "fast")
    with pytest.raises(WriteError, match=r"TOKENLAKE_SYNC: invalid value 'fast'\n  hint: on: "):
        exec(write, {"storage": storage, "uri": str(tmp_path / "file")})
    assert not (tmp_path / "file").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can list every folder")
def test_a_parent_that_cannot_be_listed_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a").chmod(0o300)
    storage.write_bytes(str(tmp_path / "a/b/part-0"), b"x")
    assert (tmp_path / "a/b/part-0").read_bytes() == b"x"


def test_an_error_of_a_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    for write in WRITES.values():
        with pytest.raises(WriteError, match="cannot be written"):
            exec(write, {"storage": storage, "uri": str(tmp_path / "file")})
