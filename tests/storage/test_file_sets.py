"""Files are copied once per machine by their content, kept while they are used, and removed afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest
from upath import UPath

from etl import storage
from etl.errors import RecipeError, StorageError
from etl.storage import file_sets
from etl.storage.file_sets import Copies, describe_path, remove_unused, send_files


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    return folder


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("lists", ["a", "deep/b"]),
        ("lists/a", ["a"]),
        ("lists/*", ["a"]),
        ("lists/**", ["a", "deep/b"]),
    ],
)
def test_a_file_a_folder_or_a_glob_names_the_same_files_in_its_copy(
    path: str, names: list[str], tmp_path: Path, machine: Path
) -> None:
    write(tmp_path, lists__a="one", lists__deep__b="two")
    original = describe_path(str(tmp_path / path))
    assert [file.name for file in original.files] == names
    copies = Copies([original], machine)
    again = describe_path(copies.paths[0])
    assert [file.name for file in again.files] == names
    assert again.key == original.key
    assert Path(copies.paths[0]).is_file() == (path == "lists/a")


def test_the_key_depends_on_names_and_contents_and_not_on_the_place(tmp_path: Path) -> None:
    keys = [
        describe_path(str(write(tmp_path / place, **files))).key
        for place, files in [
            ("one", {"a": "x", "b": "y"}),
            ("two", {"a": "x", "b": "y"}),
            ("three", {"a": "y", "b": "x"}),
            ("four", {"a": "x", "c": "y"}),
        ]
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_set_is_copied_once_and_missing_files_are_restored(tmp_path: Path, machine: Path) -> None:
    lists = describe_path(str(write(tmp_path / "lists", a="one", b="two")))
    first = Copies([lists, lists], machine)
    a, b = (Path(first.paths[0], name) for name in "ab")
    inode = a.stat().st_ino
    b.unlink()  # by a program that cleans temporary folders
    second = Copies([lists], machine)
    assert second.paths[0] == first.paths[0]
    assert a.stat().st_ino == inode
    assert b.read_text() == "two"


def test_sets_are_deleted_when_no_process_uses_them(tmp_path: Path, machine: Path) -> None:
    old, new = (
        describe_path(str(write(tmp_path / name, a=name, deep__b=name))) for name in ("old", "new")
    )
    in_use = Copies([old], machine)
    program = (
        "import sys; from pathlib import Path; from etl.storage.file_sets import *\n"
        "copies = Copies([describe_path(sys.argv[1])], Path(sys.argv[2]))\n"
        "print(copies.paths[0], flush=True); input()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "new"), str(machine)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        copy = Path(other.stdout.readline().strip())
        assert copy == machine / new.key
        remove_unused(machine)
        assert copy.exists()
        assert Path(in_use.paths[0]).exists()
        del in_use
        other.kill()  # it releases nothing
    remove_unused(machine)
    assert [path.name for path in machine.iterdir()] == [".lock"]


def test_a_file_that_changes_after_it_was_described_is_refused(
    tmp_path: Path, machine: Path, place: UPath
) -> None:
    lists = describe_path(str(write(tmp_path / "lists", a="one")))
    write(tmp_path / "lists", a="six")
    with pytest.raises(StorageError, match="has changed since the run started"):
        Copies([lists], machine)
    assert not (machine / lists.key / "a").exists()
    with pytest.raises(RecipeError, match="has changed since the run started"):
        send_files(lists, str(place / "files"))
    assert not storage.find_files(str(place / "files"))


def test_sent_files_are_named_by_their_content_and_sent_once(
    tmp_path: Path, machine: Path, place: UPath
) -> None:
    lists = describe_path(str(write(tmp_path / "lists", a="one", b="one", c="two")))
    store = str(place / "files")
    sent = send_files(lists, store)
    stored = {file.uri: file.modified for file in storage.find_files(store)}
    assert len(stored) == 2
    assert send_files(lists, store) == sent
    assert {file.uri: file.modified for file in storage.find_files(store)} == stored
    write(tmp_path / "lists", a="gone")
    copy = Path(Copies([sent], machine).paths[0])
    assert {path.name: path.read_text() for path in copy.iterdir()} == {
        "a": "one",
        "b": "one",
        "c": "two",
    }


def test_files_in_object_storage_are_not_sent(s3: str, machine: Path) -> None:
    for name, text in (("a.txt", b"one"), ("deep/b.txt", b"two")):
        storage.write_bytes(f"{s3}/lists/{name}", text)
    lists = describe_path(f"{s3}/lists")
    assert send_files(lists, f"{s3}/files") == lists
    copies = Copies([lists], machine)
    for name in ("a.txt", "deep/b.txt"):
        storage.remove(f"{s3}/lists/{name}")
    again = Copies([lists], machine)  # from the disk
    assert Path(again.paths[0], "deep/b.txt").read_bytes() == b"two"
    assert copies.paths == again.paths


def test_too_many_or_too_large_files_are_reported_with_the_remedy(
    tmp_path: Path, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "lists", small="1", large="12345")
    monkeypatch.setattr(file_sets, "MAX_SENT_BYTES", 5)
    with pytest.raises(RecipeError, match="too much to send") as caught:
        send_files(describe_path(str(tmp_path / "lists")), str(place / "files"))
    assert str(caught.value.where).endswith("lists/large")
    assert "object storage" in str(caught.value.hint)
    monkeypatch.setattr(file_sets, "MAX_FILES", 1)
    with pytest.raises(RecipeError, match="2 files are too many"):
        describe_path(str(tmp_path / "lists"))


def test_a_full_or_read_only_disk_is_reported(tmp_path: Path) -> None:
    lists = describe_path(str(write(tmp_path / "lists", a="one")))
    with pytest.raises(StorageError, match="cannot be written") as caught:
        Copies([lists], tmp_path / "missing")
    assert "--local-directory" in str(caught.value.hint)
