"""A file that is renamed, moved, copied, touched or linked is read once, and keeps its rows."""

import os
import shutil
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

import etl
from etl import storage
from etl.audit.lake_status import lake_status
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.unit_files import unit_files
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import rows
from tests.helpers.source_folder import SourceFolder

A, B, C = ["a one", "a two"], ["b one"], ["c one", "c two", "c three"]
SMALL = 8
"""Bytes per split: each record is one."""


def move(file: UPath, name: str) -> UPath:
    """Rename a file, or copy and delete an object."""
    target = file.parent / name
    target.write_bytes(file.read_bytes())
    file.unlink()
    return target


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 20])
def test_a_moved_file_keeps_its_rows(folder: SourceFolder, split_bytes: int) -> None:
    folder.source["split_bytes"] = split_bytes
    a = folder.write("a.jsonl", A)
    folder.write("b.jsonl", B)
    folder.run()
    before = rows(str(folder.lake), "documents")
    moved = move(a, "moved.jsonl")
    report = folder.run()
    assert (report.rows, report.missing.count, report.ok) == (0, 0, True)
    assert report.copies == {storage.normalize(str(moved)): storage.normalize(str(a))}
    assert rows(str(folder.lake), "documents") == before
    assert not make_plan(folder.recipe).has_work()
    assert verify(str(folder.lake), sources=True) == []
    [trace] = etl.trace(str(folder.lake), source=str(a), row=1)
    assert trace.names == [storage.normalize(str(moved))]


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 20])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_copy_is_reported_and_read_once(
    folder: SourceFolder, split_bytes: int, at_once: bool
) -> None:
    folder.source["split_bytes"] = split_bytes
    a = folder.write("a.jsonl", A)
    if not at_once:
        folder.run()
    copy = folder.write("copy.jsonl", A)
    report = folder.run()
    assert report.copies == {storage.normalize(str(copy)): storage.normalize(str(a))}
    folder.check(A)
    assert not make_plan(folder.recipe).has_work()
    a.unlink()  # the copy has the same rows
    assert folder.run().missing.count == 0
    folder.write("copy.jsonl", C)
    with pytest.raises(MismatchError, match="1 input file changed"):
        folder.run()
    folder.run(replace_changed=True)
    folder.check(C)


def test_a_known_file_costs_no_request(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a.jsonl", A)
    folder.write("b.jsonl", B)
    folder.run()

    def fail(*_: object) -> str:
        raise AssertionError

    monkeypatch.setattr("etl.lake.known_files.sample_file", fail)
    monkeypatch.setattr(storage, "open_input", fail)
    assert not make_plan(folder.recipe).has_work()


def test_another_scheme_names_the_same_objects(folder: SourceFolder) -> None:
    a = folder.write("a.jsonl", A)
    if not str(a).startswith("s3://"):
        pytest.skip("only S3 has two schemes: make test-s3")
    folder.run()
    folder.source["path"] = str(folder.folder).replace("s3://", "s3a://", 1)
    assert not make_plan(folder.recipe).has_work()


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 20])
def test_copies_are_kept_on_request(folder: SourceFolder, split_bytes: int) -> None:
    folder.source |= {"split_bytes": split_bytes, "copies": "keep"}
    folder.write("a.jsonl", A)
    b = folder.write("b.jsonl", A)
    folder.run()
    folder.check(A, A)
    move(b, "c.jsonl")
    folder.write("d.jsonl", A)
    folder.run()
    folder.check(A, A, A)
    assert not make_plan(folder.recipe).has_work()


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 20])
def test_equal_content_with_a_new_time_is_no_change(folder: SourceFolder, split_bytes: int) -> None:
    folder.source["split_bytes"] = split_bytes
    a = folder.write("a.jsonl", A)
    folder.run()
    a.write_bytes(a.read_bytes())
    folder.write("b.jsonl", B)
    assert folder.run().rows == len(B)
    assert folder.run().estimate is None, "nothing is compared twice"
    folder.check(A + B)


def test_a_file_with_a_similar_sample_is_another_one(folder: SourceFolder) -> None:
    """The samples of two large files are equal, and one record between the samples differs."""
    folder.source["split_bytes"] = 100_000
    texts = [f"{number:06} {'text ' * 40}" for number in range(3000)]
    other = [*texts[:1100], f"{7:06} {'tale ' * 40}", *texts[1101:]]
    a = folder.write("a.jsonl", texts)
    folder.write("b.jsonl", other)
    assert folder.run().rows == len(texts) + len(other)
    folder.write("c.jsonl", other)
    folder.write("a.jsonl", other)
    with pytest.raises(MismatchError) as caught:
        folder.run()
    assert caught.value.where == storage.normalize(str(a))
    folder.run(replace_changed=True)
    folder.check(other)


def test_missing_files_are_reported_and_dropped_on_request(folder: SourceFolder) -> None:
    folder.write("a.jsonl", A)
    b = folder.write("b.jsonl", B)
    folder.run()
    b.unlink()
    report = folder.run()
    assert (report.missing.count, report.missing.files) == (1, [storage.normalize(str(b))])
    status = lake_status(str(folder.lake))
    assert (status.missing.count, status.missing.files) == (1, [storage.normalize(str(b))])
    folder.check(A + B)
    folder.run(replace_changed=True)
    folder.check(A + B)
    assert folder.run(drop_missing=True).missing.count == 0
    folder.check(A)
    assert lake_status(str(folder.lake)).missing.count == 0
    assert verify(str(folder.lake)) == []


def test_a_new_file_at_the_address_of_a_moved_one_is_a_change(folder: SourceFolder) -> None:
    """Logs are rotated so: rows of two contents must not have one address."""
    log = folder.write("log.jsonl", A)
    folder.run()
    move(log, "log.1.jsonl")
    folder.write("log.jsonl", B)
    with pytest.raises(MismatchError, match="changed"):
        folder.run()
    folder.run(replace_changed=True)
    folder.check(A + B)
    assert not make_plan(folder.recipe).has_work()


