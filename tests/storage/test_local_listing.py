"""What is not a regular file on a disk is reported with its reason, and the rest is listed."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import storage
from etl.errors import StorageError, TokenlakeError
from etl.sources import Source
from etl.sources.list_splits import list_source, list_splits
from etl.storage.local_listing import glob_matcher
from tests.helpers.odd_files import WHY, make_odd_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jsonl", "sub/b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "a"}\n')
    make_odd_files(tmp_path)
    return tmp_path


def below(folder: Path, problems: list[StorageError]) -> dict[str, str]:
    return {str(e.where).removeprefix(f"file://{folder}/"): e.what for e in problems}


@pytest.mark.parametrize("pattern", ["", "**", "**/*.jsonl"])
def test_everything_else_is_listed(folder: Path, pattern: str) -> None:
    problems: list[StorageError] = []
    files = storage.find_files(str(folder / pattern), problems.append)
    assert [file.uri for file in files] == [
        f"file://{folder}/{n}" for n in ("a.jsonl", "sub/b.jsonl")
    ]
    assert below(folder, problems) == WHY


def test_only_what_matches_is_reported(folder: Path) -> None:
    problems: list[StorageError] = []
    files = storage.find_files(str(folder / "sub/*.jsonl"), problems.append)
    assert [file.uri for file in files] == [f"file://{folder}/sub/b.jsonl"]
    assert [*below(folder, problems)] == ["sub/socket.jsonl"]
    assert storage.find_files(str(folder / "[a-c].jsonl"), problems.append)
    assert len(problems) == 1


def test_a_source_keeps_its_problems(folder: Path) -> None:
    listing = list_source(Source(path=str(folder)))
    assert len(listing.files) == 2
    assert below(folder, [*listing.problems]) == WHY
    with pytest.raises(StorageError):  # without a lake, they cannot be recorded
        list_splits(Source(path=str(folder)))


@pytest.mark.parametrize("name", [name for name in WHY if name != "bad\udcff.jsonl"])
def test_a_source_that_is_not_a_file_is_refused(folder: Path, name: str) -> None:
    what = "no files found|Too many levels" if "leads" in WHY[name] else WHY[name]
    with pytest.raises(TokenlakeError, match=what):
        list_source(Source(path=str(folder / name)))
    with pytest.raises(StorageError), storage.open_input(f"file://{folder / name}"):
        pass


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ", "//proc/self/environ", "file:///proc/self/environ", "/proc/self/envi*",
        "local:///proc/self/environ", "/tmp/../proc/self/environ", "/proc/self/task/../environ", "/proc",
        "/sys/kernel", "/dev/stdin", "/dev/fd/0", "/dev/zero", "/dev/z*o",
    ],
)  # fmt: skip
def test_no_view_of_the_system_is_a_source(path: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    inside = f"{tmp_path}/link/{path}" if path.startswith("/") else path
    for each in (path, inside):
        with pytest.raises(StorageError, match="a view of the system|not a regular file"):
            list_source(Source(path=each, format="text"))


def test_files_in_shared_memory_are_files() -> None:
    path = Path("/dev/shm", f"tokenlake-{os.getpid()}.jsonl")
    if not path.parent.is_dir():
        pytest.skip("there is no /dev/shm")
    path.write_text('{"text": "a"}\n')
    try:
        assert len([*list_splits(Source(path=str(path)))]) == 1
    finally:
        path.unlink()


_AS_NOBODY = """
import os, sys
from etl import storage
storage.find_files(sys.argv[1] + "/none*")
os.setgid(65534), os.setuid(65534)
problems = []
for pattern in ("", "/*/*.jsonl", "/[b-z]/*.jsonl"):
    files = storage.find_files(sys.argv[1] + pattern, problems.append)
    print(len(files), [str(problem) for problem in problems])
    problems.clear()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0, 0o744])
def test_a_folder_that_cannot_be_read_is_reported(mode: int) -> None:
    with TemporaryDirectory() as path:  # the parents of tmp_path are closed to others
        folder = Path(path)
        for name in ("a", "b"):
            (folder / name).mkdir()
            (folder / name / "x.jsonl").touch()
        folder.chmod(0o755)
        (folder / "a").chmod(mode)
        command = [sys.executable, "-c", _AS_NOBODY, path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    all_files, matching, other = done.stdout.splitlines()
    for line in (all_files, matching):
        assert line.startswith(f'1 ["file://{path}/a')
        assert "cannot be listed ([Errno 13]" in line
    assert other == "1 []"


_PARTS = st.sampled_from(["a", "ab", "b", "*", "a*", "?", "[ab]", "**"])


@given(
    st.lists(_PARTS, min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "ab", "b"]), min_size=1),
)
def test_a_glob_descends_into_the_folders_of_its_files(parts: list[str], names: list[str]) -> None:
    wants = glob_matcher("/in/" + "/".join(parts), "/in")
    path = "/in/" + "/".join(names)
    if wants(path, False):
        above = ["/in/" + "/".join(names[:depth]) for depth in range(1, len(names))]
        assert all(wants(folder, True) for folder in above)
