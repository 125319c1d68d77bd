"""Listing, opening and writing files, on local disk, in memory and on a real S3 server."""

import gzip
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from etl import storage
from etl.errors import StorageError


def _make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def _names(folder: Path, pattern: str) -> list[str]:
    root = storage.normalize(folder) + "/"
    return [file.uri.removeprefix(root) for file in storage.find_files(f"{folder}/{pattern}")]


def test_the_package_exports_every_public_function_and_class() -> None:
    public = [
        name
        for module in (
            f"etl.storage.{name}"
            for name in ("files", "filesystem", "folders", "list_files", "urls")
        )
        for name, value in vars(sys.modules[module]).items()
        if getattr(value, "__module__", None) == module and not name.startswith("_")
    ]
    assert storage.__all__ == sorted(public)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("/data/", "file:///data"),
        ("file:///data/a", "file:///data/a"),
        ("/data/../b", "file:///b"),
        ("/", "file:///"),
        ("s3://lake/web/", "s3://lake/web"),
    ],
)
def test_normalize_returns_one_spelling_per_url(written: str, normal: str) -> None:
    assert storage.normalize(written) == normal
    assert storage.normalize(normal) == normal


@pytest.mark.parametrize(
    "url",
    [
        "abfss://raw@account.dfs.core.windows.net/lake",
        "abfs://raw@account.dfs.core.windows.net/lake",
        "az://raw@account.blob.core.windows.net/lake",
    ],
)
def test_a_container_before_an_account_is_not_a_credential(url: str) -> None:
    assert storage.normalize(f"{url}/") == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("abfss://key:secret@account.dfs.core.windows.net/lake", "abfss://[...]@account.dfs."),
        ("s3://key@bucket/lake", "s3://[...]@bucket/lake"),
        ("s3://key:secret@bucket/lake", "s3://[...]@bucket/lake"),
        ("az://raw/lake?sig=c2Vj", "az://raw/lake[...]"),
    ],
)
def test_a_credential_in_a_url_is_refused_and_not_shown(url: str, shown: str) -> None:
    with pytest.raises(StorageError, match="must not contain credentials") as error:
        storage.normalize(url)
    assert str(error.value).startswith(shown)
    assert "secret" not in str(error.value).partition("hint")[0]


def test_a_connection_string_for_another_account_is_refused(monkeypatch) -> None:
    text = "AccountName=one;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/one"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    with pytest.raises(
        StorageError, match="for the account 'one', not 'two'(.|\n)*hint: set AZURE"
    ):
        storage.filesystem("abfss://raw@two.dfs.core.windows.net/lake")
    options = storage.delta_options("az://raw/lake")
    assert options["azure_storage_account_key"] == "a2V5"
    assert options["azure_allow_http"] == "true"


def test_all_urls_of_a_folder_have_one_location(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "one")
    urls = ["az://raw/a", "abfs://raw/a", "abfss://raw@one.dfs.core.windows.net/a"]
    assert {storage.location_of(url) for url in urls} == {"abfss://raw/a"}
    other = "abfss://raw@two.dfs.core.windows.net/a"
    assert storage.location_of(other) == storage.location_of(other.replace("abfss", "az")) == other
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert storage.location_of(f"file://{tmp_path}/link/b") == f"file://{tmp_path.resolve()}/a/b"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://bucket/v?versionId=1", "?versionId="),
        ("az://raw/l#", "#"),
        ("az://raw/q?/", "?"),
        ("abfss://raw@a.dfs.core.windows.net/q?x#y", "?x#"),
        ("az://raw/v?versionid=1", "?versionid="),
        ("az://raw/b\\c", "\\\\"),
    ],
)
def test_a_name_that_a_client_takes_for_another_is_refused(url: str, found: str) -> None:
    with pytest.raises(StorageError) as error:
        storage.normalize(url)
    assert f"cannot address '{found}'" in error.value.what