def test_a_moved_file_that_was_read_in_part_is_continued(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.source["split_bytes"] = SMALL
    texts = [f"text {number}" for number in range(40)]
    a = folder.write("a.jsonl", texts)
    commits: list[object] = []

    def stop_after_one(*args: object) -> None:
        if len(commits) == 3:
            raise KeyboardInterrupt
        commits.append(args)
        commit(*args)

    from etl.job import read_step

    commit = read_step._commit_documents
    monkeypatch.setattr("etl.job.commit_policy.CommitPolicy.is_due", lambda *_: True)
    monkeypatch.setattr(read_step, "_commit_documents", stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        folder.run()
    monkeypatch.undo()
    first = rows(str(folder.lake), "documents")
    assert 0 < len(first) < len(texts)
    move(a, "moved.jsonl")
    folder.run()
    documents = rows(str(folder.lake), "documents")
    assert {row["source"] for row in documents} == {storage.normalize(str(a))}
    folder.check(texts)


@pytest.mark.local_only
@pytest.mark.parametrize("replace", ["over", "in place"])
def test_other_content_of_the_same_size_and_time_is_noticed(
    folder: SourceFolder, replace: str
) -> None:
    a = Path(str(folder.write("a.jsonl", ["AAAA"])))
    times = (1.7e9, 1.7e9)
    os.utime(a, times)
    folder.run()
    new = a.with_name("new") if replace == "over" else a
    new.write_text(a.read_text().replace("AAAA", "BBBB"))
    os.utime(new, times)
    new.replace(a)
    with pytest.raises(MismatchError, match="changed"):
        folder.run()
    folder.run(replace_changed=True)
    folder.check(["BBBB"])


def test_verify_compares_the_input_files(folder: SourceFolder) -> None:
    files = [folder.write(f"{name}.jsonl", [f"{name} one", f"{name} two"]) for name in "abcd"]
    folder.run()
    files[1].unlink()
    files[2].write_text(files[2].read_text().replace("one", "two"))
    files[3].write_bytes(files[3].read_bytes())
    assert verify(str(folder.lake)) == []
    problems = [problem.what for problem in verify(str(folder.lake), sources=True)]
    assert len(problems) == 2  # d.jsonl was only touched
    assert "no longer exists" in problems[0]
    assert "has changed" in problems[1]
    folder.run(replace_changed=True)
    [problem] = verify(str(folder.lake), sources=True)
    assert "b.jsonl: its input file no longer exists" in problem.what


def test_a_repair_reads_a_touched_file_again(folder: SourceFolder) -> None:
    a = folder.write("a.jsonl", A)
    folder.run()
    [lost] = (folder.lake / "documents").glob("*/*.parquet")
    lost.unlink()
    a.write_bytes(a.read_bytes())
    assert etl.repair(str(folder.lake), drop=True).left == []
    folder.run()
    folder.check(A)
    assert verify(str(folder.lake), sources=True) == []


def test_a_duplicate_is_decided_again_when_its_keeper_is_read_elsewhere(
    folder: SourceFolder, client: Client
) -> None:
    recipe = Recipe(name="r", source=folder.source, lake=str(folder.lake), stages=["dedup_exact"])
    a = folder.write("a.jsonl", ["same", "a"])
    run(recipe, cluster=client)
    folder.write("b.jsonl", ["same", "b", "twice"])
    run(recipe, cluster=client)
    folder.write("c.jsonl", ["twice"])
    run(recipe, cluster=client)
    files = unit_files(Table.open(recipe.table_url("documents")))
    [lost] = [file["path"] for file in files if file["min.source"] == storage.normalize(str(a))]
    (folder.lake / "documents" / lost).unlink()
    move(a, "z.jsonl")
    run(recipe, cluster=client)  # notes its new name
    assert etl.repair(recipe.lake, drop=True).left == []
    run(recipe, cluster=client)
    assert verify(recipe.lake, sources=True) == []
    assert len(rows(recipe.lake, "documents")) == 6
    assert len(rows(recipe.lake, "duplicates")) == 2, "`same` and `twice` are kept once"
    assert not make_plan(recipe).has_work()


@pytest.mark.local_only
def test_a_link_is_the_file_that_it_leads_to(folder: SourceFolder, tmp_path: Path) -> None:
    folder.write("a.jsonl", A)
    data = Path(str(folder.folder))
    folder.run()
    (tmp_path / "link").symlink_to(data)
    (data / "linked.jsonl").symlink_to(data / "a.jsonl")
    for path in (str(tmp_path / "link"), [str(data), str(tmp_path / "link" / "*.jsonl")]):
        folder.source["path"] = path
        report = folder.run()
        assert (report.estimate, report.missing.count) == (None, 0)
    folder.check(A)


@pytest.mark.local_only
def test_a_link_that_leads_elsewhere_is_a_change(folder: SourceFolder, tmp_path: Path) -> None:
    for name, texts in (("v1", A), ("v2", B)):
        shutil.move(str(folder.write("x.jsonl", texts)), tmp_path / name)
    link = Path(str(folder.folder)) / "a.jsonl"
    link.symlink_to(tmp_path / "v1")
    folder.run()
    link.unlink()
    link.symlink_to(tmp_path / "v2")
    with pytest.raises(MismatchError, match="changed"):
        folder.run()
    folder.run(replace_changed=True)
    folder.check(B)
    (tmp_path / "v2").write_text((tmp_path / "v2").read_text().replace("b one", "B two"))
    folder.run(replace_changed=True)
    folder.check(["B two"])