def test_a_listed_name_that_a_client_takes_for_another_is_refused(s3: str) -> None:
    storage.filesystem(s3).call_s3(  # s3fs would parse the name
        "put_object", Bucket=s3.removeprefix("s3://"), Key="raw/v?versionId=1", Body=b"1"
    )
    with pytest.raises(StorageError, match="cannot address"):
        storage.find_files(f"{s3}/raw")


def test_special_characters_in_folders_are_literal_where_they_exist(tmp_path) -> None:
    names = ("l#1", "q?x=1", "a%20b", "a b+c", "ü[1]*", "q!x=1")
    _make(tmp_path, *(f"{name}/{name}.txt" for name in names))
    for name in names:
        assert _names(tmp_path, f"{name}/") == [f"{name}/{name}.txt"]
        assert _names(tmp_path, f"{name}/{name}.txt") == [f"{name}/{name}.txt"]
        assert storage.is_folder(f"file://{tmp_path}/{name}")
        assert not storage.is_folder(f"file://{tmp_path}/{name}/{name}.txt")
    assert _names(tmp_path, "q?x=1/*.txt") == ["q!x=1/q!x=1.txt", "q?x=1/q?x=1.txt"]
    assert not storage.is_folder(f"file://{tmp_path}/none")


def test_relative_paths_and_the_home_folder_become_absolute(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert storage.normalize("a/b") == f"file://{tmp_path}/a/b"
    assert storage.normalize(Path("a")) == f"file://{tmp_path}/a"
    assert storage.normalize("~/a") == "file:///home/someone/a"


def test_a_folder_lists_all_files_below_it_except_hidden_ones(tmp_path) -> None:
    _make(tmp_path, "b.txt", "a/c.txt", "_log/x.txt", ".git/y.txt", "a/_SUCCESS", "a/.z")
    assert _names(tmp_path, "") == ["a/c.txt", "b.txt"]


def test_a_hidden_folder_can_be_listed_by_name(tmp_path) -> None:
    _make(tmp_path, "_staging/a.txt", ".cache/b.txt")
    assert _names(tmp_path, "_staging") == ["_staging/a.txt"]
    assert _names(tmp_path, ".cache/*.txt") == [".cache/b.txt"]


def test_a_glob_ignores_hidden_folders(tmp_path) -> None:
    _make(
        tmp_path, "a.parquet", "x/b.parquet", "_delta_log/c.parquet", "x/_tmp/d.parquet", "x/e.md"
    )
    assert _names(tmp_path, "**/*.parquet") == ["a.parquet", "x/b.parquet"]
    assert _names(tmp_path, "[ab].par?uet") == ["a.parquet"]


def test_a_file_whose_name_looks_like_a_glob_is_found(tmp_path) -> None:
    _make(tmp_path, "a[1].txt", "a1.txt", "_b.txt")
    assert _names(tmp_path, "a[1].txt") == ["a[1].txt"]
    assert _names(tmp_path, "_b.txt") == ["_b.txt"]


@pytest.mark.parametrize("pattern", ["none.txt", "*.none", "[a", "no/such/folder/*"])
def test_a_pattern_without_matches_returns_an_empty_list(tmp_path, pattern: str) -> None:
    _make(tmp_path, "a.txt")
    assert _names(tmp_path, pattern) == []


def test_links_to_files_are_listed_as_files(tmp_path) -> None:
    _make(tmp_path, "blobs/1", "blobs/sub/2")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/a.txt").symlink_to(tmp_path / "blobs/1")
    (tmp_path / "snapshot/folder").symlink_to(tmp_path / "blobs/sub")
    [file] = storage.find_files(f"{tmp_path}/snapshot")
    assert (file.uri, file.size) == (f"file://{tmp_path}/snapshot/a.txt", len("blobs/1"))
    assert _names(tmp_path, "snapshot/*.txt") == ["snapshot/a.txt"]


def test_the_fingerprint_of_a_link_changes_with_its_target(tmp_path) -> None:
    _make(tmp_path, "blob")
    (tmp_path / "a.txt").symlink_to(tmp_path / "blob")
    before = storage.find_files(f"{tmp_path}/a.*")[0].fingerprint
    os.utime(tmp_path / "blob", ns=(1, 1_000_000_000))
    assert storage.find_files(f"{tmp_path}/a.*")[0].fingerprint != before


def test_a_rewritten_file_has_another_fingerprint(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    [before] = storage.find_files(path)
    assert storage.find_files(path) == [before] == storage.find_files(tmp_path)
    assert storage.file_info(before.uri) == before
    path.write_text("two")
    os.utime(path, ns=(1, 1_000_000_000))
    [after] = storage.find_files(path)
    assert after.size == before.size
    assert after.fingerprint != before.fingerprint


def test_size_and_info_are_none_for_a_missing_file_or_a_folder(tmp_path) -> None:
    _make(tmp_path, "a.txt")
    assert storage.file_size(f"file://{tmp_path}/a.txt") == 5
    for name in ("none", ""):
        assert storage.file_size(f"file://{tmp_path}/{name}") is None
        assert storage.file_info(f"file://{tmp_path}/{name}") is None


def test_a_written_file_can_be_read(tmp_path) -> None:
    uri = storage.join(storage.normalize(tmp_path), "new/folder", "a.bin")
    with storage.open_output(uri) as file:
        file.write(b"0123456789")
    with storage.open_input(uri) as file:
        assert (file.size(), file.seek(4), file.read()) == (10, 4, b"456789")
    assert storage.file_size(uri) == 10


def test_arrow_can_decompress_an_open_file(tmp_path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    with storage.open_input(f"file://{tmp_path}/a.gz") as file:
        assert pa.CompressedInputStream(file, "gzip").read() == b"onetwo"


def test_opening_a_missing_file_fails(tmp_path) -> None:
    with (
        pytest.raises(StorageError, match=r"file://.*none: cannot be read"),
        storage.open_input(f"file://{tmp_path}/none"),
    ):
        pass


def test_writing_below_a_file_fails_with_a_hint(tmp_path) -> None:
    _make(tmp_path, "file")
    with (
        pytest.raises(StorageError, match=r"cannot be written.*\n  hint: check the permissions"),
        storage.open_output(f"file://{tmp_path}/file/below"),
    ):
        pass


def test_an_error_in_the_with_block_is_not_converted(tmp_path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        storage.open_output(f"file://{tmp_path}/a"),
    ):
        raise ZeroDivisionError


def test_the_error_for_an_unknown_protocol_lists_supported_ones() -> None:
    with pytest.raises(StorageError, match=r"no filesystem for nothing://.*\n.*hint: local paths"):
        storage.find_files("nothing://bucket/a")


def test_other_filesystems_are_supported() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/lake/a.txt": b"one", "/lake/_x/b.txt": b"two", "/lake/c/d.txt": b"three"})
    try:
        for pattern in ("memory://lake", "memory://lake/**/*.txt"):
            files = storage.find_files(pattern)
            assert [file.uri for file in files] == [
                "memory:///lake/a.txt",
                "memory:///lake/c/d.txt",
            ]
            assert [storage.file_size(file.uri) for file in files] == [3, 5]
        with storage.open_output("memory://lake/e.txt") as file:
            file.write(b"four")
        with storage.open_input("memory:///lake/e.txt") as file:
            assert file.read() == b"four"
    finally:
        memory.rm("/lake", recursive=True)


def test_walking_a_folder_yields_the_files_of_a_listing(tmp_path) -> None:
    _make(tmp_path, "b.txt", "a/c/d.txt", "_log/x.txt", ".git/y.txt", "a/_SUCCESS", "a/e.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "folder").symlink_to(tmp_path / "a")
    for folder in (tmp_path, tmp_path / "_log", tmp_path / "none"):
        files = storage.find_files(folder)
        assert {*storage.walk_files(f"file://{folder}")} == {*files}
    walked = {file.uri: file.modified for file in storage.walk_files(f"file://{tmp_path}")}
    assert walked == {file.uri: file.modified for file in storage.find_files(tmp_path)}
    assert len(walked) == 4


def test_walking_a_prefix_of_an_object_store_reads_it_page_by_page(s3: str, monkeypatch) -> None:
    monkeypatch.setattr("etl.storage.list_files._PAGE", 2)
    for name in ("lake/a/b.txt", "lake/_c/d.txt", "lake/e.txt", "lake/f.txt", "lakes/g.txt"):
        storage.write_bytes(f"{s3}/{name}", name.encode())
    files = storage.find_files(f"{s3}/lake")
    assert [*storage.walk_files(f"{s3}/lake")] == files
    assert [file.modified for file in storage.walk_files(f"{s3}/lake")] == [
        file.modified for file in files
    ]
    assert len(files) == 3
    assert [*storage.walk_files(f"{s3}/none")] == []


def test_files_in_an_object_store_are_listed_written_and_read(s3: str) -> None:
    for name in ("a/b.txt", "a/_c/d.txt", "e.txt"):
        with storage.open_output(f"{s3}/{name}") as file:
            file.write(name.encode())
    files = storage.find_files(s3)
    assert [file.uri for file in files] == [f"{s3}/a/b.txt", f"{s3}/e.txt"]
    assert storage.find_files(f"{s3}/a/*.txt") == [files[0]] == storage.find_files(f"{s3}/a/b.txt")
    assert storage.file_info(files[0].uri) == files[0]
    with storage.open_output(f"{s3}/a/b.txt") as file:
        file.write(b"A/B.TXT")
    [after] = storage.find_files(f"{s3}/a")
    assert (after.size, after.fingerprint != files[0].fingerprint) == (7, True)
    with storage.open_input(f"{s3}/a/b.txt") as file:
        assert (file.seek(2), file.read(3)) == (2, b"B.T")
    assert storage.file_size(f"{s3}/none") is None
    assert storage.find_files(f"{s3}/none") == []


def test_a_small_file_is_created_once(tmp_path) -> None:
    uri = storage.normalize(tmp_path / "a" / "b.json")
    assert storage.read_bytes(uri) is None
    assert storage.create_if_absent(uri, b"one")
    assert not storage.create_if_absent(uri, b"two")
    assert storage.read_bytes(uri) == b"one"
    storage.write_bytes(uri, b"three")
    assert (storage.read_bytes(uri), [p.name for p in (tmp_path / "a").iterdir()]) == (
        b"three",
        ["b.json"],
    )
    storage.remove(uri)
    storage.remove(uri)
    assert storage.read_bytes(uri) is None
    with pytest.raises(StorageError, match="cannot be written"):
        storage.create_if_absent(storage.normalize(Path("/proc/none/x")), b"")


def test_a_small_object_is_created_once(s3: str) -> None:
    uri = f"{s3}/a/b.json"
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: storage.create_if_absent(uri, b"%d" % n), range(8)))
    assert results.count(True) == 1
    assert storage.read_bytes(uri) == b"%d" % results.index(True)
    storage.write_bytes(uri, b"x")
    assert storage.read_bytes(uri) == b"x"
    storage.remove(uri)
    assert storage.read_bytes(uri) is None


def test_info_has_the_time_of_the_last_write(tmp_path, s3: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    for uri in (storage.normalize(tmp_path / "x"), f"{s3}/x"):
        storage.write_bytes(uri, b"x")
        file = storage.file_info(uri)
        assert file is not None
        assert file.modified is not None
        assert before < file.modified < datetime.now(UTC) + timedelta(seconds=2)


def test_a_local_name_may_look_like_a_credential(tmp_path) -> None:
    path = tmp_path / "a?key=b.jsonl"
    path.touch()
    (file,) = storage.find_files(str(tmp_path))
    assert file.uri == storage.normalize(file.uri) == f"file://{path}"


def test_a_name_that_is_not_utf_8_is_refused(tmp_path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.jsonl")).touch()
    with pytest.raises(StorageError, match=r"bad\\udcff.jsonl: .* not UTF-8(.|\n)*rename the file"):
        storage.find_files(str(tmp_path))
